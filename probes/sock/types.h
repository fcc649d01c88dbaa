/* SPDX-License-Identifier: GPL-2.0-only */

/* The kernel's types of sockets, as far as this probe reads them. */
#pragma once

#include "kernel.bpf.h"

struct sock_common {
	unsigned short skc_family;
	volatile unsigned char skc_state;
} KERNEL;
struct sock {
	struct sock_common __sk_common;
	u32 sk_ack_backlog; /* connections waiting for accept */
	int sk_err;
	u16 sk_type;
	u16 sk_protocol; /* 16 bits wide since bf9765145b85 (5.6) */
} KERNEL;
struct socket { struct sock *sk; } KERNEL;
struct inet_connection_sock { u8 icsk_ca_state : 5; } KERNEL;
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 rcv_nxt;    /* sequence number that is expected next */
	u32 copied_seq; /* of what the application has not read yet */
	u32 srtt_us;    /* smoothed round trip time, times 8 */
	u32 mdev_us;    /* its mean deviation, times 4 */
} KERNEL;

/* What TCP keeps in sk_buff.cb (include/net/tcp.h, TCP_SKB_CB). */
struct sk_buff { char cb[48]; } KERNEL;
struct tcp_skb_cb {
	u32 seq, end_seq;
	u16 tcp_gso_segs;
} KERNEL;

/* ad892e912b84 (6.17) runs the tracepoint for what failed to go out as well, and tells the error. */
typedef void (*btf_trace_tcp_retransmit_skb___with_error)(void *, const struct sock *, const struct sk_buff *, int);

/* 6e6eda44b939 (6.3) made the tracepoints of what sockets send and receive. */
typedef void (*btf_trace_sock_send_length)(void *, struct sock *, int, int);

/* 92ef0fd55ac8 (6.10) made all but the first argument of inet_csk_accept one. */
struct proto_accept_arg { int flags; } KERNEL;

/* include/net/tcp_states.h, include/linux/socket.h, include/uapi/linux/tcp.h, include/uapi/asm-generic/errno.h. */
enum { TCP_ESTABLISHED = 1, TCP_SYN_SENT = 2, TCP_SYN_RECV = 3, TCP_CLOSE = 7 };
enum { AF_INET = 2, AF_INET6 = 10, SOCK_STREAM = 1, SOCK_DGRAM = 2, IPPROTO_TCP = 6, IPPROTO_UDP = 17 };
enum { MSG_PEEK = 2, MSG_ERRQUEUE = 0x2000 };
enum { TCP_CA_RECOVERY = 3, TCP_CA_LOSS = 4 };
enum { ENOMEM = 12, ENETUNREACH = 101, ETIMEDOUT = 110, ECONNREFUSED = 111, EHOSTUNREACH = 113 };

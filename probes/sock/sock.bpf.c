/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * What sockets do: bytes that applications send and receive by TCP and UDP,
 * and the life of TCP connections. README.md has the hooks, and what they cost.
 */
#include "traffic.h"
#include "connection.h"

#define SEND NEEDS("tcp_traffic|udp_traffic")
#define RECV NEEDS("tcp_traffic|udp_traffic|tcp_packet_latency")

SEC("tp_btf/sock_send_length") SEND
int on_send(u64 *ctx)
{
	return sock_call((void *)ctx[0], ctx[1], 0, TRANSMIT, false);
}

SEC("raw_tp/sock_send_length") SEND
int on_send__raw(u64 *ctx)
{
	return sock_call((void *)ctx[0], ctx[1], 0, TRANSMIT, true);
}

/* (sock, msg, size), result */
SEC("fexit/inet_sendmsg") SEND
int on_send__ipv4(u64 *ctx)
{
	return sock_call(((struct socket *)ctx[0])->sk, ctx[3], 0, TRANSMIT, false);
}

SEC("tp_btf/sock_recv_length") RECV
int on_recv(u64 *ctx)
{
	return sock_call((void *)ctx[0], ctx[1], ctx[2], RECEIVE, false);
}

SEC("raw_tp/sock_recv_length") RECV
int on_recv__raw(u64 *ctx)
{
	return sock_call((void *)ctx[0], ctx[1], ctx[2], RECEIVE, true);
}

/* (sock, msg, size, flags), result */
SEC("fexit/inet_recvmsg") RECV
int on_recv__ipv4(u64 *ctx)
{
	return sock_call(((struct socket *)ctx[0])->sk, ctx[4], ctx[3], RECEIVE, false);
}

/*
 * IPv6 on kernels without sock_send_length. On others nothing is left to do:
 * the first rung is a program on a tracepoint that hardly ever runs, which
 * loads only where the kernel has the type.
 */
SEC("raw_tp/net_dev_xmit_timeout") SEND
int on_send6__traced(u64 *ctx)
{
	return bpf_core_type_size(btf_trace_sock_send_length);
}

SEC("fexit/inet6_sendmsg") SEND
int on_send6__ipv6(u64 *ctx)
{
	return sock_call(((struct socket *)ctx[0])->sk, ctx[3], 0, TRANSMIT, false);
}

SEC("raw_tp/net_dev_xmit_timeout") RECV
int on_recv6__traced(u64 *ctx)
{
	return bpf_core_type_size(btf_trace_sock_send_length);
}

SEC("fexit/inet6_recvmsg") RECV
int on_recv6__ipv6(u64 *ctx)
{
	return sock_call(((struct socket *)ctx[0])->sk, ctx[4], ctx[3], RECEIVE, false);
}

SEC("tp_btf/inet_sock_set_state") NEEDS("tcp_connect_latency|tcp_accept|tcp_packet_latency")
int on_state(u64 *ctx)
{
	return state_change((void *)ctx[0], ctx[1], ctx[2], false);
}

SEC("raw_tp/inet_sock_set_state") NEEDS("tcp_connect_latency|tcp_accept|tcp_packet_latency")
int on_state__raw(u64 *ctx)
{
	return state_change((void *)ctx[0], ctx[1], ctx[2], true);
}

SEC("tp_btf/tcp_probe") NEEDS("tcp_receive|tcp_packet_latency")
int on_segment(u64 *ctx)
{
	return segment_came((void *)ctx[0], (void *)ctx[1], false);
}

SEC("raw_tp/tcp_probe") NEEDS("tcp_receive|tcp_packet_latency")
int on_segment__raw(u64 *ctx)
{
	return segment_came((void *)ctx[0], (void *)ctx[1], true);
}

/*
 * (sk, flags, err, kern) or (sk, arg), result. Volatile: the verifier wants each
 * word of the context loaded from where it lies, not from an address chosen.
 */
SEC("fexit/inet_csk_accept") NEEDS("tcp_accept")
int on_accept(volatile u64 *ctx)
{
	void *listener = (void *)ctx[0];

	if (bpf_core_type_exists(struct proto_accept_arg))
		return accepted(listener, (void *)ctx[2]);
	return accepted(listener, (void *)ctx[4]);
}

SEC("tp_btf/tcp_retransmit_skb") NEEDS("tcp_retransmit")
int on_retransmit(u64 *ctx)
{
	return WENT_OUT(ctx) ? retransmitted((void *)ctx[0], (void *)ctx[1], false) : 0;
}

SEC("raw_tp/tcp_retransmit_skb") NEEDS("tcp_retransmit")
int on_retransmit__raw(u64 *ctx)
{
	return WENT_OUT(ctx) ? retransmitted((void *)ctx[0], (void *)ctx[1], true) : 0;
}

/* These need no more than to be counted: one program serves every kernel. */
SEC("raw_tp/tcp_retransmit_synack") NEEDS("tcp_retransmit")
int on_synack(u64 *ctx)
{
	return synack_retransmitted();
}

SEC("raw_tp/tcp_send_reset") NEEDS("tcp_reset")
int on_reset_sent(u64 *ctx)
{
	return reset(TRANSMIT);
}

SEC("raw_tp/tcp_receive_reset") NEEDS("tcp_reset")
int on_reset_received(u64 *ctx)
{
	return reset(RECEIVE);
}

SEC("raw_tp/udp_fail_queue_rcv_skb") NEEDS("udp_drops")
int on_udp_drop(u64 *ctx)
{
	struct sock_bank *bank = this_bank();

	if (bank)
		bank_add(&bank->udp_drops[(s32)ctx[0] != -ENOMEM], 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

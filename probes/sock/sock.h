/* SPDX-License-Identifier: GPL-2.0-only */

/* The metrics of this probe, and what it remembers of a socket. */
#pragma once

#include "cgroup.bpf.h"
#include "types.h"

SAMPLER(tcp_traffic);
SAMPLER(tcp_receive);
SAMPLER(tcp_packet_latency);
SAMPLER(tcp_connect_latency);
SAMPLER(tcp_accept);
SAMPLER(tcp_retransmit);
SAMPLER(tcp_reset);
SAMPLER(udp_traffic);
SAMPLER(udp_drops);

enum direction { RECEIVE, TRANSMIT, DIRECTIONS };
#define DIRECTION LABEL("direction", "receive|transmit")

enum connect { CONNECT_SUCCESS, CONNECT_REFUSED, CONNECT_TIMED_OUT, CONNECT_UNREACHABLE, CONNECT_ABANDONED, CONNECT_OTHER, CONNECTS };
enum retransmit { RETRANSMIT_SYN, RETRANSMIT_SYNACK, RETRANSMIT_TIMEOUT, RETRANSMIT_FAST, RETRANSMIT_PROBE, RETRANSMITS };

/* What a family of sockets sends and receives, with the names of TCP or UDP. */
#define TRAFFIC(proto, PROTO) \
	COUNTER(proto##_bytes, [DIRECTIONS], proto##_traffic, #proto "_bytes", "bytes", \
		"bytes that applications sent and received by " PROTO, DIRECTION); \
	COUNTER(proto##_packets, [DIRECTIONS], proto##_traffic, #proto "_packets", "", \
		"calls that sent or received by " PROTO, DIRECTION); \
	HISTOGRAM(proto##_size, [DIRECTIONS], proto##_traffic, #proto "_size", "bytes", \
		  "bytes of a call that sent or received by " PROTO, DIRECTION)

struct sock_bank {
	TRAFFIC(tcp, "TCP");
	TRAFFIC(udp, "UDP");
	HISTOGRAM(srtt, , tcp_receive, "tcp_srtt", "nanoseconds",
		  "smoothed round trip time of a connection, at each segment that it received");
	HISTOGRAM(jitter, , tcp_receive, "tcp_jitter", "nanoseconds",
		  "mean deviation of the round trip time of a connection, at each segment that it received");
	HISTOGRAM(packet_latency, , tcp_packet_latency, "tcp_packet_latency", "nanoseconds",
		  "time from the first unread data of a connection to a read");
	COUNTER(packet_discarded, , tcp_packet_latency, "tcp_packet_discarded_samples", "",
		"data that was not timed for want of room", LOST);
	HISTOGRAM(connect_latency, [CONNECTS], tcp_connect_latency, "tcp_connect_latency", "nanoseconds",
		  "time from connecting to the answer or to giving up",
		  LABEL("result", "success|refused|timed_out|unreachable|abandoned|other"));
	COUNTER(connect_discarded, , tcp_connect_latency, "tcp_connect_discarded_samples", "",
		"connects that were not timed for want of room", LOST);
	HISTOGRAM(accept_latency, , tcp_accept, "tcp_accept_latency", "nanoseconds",
		  "time that an established connection waited for accept");
	HISTOGRAM(accept_backlog, , tcp_accept, "tcp_accept_backlog", "",
		  "connections that still waited when one was accepted");
	COUNTER(accept_discarded, , tcp_accept, "tcp_accept_discarded_samples", "",
		"accepted connections that were not timed: they came before the probe did, or for want of room", LOST);
	COUNTER(retransmit, [RETRANSMITS], tcp_retransmit, "tcp_retransmit", "packets", "segments sent again",
		LABEL("kind", "syn|synack|timeout|fast|probe"));
	COUNTER(reset, [DIRECTIONS], tcp_reset, "tcp_reset", "packets", "resets sent and received", DIRECTION);
	COUNTER(udp_drops, [2], udp_drops, "udp_receive_drops", "packets",
		"datagrams dropped because the socket's buffer was full, or the memory of all UDP sockets",
		LABEL("reason", "buffer|memory"));
} BANK;
BANKS(sock_banks, struct sock_bank);

struct sock_cgroup {
	TOUCHED;
	COUNTER(tcp_bytes, [DIRECTIONS], tcp_traffic, "cgroup_tcp_bytes", "bytes",
		"bytes that tasks of the cgroup sent and received by TCP", DIRECTION);
	COUNTER(udp_bytes, [DIRECTIONS], udp_traffic, "cgroup_udp_bytes", "bytes",
		"bytes that tasks of the cgroup sent and received by UDP", DIRECTION);
};
CGROUP_BANKS(sock_cgroups, struct sock_cgroup);

/*
 * What began at a socket and has not ended, in a table with open addressing by
 * the socket's address. Its lower three bits are zero; they say what began.
 */
enum wait { WAIT_CONNECT = 1, WAIT_ACCEPT = 2, WAIT_READ = 3 };
struct waiting {
	u64 key;   /* 0: free */
	u64 since; /* bpf_ktime_get_ns() */
	u64 end;   /* WAIT_READ: the sequence number after the data */
	u64 _unused;
};
#define WAITINGS 16384
#define WAITING_PROBES 8
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAITINGS);
	__type(key, u32);
	__type(value, struct waiting);
} sock_waiting SEC(".maps");

/*
 * A key of what began at a socket. The verifier lets no pointer be computed
 * with, and makes a number only of what a helper copied. (A word of the bank
 * would do as well, were there no interrupts.)
 */
inline_ u64 waiting_key(void *sk, enum wait what)
{
	u64 address = 0;

	bpf_probe_read_kernel(&address, sizeof(address), &sk);
	return address + what;
}

/* The i-th cell that may hold the key. */
inline_ struct waiting *waiting_at(u64 key, u32 i)
{
	u32 at = (((key >> 6) * 0x9E3779B97F4A7C15ull >> 40) + i) & (WAITINGS - 1);

	return bpf_map_lookup_elem(&sock_waiting, &at);
}

inline_ struct waiting *waiting_find(void *sk, enum wait what)
{
	u64 key = waiting_key(sk, what);

	for (u32 i = 0; i < WAITING_PROBES; i++) {
		struct waiting *w = waiting_at(key, i);

		if (!w || w->key == key)
			return w;
	}
	return NULL;
}

/* Notes that something began now; NULL: there was no room. */
inline_ struct waiting *waiting_begin(void *sk, enum wait what)
{
	u64 key = waiting_key(sk, what);
	struct waiting *free = NULL;

	for (u32 i = 0; i < WAITING_PROBES; i++) {
		struct waiting *w = waiting_at(key, i);

		if (!w)
			return NULL;
		if (w->key == key) {
			free = w;
			break;
		}
		if (!free && !w->key)
			free = w;
	}
	if (free) {
		free->since = bpf_ktime_get_ns();
		free->key = key;
	}
	return free;
}

/*
 * hist_add as a function of its own: within a large program, verifiers before
 * 6.3 forget the bound of the index, which is spilled.
 */
static __noinline void histogram(u64 *buckets, u64 v)
{
	hist_add(buckets, v);
}

/* Counts the time since it began, and frees the cell. */
inline_ void waiting_end(struct waiting *w, u64 *buckets)
{
	histogram(buckets, bpf_ktime_get_ns() - w->since);
	w->key = 0;
}

inline_ void waiting_forget(void *sk, enum wait what)
{
	struct waiting *w = waiting_find(sk, what);

	if (w)
		w->key = 0;
}

inline_ struct sock_bank *this_bank(void)
{
	return cpu_bank(&sock_banks, bpf_get_smp_processor_id());
}

/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * What applications send and receive. sock_send_length and sock_recv_length
 * tell of every socket; on kernels before 6.3 functions of IPv4 and IPv6 do.
 * Those of the kernel itself (NFS, SMB) count as well.
 */
#pragma once

#include "sock.h"

#define COUNT_CALL(proto, bank, cgroup, direction, bytes) do { \
	bank_add(&(bank)->proto##_bytes[direction], bytes); \
	bank_add(&(bank)->proto##_packets[direction], 1); \
	histogram((bank)->proto##_size[direction], bytes); \
	if (cgroup) \
		cgroup_add(&(cgroup)->proto##_bytes[direction], bytes); \
} while (0)

inline_ bool is_internet(struct sock *sk, u16 type, const bool raw)
{
	u16 family = READ(raw, sk, __sk_common.skc_family);

	return (family == AF_INET || family == AF_INET6) && READ(raw, sk, sk_type) == type;
}

/* bytes is what the call returned. */
inline_ void count_tcp(s32 bytes, enum direction direction, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct sock_bank *bank = cpu_bank(&sock_banks, cpu);

	if (!sampler_tcp_traffic || !bank || bytes <= 0)
		return;
	struct sock_cgroup *cgroup = current_cgroup(&sock_cgroups, cpu, raw);

	COUNT_CALL(tcp, bank, cgroup, direction, bytes);
}

/* A datagram may be empty. */
inline_ void count_udp(s32 bytes, enum direction direction, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct sock_bank *bank = cpu_bank(&sock_banks, cpu);

	if (!sampler_udp_traffic || !bank || bytes < 0)
		return;
	struct sock_cgroup *cgroup = current_cgroup(&sock_cgroups, cpu, raw);

	COUNT_CALL(udp, bank, cgroup, direction, bytes);
}

/* The application read: what it had not read before has waited until now. */
inline_ void count_read(struct sock *sk, s32 bytes)
{
	struct sock_bank *bank = this_bank();

	if (!sampler_tcp_packet_latency || !bank || bytes <= 0)
		return;
	struct waiting *w = waiting_find(sk, WAIT_READ);

	if (w)
		waiting_end(w, bank->packet_latency);
}

inline_ int sock_call(struct sock *sk, s32 bytes, u32 flags, enum direction direction, const bool raw)
{
	u16 protocol = READ(raw, sk, sk_protocol);

	if (flags & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	if (protocol == IPPROTO_TCP && is_internet(sk, SOCK_STREAM, raw)) {
		count_tcp(bytes, direction, raw);
		if (direction == RECEIVE)
			count_read(sk, bytes);
	} else if (protocol == IPPROTO_UDP && is_internet(sk, SOCK_DGRAM, raw)) {
		count_udp(bytes, direction, raw);
	}
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0-only */

/* The life of a TCP connection: connecting, waiting for accept, receiving, losing packets. */
#pragma once

#include "sock.h"

inline_ struct tcp_sock *tcp_of(const void *sk, const bool raw)
{
	/* A program with BTF may read a tcp_sock only after the kernel said that it is one. */
	return raw ? (struct tcp_sock *)sk : bpf_skc_to_tcp_sock((void *)sk);
}

inline_ enum connect result_of(int error)
{
	switch (error) {
	case 0: return CONNECT_ABANDONED; /* closed before there was an answer */
	case ECONNREFUSED: return CONNECT_REFUSED;
	case ETIMEDOUT: return CONNECT_TIMED_OUT;
	case ENETUNREACH: case EHOSTUNREACH: return CONNECT_UNREACHABLE;
	}
	return CONNECT_OTHER;
}

inline_ void connect_end(struct sock_bank *bank, void *sk, enum connect result)
{
	struct waiting *w = waiting_find(sk, WAIT_CONNECT);

	if (w)
		waiting_end(w, bank->connect_latency[result]);
}

inline_ int state_change(struct sock *sk, int from, int to, const bool raw)
{
	struct sock_bank *bank = this_bank();

	if (!bank || READ(raw, sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	if (sampler_tcp_connect_latency) {
		if (to == TCP_SYN_SENT && !waiting_begin(sk, WAIT_CONNECT))
			bank_add(&bank->connect_discarded, 1);
		if (from == TCP_SYN_SENT)
			connect_end(bank, sk, to == TCP_CLOSE ? result_of(READ(raw, sk, sk_err)) : CONNECT_SUCCESS);
	}
	if (sampler_tcp_accept) {
		if (from == TCP_SYN_RECV && to == TCP_ESTABLISHED)
			waiting_begin(sk, WAIT_ACCEPT); /* no room: accept counts it as discarded */
		if (to == TCP_CLOSE)
			waiting_forget(sk, WAIT_ACCEPT);
	}
	if (sampler_tcp_packet_latency && to == TCP_CLOSE)
		waiting_forget(sk, WAIT_READ);
	return 0;
}

/* listener accepted sk. */
inline_ int accepted(struct sock *listener, struct sock *sk)
{
	struct sock_bank *bank = this_bank();

	if (!bank || !sk || listener->sk_protocol != IPPROTO_TCP)
		return 0;
	histogram(bank->accept_backlog, listener->sk_ack_backlog);
	struct waiting *w = waiting_find(sk, WAIT_ACCEPT);

	if (w)
		waiting_end(w, bank->accept_latency);
	else
		bank_add(&bank->accept_discarded, 1);
	return 0;
}

/* Notes when the first data came that nobody has read yet. */
inline_ void data_came(struct sock_bank *bank, struct tcp_sock *tp, void *sk, struct sk_buff *skb, const bool raw)
{
	struct tcp_skb_cb *cb = (void *)skb->cb;
	u32 end = READ(raw, cb, end_seq);

	/* No data, or none that is new. */
	if (end == READ(raw, cb, seq) || (s32)(end - READ(raw, tp, rcv_nxt)) <= 0)
		return;
	struct waiting *w = waiting_find(sk, WAIT_READ);

	/* Some reads cannot be seen (splice); they show in how far the application got. */
	if (w && (s32)(READ(raw, tp, copied_seq) - (u32)w->end) < 0)
		return;
	w = waiting_begin(sk, WAIT_READ);
	if (w)
		w->end = end;
	else
		bank_add(&bank->packet_discarded, 1);
}

inline_ int segment_came(struct sock *sk, struct sk_buff *skb, const bool raw)
{
	struct sock_bank *bank = this_bank();
	struct tcp_sock *tp = tcp_of(sk, raw);

	if (!bank || !tp)
		return 0;
	if (sampler_tcp_receive) {
		histogram(bank->srtt, (u64)(READ(raw, tp, srtt_us) >> 3) * 1000);
		histogram(bank->jitter, (u64)(READ(raw, tp, mdev_us) >> 2) * 1000);
	}
	if (sampler_tcp_packet_latency)
		data_came(bank, tp, sk, skb, raw);
	return 0;
}

/* Whether the retransmission went out. */
#define WENT_OUT(ctx) (!bpf_core_type_exists(btf_trace_tcp_retransmit_skb___with_error) || !(s32)(ctx)[2])

/* Counts a retransmission; of many segments as many. */
inline_ int retransmitted(struct sock *sk, struct sk_buff *skb, const bool raw)
{
	struct sock_bank *bank = this_bank();
	struct tcp_sock *tp = tcp_of(sk, raw);
	struct tcp_skb_cb *cb = (void *)skb->cb;
	enum retransmit kind = RETRANSMIT_PROBE; /* of the tail (RFC 8985, 7) */

	if (!bank || !tp)
		return 0;
	struct inet_connection_sock *icsk = &tp->inet_conn;
	u8 state = READ(raw, sk, __sk_common.skc_state);
	u8 recovery = raw ? BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state) : BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state);

	if (state == TCP_SYN_SENT)
		kind = RETRANSMIT_SYN;
	else if (state == TCP_SYN_RECV)
		kind = RETRANSMIT_SYNACK;
	else if (recovery == TCP_CA_LOSS)
		kind = RETRANSMIT_TIMEOUT;
	else if (recovery == TCP_CA_RECOVERY)
		kind = RETRANSMIT_FAST;
	bank_add(&bank->retransmit[kind], READ(raw, cb, tcp_gso_segs));
	return 0;
}

inline_ int synack_retransmitted(void)
{
	struct sock_bank *bank = this_bank();

	if (bank)
		bank_add(&bank->retransmit[RETRANSMIT_SYNACK], 1);
	return 0;
}

inline_ int reset(enum direction direction)
{
	struct sock_bank *bank = this_bank();

	if (bank)
		bank_add(&bank->reset[direction], 1);
	return 0;
}

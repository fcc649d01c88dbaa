/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * A packet between the stack and an interface. The kernel handles many
 * segments of one flow as one packet: what goes out is cut by the device or
 * shortly before it (TSO, GSO), what comes in was put together (LRO, GRO).
 * All but the first segment's headers are then missing from its length;
 * qdisc_pkt_len_init (net/core/dev.c) makes up for it in the same way.
 */
#pragma once

#include "net.h"

/*
 * hist_add as a function of its own: within a large program, verifiers before
 * 6.3 forget the bound of the index, which is spilled.
 */
static __noinline void histogram(u64 *buckets, u64 v)
{
	hist_add(buckets, v);
}

/* The words of an interface. */
inline_ struct net_interface *interface_of(struct net_device *dev, const bool raw)
{
	u64 id = (u64)READ2(raw, dev, nd_net.net, ns.inum) << 32 | (u32)READ(raw, dev, ifindex);

	return net_bank(&net_interfaces, bpf_get_smp_processor_id(), net_slot(id));
}

inline_ struct skb_shared_info *shared_of(struct sk_buff *skb, const bool raw)
{
	return (void *)READ(raw, skb, head) + READ(raw, skb, end);
}

inline_ struct gso gso_of(struct sk_buff *skb, const bool raw)
{
	struct gso gso = {};

	bpf_core_read(&gso, sizeof(gso), &shared_of(skb, raw)->gso_size);
	return gso;
}

/* The headers that each segment of an offloaded packet has, from the link layer's on. */
inline_ u32 segment_headers(struct sk_buff *skb, u32 link, const bool raw)
{
	unsigned char *head = READ(raw, skb, head);
	u16 transport = READ(raw, skb, transport_header);
	u32 type = 0;
	u8 words = 0;

	if (raw ? BPF_CORE_READ_BITFIELD_PROBED(skb, encapsulation) : BPF_CORE_READ_BITFIELD(skb, encapsulation))
		transport = READ(raw, skb, inner_transport_header);
	u32 headers = link + (u32)(head + transport - READ(raw, skb, data));

	bpf_core_read(&type, sizeof(type), &shared_of(skb, raw)->gso_type);
	if (!(type & (SKB_GSO_TCPV4 | SKB_GSO_TCPV6)))
		return headers + UDP_HEADER;
	bpf_probe_read_kernel(&words, sizeof(words), head + transport + 12); /* the data offset of RFC 9293, 3.1 */
	return headers + (words >> 4) * 4;
}

/* Counts a packet. link is the part of its link header that its length lacks. */
inline_ int packet(struct sk_buff *skb, struct net_device *dev, u32 link, enum direction direction, const bool raw)
{
	u32 length = READ(raw, skb, len) + link, bytes = length, packets = 1;

	if (sampler_network_sizes) {
		struct net_bank *bank = cpu_bank(&net_banks, bpf_get_smp_processor_id());

		if (bank)
			histogram(bank->size[direction], length);
	}
	if (!sampler_network_traffic)
		return 0;
	struct net_interface *interface = interface_of(dev, raw);
	struct gso gso = gso_of(skb, raw);

	if (!interface)
		return 0;
	if (gso.size) {
		u32 headers = segment_headers(skb, link, raw);

		packets = gso.segs;
		/* Who made the packet outside of this kernel need not have said it. */
		if (!packets)
			packets = length > headers ? (length - headers + gso.size - 1) / gso.size : 1;
		bytes += (packets - 1) * headers;
	}
	net_add(&interface->bytes[direction], bytes);
	net_add(&interface->packets[direction], packets);
	return 0;
}

/* The link header was taken off: data begins with the network header. */
inline_ int packet_receive(struct sk_buff *skb, const bool raw)
{
	u16 mac = READ(raw, skb, mac_header);
	u32 link = mac == HEADER_UNSET ? 0 : (u32)(READ(raw, skb, data) - READ(raw, skb, head)) - mac;

	return packet(skb, READ(raw, skb, dev), link, RECEIVE, raw);
}

inline_ int packet_transmit(struct sk_buff *skb, struct net_device *dev, const bool raw)
{
	return packet(skb, dev, 0, TRANSMIT, raw);
}

inline_ int packet_sent(int rc, struct net_device *dev, const bool raw)
{
	struct net_interface *interface = interface_of(dev, raw);

	if (interface)
		net_add(rc ? &interface->busy : &interface->complete, 1);
	return 0;
}

inline_ int queue_stands(struct net_device *dev, const bool raw)
{
	struct net_interface *interface = interface_of(dev, raw);

	if (interface)
		net_add(&interface->timeout, 1);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0-only */

/* kfree_skb: a packet ends before its time. */
#pragma once

#include "packet.h"

#define CLASS_OF_(name, class) \
	if (bpf_core_enum_value_exists(enum skb_drop_reason, SKB_DROP_REASON_##name) && \
	    reason == bpf_core_enum_value(enum skb_drop_reason, SKB_DROP_REASON_##name)) \
		return DROP_##class;

static __noinline u32 search_class(u32 reason)
{
	DROP_REASONS(CLASS_OF_)
	return DROP_OTHER; /* a reason since, or of a subsystem (the upper 16 bits) */
}

/* The class of each reason, found when it is first seen, and 1 added. */
#define REASONS 256
u8 class_of_reason[REASONS];

inline_ u32 class_of(u32 reason)
{
	if (reason >= REASONS)
		return DROP_OTHER;
	u32 class = class_of_reason[reason];

	if (!class) {
		class = search_class(reason) + 1;
		class_of_reason[reason] = class;
	}
	return class - 1;
}

/*
 * Where a queue of a socket holds the packet, dev is another thing (a node of
 * a tree, dev_scratch): that has no slot, and counts as Other.
 */
inline_ int packet_dropped(struct sk_buff *skb, u32 reason, const bool raw)
{
	struct net_device *dev = READ(raw, skb, dev);
	u32 class = class_of(reason);
	struct net_interface *interface;

	if (!dev) {
		/* Sockets of other families (unix, netlink) free their messages here too. */
		if (class >= DROP_FAULTS && !READ(raw, skb, protocol))
			return 0;
		interface = net_bank(&net_interfaces, bpf_get_smp_processor_id(), 0);
	} else {
		interface = interface_of(dev, raw);
	}
	if (!interface)
		return 0;
	u32 packets = gso_of(skb, raw).segs;

	if (!packets)
		packets = 1;
	if (class < DROP_FAULTS)
		net_add(&interface->drop[class], packets);
	else if (class < DROP_CLASSES)
		net_add(&interface->discard[class - DROP_FAULTS], packets);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * What the interfaces do: packets that come and go, and why they are lost.
 * README.md has what counts, and what it costs.
 */
#include "drop.h"

#define TRAFFIC NEEDS("network_traffic|network_sizes")

SEC("tp_btf/netif_receive_skb") TRAFFIC
int on_receive(u64 *ctx)
{
	return packet_receive((void *)ctx[0], false);
}

SEC("raw_tp/netif_receive_skb") TRAFFIC
int on_receive__raw(u64 *ctx)
{
	return packet_receive((void *)ctx[0], true);
}

SEC("tp_btf/net_dev_start_xmit") TRAFFIC
int on_transmit(u64 *ctx)
{
	return packet_transmit((void *)ctx[0], (void *)ctx[1], false);
}

SEC("raw_tp/net_dev_start_xmit") TRAFFIC
int on_transmit__raw(u64 *ctx)
{
	return packet_transmit((void *)ctx[0], (void *)ctx[1], true);
}

SEC("tp_btf/net_dev_xmit") NEEDS("network_interfaces")
int on_sent(u64 *ctx)
{
	return packet_sent(ctx[1], (void *)ctx[2], false);
}

SEC("raw_tp/net_dev_xmit") NEEDS("network_interfaces")
int on_sent__raw(u64 *ctx)
{
	return packet_sent(ctx[1], (void *)ctx[2], true);
}

SEC("tp_btf/net_dev_xmit_timeout") NEEDS("network_interfaces")
int on_timeout(u64 *ctx)
{
	return queue_stands((void *)ctx[0], false);
}

SEC("raw_tp/net_dev_xmit_timeout") NEEDS("network_interfaces")
int on_timeout__raw(u64 *ctx)
{
	return queue_stands((void *)ctx[0], true);
}

/* c504e5c2f964 (5.17) gave it the reason; before, the kernel has no third argument to load. */
SEC("tp_btf/kfree_skb") NEEDS("network_drops")
int on_drop(u64 *ctx)
{
	return packet_dropped((void *)ctx[0], ctx[2], false);
}

SEC("raw_tp/kfree_skb") NEEDS("network_drops")
int on_drop__raw(u64 *ctx)
{
	return packet_dropped((void *)ctx[0], ctx[2], true);
}

char LICENSE[] SEC("license") = "GPL";

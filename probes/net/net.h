/* SPDX-License-Identifier: GPL-2.0-only */

/* The metrics of this probe. */
#pragma once

#include "cgroup.bpf.h"
#include "types.h"

SAMPLER(network_traffic);
SAMPLER(network_sizes);
SAMPLER(network_interfaces);
SAMPLER(network_drops);

/* The domain of interfaces, by namespace and index. */
SLOTS(net);

enum direction { RECEIVE, TRANSMIT, DIRECTIONS };
#define DIRECTION LABEL("direction", "receive|transmit")

/*
 * The classes of reasons to drop a packet, in the order of the labels' values:
 * first the faults, which the original counts, then what is meant to happen
 * or not known.
 */
enum drop_class {
	DROP_DEVICE, DROP_BUFFER, DROP_BACKLOG, DROP_MEMORY, DROP_QDISC, DROP_CHECKSUM, DROP_FORMAT, DROP_NEIGHBOUR,
	DROP_ROUTE, DROP_FAULTS,
	DROP_NO_SOCKET = DROP_FAULTS, DROP_NETFILTER, DROP_FILTER, DROP_ADDRESS, DROP_TCP, DROP_UNSPECIFIED, DROP_OTHER,
	DROP_CLASSES,
};

struct net_interface {
	TOUCHED;
	COUNTER(bytes, [DIRECTIONS], network_traffic, "network_bytes", "bytes",
		"bytes of packets with their link header, each segment of an offloaded packet with its headers", DIRECTION);
	COUNTER(packets, [DIRECTIONS], network_traffic, "network_packets", "packets",
		"packets, each segment of an offloaded packet", DIRECTION);
	COUNTER(complete, , network_interfaces, "network_transmit_complete", "packets",
		"packets that the driver took, an offloaded packet once");
	COUNTER(busy, , network_interfaces, "network_transmit_busy", "packets",
		"packets that the driver did not take: it was busy, or dropped them");
	COUNTER(timeout, , network_interfaces, "network_transmit_timeout", "",
		"times that the driver was told that a transmit queue stands still");
	COUNTER(drop, [DROP_FAULTS], network_drops, "network_drop", "packets", "packets dropped for a fault, by what was at fault",
		LABEL("reason", "device|socket_buffer|backlog|memory|qdisc|checksum|format|neighbour|route"));
	COUNTER(discard, [DROP_CLASSES - DROP_FAULTS], network_drops, "network_discard", "packets",
		"packets dropped on purpose, or for a reason that the kernel does not say",
		LABEL("reason", "no_socket|netfilter|filter|address|tcp|unspecified|other"));
};
SLOT_BANKS(net_interfaces, struct net_interface, net, "interface,kind");

struct net_bank {
	HISTOGRAM(size, [DIRECTIONS], network_sizes, "network_size", "bytes",
		  "bytes of packets as the kernel handles them, an offloaded packet whole", DIRECTION);
} BANK;
BANKS(net_banks, struct net_bank);

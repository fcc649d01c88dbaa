/* SPDX-License-Identifier: GPL-2.0-only */

/* The kernel's types of packets and interfaces, as far as this probe reads them. */
#pragma once

#include "kernel.bpf.h"

struct ns_common { unsigned int inum; } KERNEL;
struct net { struct ns_common ns; } KERNEL;
typedef struct { struct net *net; } KERNEL possible_net_t;
struct net_device {
	int ifindex;
	possible_net_t nd_net;
} KERNEL;

/* In some kernels most of these lie in an anonymous group, which CO-RE looks through. */
struct sk_buff {
	struct net_device *dev;
	unsigned int len;
	u8 encapsulation : 1;
	__be16 protocol;
	u16 inner_transport_header;
	u16 transport_header;
	u16 mac_header;
	unsigned int end; /* an offset from head on 64-bit machines */
	unsigned char *head, *data;
} KERNEL;

/* The two lie side by side; a packet is one of many segments where size is not 0. */
struct gso {
	u16 size;
	u16 segs;
};
struct skb_shared_info {
	unsigned short gso_size;
	unsigned int gso_type;
} KERNEL;

/* include/linux/skbuff.h. */
#define SKB_GSO_TCPV4 (1 << 0)
#define SKB_GSO_TCPV6 (1 << 4)
#define HEADER_UNSET 0xffff /* (typeof(skb->mac_header))~0U */
#define UDP_HEADER 8

/*
 * enum skb_drop_reason (include/net/dropreason-core.h), which came with
 * c504e5c2f964 (5.17). Reasons come with every release and their numbers
 * change, so each is looked up by name in the running kernel; the second word
 * is the class that it is counted in. README.md has the rule.
 */
#define DROP_REASONS(X) \
	X(DEV_HDR, DEVICE) X(DEV_READY, DEVICE) X(FULL_RING, DEVICE) X(NO_TX_TARGET, DEVICE) \
	X(SOCKET_RCVBUFF, BUFFER) X(SOCKET_BACKLOG, BUFFER) X(TCP_LISTEN_OVERFLOW, BUFFER) X(CPU_BACKLOG, BACKLOG) \
	X(NOMEM, MEMORY) X(PROTO_MEM, MEMORY) X(PFMEMALLOC, MEMORY) X(TCP_OFO_QUEUE_PRUNE, MEMORY) X(TCP_OFO_DROP, MEMORY) \
	X(SKB_UCOPY_FAULT, MEMORY) \
	X(QDISC_DROP, QDISC) X(QDISC_OVERLIMIT, QDISC) X(QDISC_CONGESTED, QDISC) X(CAKE_FLOOD, QDISC) \
	X(FQ_BAND_LIMIT, QDISC) X(FQ_HORIZON_LIMIT, QDISC) X(FQ_FLOW_LIMIT, QDISC) X(DUALPI2_STEP_DROP, QDISC) \
	X(TCP_CSUM, CHECKSUM) X(UDP_CSUM, CHECKSUM) X(IP_CSUM, CHECKSUM) X(ICMP_CSUM, CHECKSUM) X(SKB_CSUM, CHECKSUM) \
	X(PKT_TOO_SMALL, FORMAT) X(PKT_TOO_BIG, FORMAT) X(HDR_TRUNC, FORMAT) X(IP_INHDR, FORMAT) X(SKB_GSO_SEG, FORMAT) \
	X(SKB_BAD_GSO, FORMAT) X(INVALID_PROTO, FORMAT) X(IPV6_BAD_EXTHDR, FORMAT) X(DUP_FRAG, FORMAT) \
	X(FRAG_REASM_TIMEOUT, FORMAT) X(FRAG_TOO_FAR, FORMAT) X(VXLAN_INVALID_HDR, FORMAT) \
	X(NEIGH_CREATEFAIL, NEIGHBOUR) X(NEIGH_FAILED, NEIGHBOUR) X(NEIGH_QUEUEFULL, NEIGHBOUR) X(NEIGH_DEAD, NEIGHBOUR) \
	X(NEIGH_HH_FILLFAIL, NEIGHBOUR) \
	X(IP_OUTNOROUTES, ROUTE) X(IP_INNOROUTES, ROUTE) X(RECURSION_LIMIT, ROUTE) \
	X(NO_SOCKET, NO_SOCKET) \
	X(NETFILTER_DROP, NETFILTER) \
	X(SOCKET_FILTER, FILTER) X(XFRM_POLICY, FILTER) X(BPF_CGROUP_EGRESS, FILTER) X(SECURITY_HOOK, FILTER) \
	X(TC_EGRESS, FILTER) X(TC_INGRESS, FILTER) X(XDP, FILTER) X(TAP_FILTER, FILTER) X(TAP_TXFILTER, FILTER) \
	X(OTHERHOST, ADDRESS) X(IP_RPFILTER, ADDRESS) X(UNICAST_IN_L2_MULTICAST, ADDRESS) X(IP_NOPROTO, ADDRESS) \
	X(UNHANDLED_PROTO, ADDRESS) X(IPV6DISABLED, ADDRESS) X(IP_INADDRERRORS, ADDRESS) X(IP_LOCAL_SOURCE, ADDRESS) \
	X(IP_INVALID_SOURCE, ADDRESS) X(IP_LOCALNET, ADDRESS) X(IP_INVALID_DEST, ADDRESS) X(LOCAL_MAC, ADDRESS) \
	X(MAC_INVALID_SOURCE, ADDRESS) \
	X(TCP_AUTH_HDR, TCP) X(TCP_MD5NOTFOUND, TCP) X(TCP_MD5UNEXPECTED, TCP) X(TCP_MD5FAILURE, TCP) \
	X(TCP_AONOTFOUND, TCP) X(TCP_AOUNEXPECTED, TCP) X(TCP_AOKEYNOTFOUND, TCP) X(TCP_AOFAILURE, TCP) X(TCP_FLAGS, TCP) \
	X(TCP_ABORT_ON_DATA, TCP) X(TCP_ZEROWINDOW, TCP) X(TCP_OLD_DATA, TCP) X(TCP_OVERWINDOW, TCP) X(TCP_OFOMERGE, TCP) \
	X(TCP_RFC7323_PAWS, TCP) X(TCP_RFC7323_PAWS_ACK, TCP) X(TCP_RFC7323_TW_PAWS, TCP) X(TCP_RFC7323_TSECR, TCP) \
	X(TCP_OLD_SEQUENCE, TCP) X(TCP_INVALID_SEQUENCE, TCP) X(TCP_INVALID_END_SEQUENCE, TCP) \
	X(TCP_INVALID_ACK_SEQUENCE, TCP) X(TCP_RESET, TCP) X(TCP_INVALID_SYN, TCP) X(TCP_CLOSE, TCP) X(TCP_FASTOPEN, TCP) \
	X(TCP_OLD_ACK, TCP) X(TCP_TOO_OLD_ACK, TCP) X(TCP_ACK_UNSENT_DATA, TCP) X(TCP_MINTTL, TCP) \
	X(NOT_SPECIFIED, UNSPECIFIED)

#define DROP_REASON_(name, class) SKB_DROP_REASON_##name,
enum skb_drop_reason { DROP_REASONS(DROP_REASON_) };

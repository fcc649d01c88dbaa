// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"path/filepath"
	"slices"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// protocols is the sampler of what the protocols of the network namespace
// count: /proc/net/snmp, snmp6 and netstat. What the numbers mean is in
// Documentation/networking/snmp_counter.rst, RFC 1213 (ICMP), RFC 4022 (TCP),
// RFC 4113 (UDP) and RFC 4293 (IP).
const protocols = "network_protocols"

// Units of the network.
const (
	packets   = metric.Unit("packets")
	segments  = metric.Unit("segments")
	datagrams = metric.Unit("datagrams")
	messages  = metric.Unit("messages")
)

func protocol(name string, unit metric.Unit, help string, keys ...string) *metric.Desc {
	return counterOf(protocols, name, unit, help, keys...)
}

var (
	ipPackets    = protocol("ip_packets", packets, "IP packets received from interfaces, and handed down by the protocols of this host to be sent", "direction", "family")
	ipBytes      = protocol("ip_bytes", metric.Bytes, "bytes of IP packets received from and sent to interfaces, with headers", "direction", "family")
	ipDelivered  = protocol("ip_delivered", packets, "IP packets handed up to a protocol of this host", "family")
	ipForwarded  = protocol("ip_forwarded", packets, "IP packets that were routed on", "family")
	ipTransmits  = protocol("ip_transmits", packets, "IP packets passed to an interface, forwarded ones and fragments included (Linux 6.7)", "family")
	ipErrors     = protocol("ip_errors", packets, "IP packets that were dropped, by the first reason found", "direction", "family", "reason")
	ipChecksum   = protocol("ip_checksum_errors", packets, "IP packets with a wrong header checksum, which ip_errors has as header too", "family")
	ipMulticast  = protocol("ip_multicast_packets", packets, "multicast IP packets", "direction", "family")
	ipBroadcast  = protocol("ip_broadcast_packets", packets, "broadcast IP packets", "direction", "family")
	ipMultiBytes = protocol("ip_multicast_bytes", metric.Bytes, "bytes of multicast IP packets", "direction", "family")
	ipBroadBytes = protocol("ip_broadcast_bytes", metric.Bytes, "bytes of broadcast IP packets", "direction", "family")
	ipECN        = protocol("ip_ecn_packets", packets, "IP packets received, by the codepoint of explicit congestion notification (RFC 3168)", "codepoint", "family")
	ipReassembly = protocol("ip_reassembly", metric.None, "reassembly of fragmented IP packets: fragments received (requested), packets put together (ok), failures, time-outs (failures too), overlaps", "event", "family")
	ipFragments  = protocol("ip_fragmentation", metric.None, "fragmentation of IP packets to send: packets fragmented (ok), packets that could not be (failed), fragments made (created)", "event", "family")

	icmpMessages  = protocol("icmp_messages", messages, "ICMP messages, faulty ones included", "direction", "family")
	icmpErrors    = protocol("icmp_errors", messages, "ICMP messages received with a fault or not sent for lack of memory or a route", "direction", "family")
	icmpChecksum  = protocol("icmp_checksum_errors", messages, "ICMP messages with a wrong checksum, which icmp_errors has too", "family")
	icmpTypes     = protocol("icmp_message_types", messages, "ICMP messages by type", "direction", "family", "type")
	icmpRateLimit = protocol("icmp_rate_limited", messages, "ICMP messages not sent for the limit of the host or of one destination (Linux 6.1)", "family", "scope")

	udpDatagrams   = protocol("udp_datagrams", datagrams, "UDP datagrams delivered to sockets, and sent", "direction", "family")
	udpErrors      = protocol("udp_errors", datagrams, "UDP datagrams that had a socket and were not delivered to it, whatever the reason", "family")
	udpNoPort      = protocol("udp_no_port", datagrams, "UDP datagrams to a port that no socket has", "family")
	udpBuffer      = protocol("udp_buffer_errors", datagrams, "UDP datagrams dropped for a full socket buffer; on receive, udp_errors has them too", "direction", "family")
	udpChecksum    = protocol("udp_checksum_errors", datagrams, "UDP datagrams with a wrong checksum, which udp_errors has too", "family")
	udpMemory      = protocol("udp_memory_errors", datagrams, "UDP datagrams dropped for the limit of net.ipv4.udp_mem, which udp_errors has too (Linux 5.11)", "family")
	udpMulticast   = protocol("udp_ignored_multicast", datagrams, "multicast UDP datagrams that no socket wanted", "family")
	udpliteTraffic = protocol("udplite_datagrams", datagrams, "UDP-Lite datagrams delivered to sockets, and sent", "direction", "family")
	udpliteErrors  = protocol("udplite_errors", datagrams, "UDP-Lite datagrams that had a socket and were not delivered to it", "family")
)

// ipFields are numbers that both families have, under these keys after "Ip "
// or "IpExt " in snmp and netstat, and after "Ip6" in snmp6. The values are
// those of the labels but family, which is always the second.
var ipFields = []field{
	{at: "InReceives", desc: ipPackets, values: []string{"receive"}},
	{at: "OutRequests", desc: ipPackets, values: []string{"transmit"}},
	{at: "InOctets", desc: ipBytes, values: []string{"receive"}},
	{at: "OutOctets", desc: ipBytes, values: []string{"transmit"}},
	{at: "InDelivers", desc: ipDelivered},
	{at: "ForwDatagrams", desc: ipForwarded},    // snmp
	{at: "OutForwDatagrams", desc: ipForwarded}, // snmp6
	{at: "OutTransmits", desc: ipTransmits},
	{at: "InHdrErrors", desc: ipErrors, values: []string{"receive", "header"}},
	{at: "InAddrErrors", desc: ipErrors, values: []string{"receive", "address"}},
	{at: "InUnknownProtos", desc: ipErrors, values: []string{"receive", "unknown_protocol"}},
	{at: "InDiscards", desc: ipErrors, values: []string{"receive", "discarded"}},
	{at: "InNoRoutes", desc: ipErrors, values: []string{"receive", "no_route"}},
	{at: "InTruncatedPkts", desc: ipErrors, values: []string{"receive", "truncated"}},
	{at: "InTooBigErrors", desc: ipErrors, values: []string{"receive", "too_big"}},
	{at: "OutDiscards", desc: ipErrors, values: []string{"transmit", "discarded"}},
	{at: "OutNoRoutes", desc: ipErrors, values: []string{"transmit", "no_route"}},
	{at: "InCsumErrors", desc: ipChecksum},
	{at: "InMcastPkts", desc: ipMulticast, values: []string{"receive"}},
	{at: "OutMcastPkts", desc: ipMulticast, values: []string{"transmit"}},
	{at: "InBcastPkts", desc: ipBroadcast, values: []string{"receive"}},
	{at: "OutBcastPkts", desc: ipBroadcast, values: []string{"transmit"}},
	{at: "InMcastOctets", desc: ipMultiBytes, values: []string{"receive"}},
	{at: "OutMcastOctets", desc: ipMultiBytes, values: []string{"transmit"}},
	{at: "InBcastOctets", desc: ipBroadBytes, values: []string{"receive"}},
	{at: "OutBcastOctets", desc: ipBroadBytes, values: []string{"transmit"}},
	{at: "InNoECTPkts", desc: ipECN, values: []string{"not_ect"}},
	{at: "InECT0Pkts", desc: ipECN, values: []string{"ect0"}},
	{at: "InECT1Pkts", desc: ipECN, values: []string{"ect1"}},
	{at: "InCEPkts", desc: ipECN, values: []string{"ce"}},
	{at: "ReasmReqds", desc: ipReassembly, values: []string{"requested"}},
	{at: "ReasmOKs", desc: ipReassembly, values: []string{"ok"}},
	{at: "ReasmFails", desc: ipReassembly, values: []string{"failed"}},
	{at: "ReasmTimeout", desc: ipReassembly, values: []string{"timeout"}},
	{at: "ReasmOverlaps", desc: ipReassembly, values: []string{"overlap"}},
	{at: "FragOKs", desc: ipFragments, values: []string{"ok"}},
	{at: "FragFails", desc: ipFragments, values: []string{"failed"}},
	{at: "FragCreates", desc: ipFragments, values: []string{"created"}},
}

// icmpFields come after "Icmp " in snmp and "Icmp6" in snmp6.
var icmpFields = append([]field{
	{at: "InMsgs", desc: icmpMessages, values: []string{"receive"}},
	{at: "OutMsgs", desc: icmpMessages, values: []string{"transmit"}},
	{at: "InErrors", desc: icmpErrors, values: []string{"receive"}},
	{at: "OutErrors", desc: icmpErrors, values: []string{"transmit"}},
	{at: "InCsumErrors", desc: icmpChecksum},
	{at: "OutRateLimitGlobal", desc: icmpRateLimit, values: []string{"", "global"}},
	{at: "OutRateLimitHost", desc: icmpRateLimit, values: []string{"", "destination"}},
}, icmpTypeFields()...)

// icmpTypeFields are the types of ICMP and ICMPv6, received and sent.
func icmpTypeFields() (fields []field) {
	for _, t := range []struct{ key, name string }{
		{"DestUnreachs", "destination_unreachable"}, {"TimeExcds", "time_exceeded"},
		{"ParmProbs", "parameter_problem"}, {"ParmProblems", "parameter_problem"}, // snmp, snmp6
		{"SrcQuenchs", "source_quench"}, {"Redirects", "redirect"},
		{"Echos", "echo"}, {"EchoReps", "echo_reply"}, {"EchoReplies", "echo_reply"}, // snmp, snmp6
		{"Timestamps", "timestamp"}, {"TimestampReps", "timestamp_reply"},
		{"AddrMasks", "address_mask"}, {"AddrMaskReps", "address_mask_reply"}, {"PktTooBigs", "packet_too_big"},
		{"GroupMembQueries", "group_query"}, {"GroupMembResponses", "group_report"}, {"GroupMembReductions", "group_done"},
		{"RouterSolicits", "router_solicitation"}, {"RouterAdvertisements", "router_advertisement"},
		{"NeighborSolicits", "neighbor_solicitation"}, {"NeighborAdvertisements", "neighbor_advertisement"},
		{"MLDv2Reports", "group_report_v2"},
	} {
		fields = append(fields,
			field{at: "In" + t.key, desc: icmpTypes, values: []string{"receive", t.name}},
			field{at: "Out" + t.key, desc: icmpTypes, values: []string{"transmit", t.name}})
	}
	return fields
}

// udpFields come after "Udp " in snmp and "Udp6" in snmp6.
var udpFields = []field{
	{at: "InDatagrams", desc: udpDatagrams, values: []string{"receive"}},
	{at: "OutDatagrams", desc: udpDatagrams, values: []string{"transmit"}},
	{at: "InErrors", desc: udpErrors},
	{at: "NoPorts", desc: udpNoPort},
	{at: "RcvbufErrors", desc: udpBuffer, values: []string{"receive"}},
	{at: "SndbufErrors", desc: udpBuffer, values: []string{"transmit"}},
	{at: "InCsumErrors", desc: udpChecksum},
	{at: "MemErrors", desc: udpMemory},
	{at: "IgnoredMulti", desc: udpMulticast},
}

// udpliteFields come after "UdpLite " in snmp and "UdpLite6" in snmp6.
var udpliteFields = []field{
	{at: "InDatagrams", desc: udpliteTraffic, values: []string{"receive"}},
	{at: "OutDatagrams", desc: udpliteTraffic, values: []string{"transmit"}},
	{at: "InErrors", desc: udpliteErrors},
}

// ofFamily are fields under the names of one family's file. The label family
// goes where the order of the keys has it.
func ofFamily(family, prefix string, fields []field) []field {
	fields = slices.Clone(fields)
	for i := range fields {
		f := &fields[i]
		f.at = prefix + f.at
		at := slices.Index(f.desc.Keys, "family")
		values := slices.DeleteFunc(slices.Clone(f.values), func(v string) bool { return v == "" })
		f.values = slices.Insert(values, at, family)
	}
	return fields
}

var (
	snmpTable = slices.Concat(ofFamily("ipv4", "Ip ", ipFields), ofFamily("ipv4", "Icmp ", icmpFields),
		ofFamily("ipv4", "Udp ", udpFields), ofFamily("ipv4", "UdpLite ", udpliteFields), tcpFields)
	snmp6Table = slices.Concat(ofFamily("ipv6", "Ip6", ipFields), ofFamily("ipv6", "Icmp6", icmpFields),
		ofFamily("ipv6", "Udp6", udpFields), ofFamily("ipv6", "UdpLite6", udpliteFields))
	netstatTable = slices.Concat(ofFamily("ipv4", "IpExt ", ipFields), tcpExtFields, mptcpFields)
)

// openProtocols opens the files in dir, which is /proc/net or that of a task.
func openProtocols(dir string) (*fieldSource, error) {
	return openFields(protocols, "a kernel with networking (CONFIG_INET)",
		newFieldFile(filepath.Join(dir, "snmp"), splitPairs, snmpTable),
		newFieldFile(filepath.Join(dir, "snmp6"), splitNamed, snmp6Table),
		newFieldFile(filepath.Join(dir, "netstat"), splitPairs, netstatTable))
}

func protocolsSampler() source.Sampler {
	return source.Sampler{Name: protocols, Reads: netDir + "/{snmp,snmp6,netstat}", Needs: "CONFIG_INET; snmp6 CONFIG_IPV6",
		Descs: fieldDescs(snmpTable, snmp6Table, netstatTable),
		Open:  func() (source.Source, error) { return openProtocols(netDir) }}
}

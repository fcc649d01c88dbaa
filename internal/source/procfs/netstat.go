// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"slices"

	"rezolus/internal/metric"
)

func tcp(name string, unit metric.Unit, help string, keys ...string) *metric.Desc {
	return protocol("tcp_"+name, unit, help, keys...)
}

var (
	tcpSegments = tcp("segments", segments, "TCP segments received, faulty ones included, and sent, those with only retransmitted data not included", "direction")
	tcpOpens    = tcp("opens", metric.None, "TCP connections opened: active is connect, passive is accept", "kind")
)

// tcpFields is the group Tcp of /proc/net/snmp. RtoAlgorithm, RtoMin, RtoMax and
// MaxConn are constants of the kernel.
var tcpFields = []field{
	{at: "Tcp InSegs", desc: tcpSegments, values: []string{"receive"}},
	{at: "Tcp OutSegs", desc: tcpSegments, values: []string{"transmit"}},
	{at: "Tcp RetransSegs", desc: tcp("retransmits", segments, "TCP segments sent again")},
	{at: "Tcp InErrs", desc: tcp("errors", segments, "TCP segments received with a fault")},
	{at: "Tcp InCsumErrors", desc: tcp("checksum_errors", segments, "TCP segments with a wrong checksum, which tcp_errors has too")},
	{at: "Tcp OutRsts", desc: tcp("resets_sent", segments, "TCP segments sent with RST")},
	{at: "Tcp ActiveOpens", desc: tcpOpens, values: []string{"active"}},
	{at: "Tcp PassiveOpens", desc: tcpOpens, values: []string{"passive"}},
	{at: "Tcp AttemptFails", desc: tcp("attempt_failures", metric.None, "TCP connections that ended before they were established, refused ones among them")},
	{at: "Tcp EstabResets", desc: tcp("established_resets", metric.None, "TCP connections that were established and ended at once, by a reset of either side")},
	{at: "Tcp CurrEstab", desc: gaugeOf(protocols, "tcp_established", metric.None, "TCP connections in the states ESTABLISHED and CLOSE_WAIT")},
}

var (
	tcpSyncookies = tcp("syncookies", metric.None, "SYN cookies sent, come back valid (received) and invalid (failed)", "kind")
	tcpPruned     = tcp("pruned", segments, "TCP segments thrown out of a queue because the socket was out of memory", "queue")
	tcpDelayed    = tcp("delayed_acks", metric.None, "delayed ACKs: sent, put off because the socket was in use (locked), waited for in vain so that the peer sent again (lost)", "event")
	tcpAborts     = tcp("aborts", metric.None, "TCP connections ended at once, and RSTs that could not be sent (failed), by the reason", "reason")
	tcpTimeWait   = tcp("time_wait_ends", metric.None, "sockets that left TIME_WAIT: after their time (expired), for a new connection (recycled), after a shortened time (killed)", "how")
	tcpPaws       = tcp("paws_rejects", segments, "TCP segments rejected for an old timestamp (RFC 7323)", "where")
	tcpPredicted  = tcp("header_predictions", segments, "TCP segments received on the fast path: data, and acknowledgements alone", "kind")
	tcpRecoveries = tcp("recoveries", metric.None, "times that loss recovery began, by how the loss was seen", "kind")
	tcpRecFailed  = tcp("recovery_failures", metric.None, "times that a timer ended a loss recovery, by the state", "kind")
	tcpReorders   = tcp("reorderings", metric.None, "times that reordering was found, by what told it", "by")
	tcpUndos      = tcp("undos", metric.None, "times that the congestion window was set back because a loss was none, by how that was found", "by")
	tcpProbes     = tcp("loss_probes", metric.None, "tail loss probes sent, and losses that they repaired (RFC 8985)", "event")
	tcpDsacks     = tcp("dsacks", metric.None, "duplicate SACKs, by what arrived twice: data already acknowledged (old) or data out of order", "direction", "of")
	tcpDiscards   = tcp("discards", segments, "TCP segments dropped by the reason", "reason")
	tcpSynFull    = tcp("syn_queue_full", metric.None, "SYNs that found the queue of half-open connections full, by what was done", "action")
	tcpCoalesced  = tcp("coalesced", segments, "TCP segments merged with the one before, by the queue", "queue")
	tcpOutOfOrder = tcp("out_of_order", segments, "TCP segments received out of order: queued, dropped for want of room, or overlapping what was queued", "event")
	tcpFastOpen   = tcp("fast_open", metric.None, "TCP fast open (RFC 7413)", "event")
	tcpZeroWindow = tcp("zero_window_advertisements", metric.None, "windows announced: going to zero, coming from zero, and wanted to be zero but not announced so", "event")
	tcpHystart    = tcp("hystart_exits", metric.None, "times that HyStart of CUBIC ended slow start, by what it saw", "signal")
	tcpSkipped    = tcp("acks_skipped", metric.None, "ACKs not sent for the limit of their rate (net.ipv4.tcp_invalid_ratelimit)", "where")
	tcpMTU        = tcp("mtu_probes", metric.None, "probes of the path MTU (RFC 4821)", "result")
	tcpRehashes   = tcp("rehashes", metric.None, "times that a connection took another path by a new hash, by the reason", "reason")
	tcpMD5        = tcp("md5_failures", segments, "TCP segments with a missing, unexpected or wrong MD5 signature (RFC 2385)", "reason")
	tcpICMPs      = tcp("icmps_dropped", messages, "ICMP messages about a TCP connection that were dropped", "reason")
)

// one is a field of TcpExt that is a metric of its own.
func one(at, name string, unit metric.Unit, help string) field {
	return field{at: "TcpExt " + at, desc: tcp(name, unit, help)}
}

// each are fields of TcpExt that are the values of one label: key, value, key,
// value.
func each(desc *metric.Desc, keysAndValues ...string) (fields []field) {
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		fields = append(fields, field{at: "TcpExt " + keysAndValues[i], desc: desc, values: keysAndValues[i+1 : i+2]})
	}
	return fields
}

// tcpExtFields is the group TcpExt of /proc/net/netstat (net/ipv4/proc.c,
// snmp4_net_list). Left out is what only a developer of the stack reads.
var tcpExtFields = slices.Concat(
	each(tcpSyncookies, "SyncookiesSent", "sent", "SyncookiesRecv", "received", "SyncookiesFailed", "failed"),
	[]field{
		one("ListenOverflows", "listen_overflows", metric.None, "connections not taken up because the accept queue was full"),
		one("ListenDrops", "listen_drops", metric.None, "SYNs and last ACKs that a listening socket dropped, whatever the reason; tcp_listen_overflows are among them"),
		one("EmbryonicRsts", "embryonic_resets", metric.None, "RSTs received by half-open connections"),
		one("PruneCalled", "prune_calls", metric.None, "times that a socket over its receive buffer had to make room"),
		one("TCPRcvCollapsed", "collapsed", segments, "TCP segments merged to save memory"),
		one("TCPPureAcks", "pure_acks", segments, "acknowledgements without data received on the slow path"),
		one("TCPSACKReneging", "sack_reneging", metric.None, "times that a peer took back what it had acknowledged by SACK"),
		one("TCPFastRetrans", "fast_retransmits", segments, "TCP segments sent again by fast retransmit"),
		one("TCPSlowStartRetrans", "slow_start_retransmits", segments, "TCP segments sent again in slow start after a time-out"),
		one("TCPLostRetransmit", "lost_retransmits", segments, "retransmitted TCP segments that were lost again"),
		one("TCPSynRetrans", "syn_retransmits", segments, "SYNs and SYN-ACKs sent again"),
		one("TCPRetransFail", "retransmit_failures", segments, "TCP segments that could not be sent again"),
		one("TCPTimeouts", "timeouts", metric.None, "times that the retransmission timer ran out"),
		one("TCPSpuriousRTOs", "spurious_timeouts", metric.None, "time-outs that F-RTO found to be needless (RFC 5682)"),
		one("TCPSpuriousRtxHostQueues", "retransmits_still_queued", segments, "retransmissions put off because the segment was still in a queue of this host"),
		one("TCPMemoryPressures", "memory_pressures", metric.None, "times that TCP came under memory pressure (net.ipv4.tcp_mem)"),
		{at: "TcpExt TCPMemoryPressuresChrono", scale: 1_000_000,
			desc: tcp("memory_pressure_time", metric.Nanoseconds, "time that TCP was under memory pressure, in steps of 1 ms")},
		one("TCPChallengeACK", "challenge_acks", segments, "challenge ACKs sent (RFC 5961)"),
		one("TCPSYNChallenge", "syn_challenges", segments, "challenge ACKs sent for a SYN in an open connection"),
		one("TCPAutoCorking", "auto_corked", metric.None, "small writes held back to be merged"),
		one("TCPOrigDataSent", "data_segments", segments, "TCP segments with data sent for the first time"),
		one("TCPDelivered", "delivered", segments, "TCP segments with data that were acknowledged"),
		one("TCPDeliveredCE", "delivered_ce", segments, "TCP segments with data that were acknowledged as having met congestion (ECN)"),
		one("TCPAckCompressed", "acks_compressed", metric.None, "ACKs saved by compressing SACKs"),
		one("TCPWinProbe", "window_probes", segments, "probes of a closed window sent"),
		one("TCPKeepAlive", "keepalives", segments, "keep-alive probes sent"),
		one("TCPWqueueTooBig", "write_queue_too_big", metric.None, "splits of a segment refused because the write queue was too big"),
		one("TCPTimeWaitOverflow", "time_wait_overflows", metric.None, "connections closed without TIME_WAIT because there are too many (net.ipv4.tcp_max_tw_buckets)"),
		{at: "TcpExt IPReversePathFilter", desc: protocol("ip_reverse_path_filtered", packets, "IP packets dropped by the reverse-path filter (net.ipv4.conf.*.rp_filter)")},
		{at: "TcpExt BusyPollRxPackets", desc: protocol("busy_poll_packets", packets, "packets received by busy polling")},
	},
	each(tcpPruned, "RcvPruned", "receive", "OfoPruned", "out_of_order"),
	each(tcpDelayed, "DelayedACKs", "sent", "DelayedACKLocked", "locked", "DelayedACKLost", "lost"),
	each(tcpAborts, "TCPAbortOnData", "data", "TCPAbortOnClose", "close", "TCPAbortOnMemory", "memory",
		"TCPAbortOnTimeout", "timeout", "TCPAbortOnLinger", "linger", "TCPAbortFailed", "failed"),
	each(tcpTimeWait, "TW", "expired", "TWRecycled", "recycled", "TWKilled", "killed"),
	each(tcpPaws, "PAWSActive", "active", "PAWSEstab", "established", "PAWSOldAck", "old_ack", "PAWSTimewait", "time_wait"),
	each(tcpPredicted, "TCPHPHits", "data", "TCPHPAcks", "ack"),
	each(tcpRecoveries, "TCPRenoRecovery", "reno", "TCPSackRecovery", "sack"),
	each(tcpRecFailed, "TCPRenoFailures", "reno", "TCPSackFailures", "sack", "TCPLossFailures", "loss"),
	each(tcpReorders, "TCPRenoReorder", "reno", "TCPSACKReorder", "sack", "TCPTSReorder", "timestamp"),
	each(tcpUndos, "TCPFullUndo", "full", "TCPPartialUndo", "partial", "TCPDSACKUndo", "dsack", "TCPLossUndo", "loss"),
	each(tcpProbes, "TCPLossProbes", "sent", "TCPLossProbeRecovery", "recovered"),
	[]field{
		{at: "TcpExt TCPDSACKOldSent", desc: tcpDsacks, values: []string{"transmit", "old"}},
		{at: "TcpExt TCPDSACKOfoSent", desc: tcpDsacks, values: []string{"transmit", "out_of_order"}},
		{at: "TcpExt TCPDSACKRecv", desc: tcpDsacks, values: []string{"receive", "old"}},
		{at: "TcpExt TCPDSACKOfoRecv", desc: tcpDsacks, values: []string{"receive", "out_of_order"}},
	},
	each(tcpDiscards, "TCPBacklogDrop", "backlog", "PFMemallocDrop", "memory_reserve", "TCPMinTTLDrop", "ttl",
		"TCPDeferAcceptDrop", "defer_accept",
		"TCPZeroWindowDrop", "zero_window", "TCPRcvQDrop", "receive_queue"),
	each(tcpSynFull, "TCPReqQFullDoCookies", "cookie", "TCPReqQFullDrop", "drop"),
	each(tcpCoalesced, "TCPRcvCoalesce", "receive", "TCPBacklogCoalesce", "backlog"),
	each(tcpOutOfOrder, "TCPOFOQueue", "queued", "TCPOFODrop", "dropped", "TCPOFOMerge", "merged"),
	each(tcpFastOpen, "TCPFastOpenActive", "active", "TCPFastOpenActiveFail", "active_failed",
		"TCPFastOpenPassive", "passive", "TCPFastOpenPassiveFail", "passive_failed",
		"TCPFastOpenListenOverflow", "listen_overflow", "TCPFastOpenCookieReqd", "cookie_requested",
		"TCPFastOpenBlackhole", "black_hole"),
	each(tcpZeroWindow, "TCPToZeroWindowAdv", "to_zero", "TCPFromZeroWindowAdv", "from_zero", "TCPWantZeroWindowAdv", "wanted"),
	each(tcpHystart, "TCPHystartTrainDetect", "ack_train", "TCPHystartDelayDetect", "delay"),
	each(tcpSkipped, "TCPACKSkippedSynRecv", "syn_recv", "TCPACKSkippedPAWS", "paws", "TCPACKSkippedSeq", "sequence",
		"TCPACKSkippedFinWait2", "fin_wait2", "TCPACKSkippedTimeWait", "time_wait", "TCPACKSkippedChallenge", "challenge"),
	each(tcpMTU, "TCPMTUPFail", "failed", "TCPMTUPSuccess", "succeeded"),
	each(tcpRehashes, "TcpTimeoutRehash", "timeout", "TcpDuplicateDataRehash", "duplicate_data", "TCPPLBRehash", "plb"),
	each(tcpMD5, "TCPMD5NotFound", "missing", "TCPMD5Unexpected", "unexpected", "TCPMD5Failure", "wrong"),
	each(tcpICMPs, "OutOfWindowIcmps", "out_of_window", "LockDroppedIcmps", "locked"),
)

func mptcp(at, name, help string) field {
	return field{at: "MPTcpExt " + at, desc: protocol("mptcp_"+name, metric.None, help)}
}

var (
	mptcpHandshakes = protocol("mptcp_handshakes", metric.None, "SYNs with MP_CAPABLE that opened a Multipath TCP connection", "direction")
	mptcpFallbacks  = protocol("mptcp_fallbacks", metric.None, "connections that fell back to plain TCP in the handshake, by the side that did", "side")
	mptcpJoins      = protocol("mptcp_joins", metric.None, "SYNs with MP_JOIN that add a subflow to a connection", "direction")
)

// mptcpFields is the group MPTcpExt of /proc/net/netstat (net/mptcp/mib.c).
var mptcpFields = []field{
	{at: "MPTcpExt MPCapableSYNRX", desc: mptcpHandshakes, values: []string{"receive"}},
	{at: "MPTcpExt MPCapableSYNTX", desc: mptcpHandshakes, values: []string{"transmit"}},
	{at: "MPTcpExt MPCapableFallbackACK", desc: mptcpFallbacks, values: []string{"server"}},
	{at: "MPTcpExt MPCapableFallbackSYNACK", desc: mptcpFallbacks, values: []string{"client"}},
	{at: "MPTcpExt MPJoinSynRx", desc: mptcpJoins, values: []string{"receive"}},
	{at: "MPTcpExt MPJoinSynTx", desc: mptcpJoins, values: []string{"transmit"}},
	mptcp("MPTCPRetrans", "retransmits", "Multipath TCP segments sent again on another subflow"),
	mptcp("DSSCorruptionReset", "resets", "subflows reset because a middlebox changed the data"),
	mptcp("DataCsumErr", "checksum_errors", "Multipath TCP data with a wrong checksum"),
	mptcp("RmSubflow", "subflows_removed", "subflows removed"),
	mptcp("SubflowStale", "subflows_stale", "subflows put aside as stale"),
	{at: "MPTcpExt MPCurrEstab", desc: gaugeOf(protocols, "mptcp_established", metric.None, "Multipath TCP connections that are established (Linux 6.8)")},
}

// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"os"
	"path/filepath"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// sockets is the sampler of how many sockets there are: /proc/net/sockstat and
// sockstat6 (net/ipv4/proc.c, sockstat_seq_show).
const sockets = "network_sockets"

var (
	socketInUse  = gaugeOf(sockets, "socket_in_use", metric.None, "sockets of the network namespace that are bound or connected, without those in TIME_WAIT", "family", "protocol")
	socketMemory = gaugeOf(sockets, "socket_memory", metric.Bytes, "memory of the socket buffers of all network namespaces", "protocol")
	ipQueues     = gaugeOf(sockets, "ip_reassembly_queues", metric.None, "IP packets of which some fragments have arrived", "family")
	ipQueueBytes = gaugeOf(sockets, "ip_reassembly_memory", metric.Bytes, "memory of fragments that wait for others", "family")
)

var (
	sockstatTable = []field{
		{at: "sockets used", desc: gaugeOf(sockets, "socket_count", metric.None, "sockets of all kinds of the network namespace that a process has open")},
		{at: "TCP inuse", desc: socketInUse, values: []string{"ipv4", "tcp"}},
		{at: "UDP inuse", desc: socketInUse, values: []string{"ipv4", "udp"}},
		{at: "UDPLITE inuse", desc: socketInUse, values: []string{"ipv4", "udplite"}},
		{at: "RAW inuse", desc: socketInUse, values: []string{"ipv4", "raw"}},
		{at: "TCP orphan", desc: gaugeOf(sockets, "tcp_orphans", metric.None, "TCP connections of all network namespaces that no process has open any more")},
		{at: "TCP tw", desc: gaugeOf(sockets, "tcp_time_wait", metric.None, "TCP connections of the network namespace in TIME_WAIT")},
		{at: "TCP alloc", desc: gaugeOf(sockets, "tcp_allocated", metric.None, "TCP sockets of all network namespaces, unbound ones included")},
		{at: "TCP mem", desc: socketMemory, values: []string{"tcp"}, scale: uint64(os.Getpagesize())},
		{at: "UDP mem", desc: socketMemory, values: []string{"udp"}, scale: uint64(os.Getpagesize())},
		{at: "FRAG inuse", desc: ipQueues, values: []string{"ipv4"}},
		{at: "FRAG memory", desc: ipQueueBytes, values: []string{"ipv4"}},
	}
	sockstat6Table = []field{
		{at: "TCP6 inuse", desc: socketInUse, values: []string{"ipv6", "tcp"}},
		{at: "UDP6 inuse", desc: socketInUse, values: []string{"ipv6", "udp"}},
		{at: "UDPLITE6 inuse", desc: socketInUse, values: []string{"ipv6", "udplite"}},
		{at: "RAW6 inuse", desc: socketInUse, values: []string{"ipv6", "raw"}},
		{at: "FRAG6 inuse", desc: ipQueues, values: []string{"ipv6"}},
		{at: "FRAG6 memory", desc: ipQueueBytes, values: []string{"ipv6"}},
	}
)

// openSockets opens the files in dir, which is /proc/net or that of a task.
func openSockets(dir string) (*fieldSource, error) {
	return openFields(sockets, "a kernel with networking (CONFIG_INET)",
		newFieldFile(filepath.Join(dir, "sockstat"), splitLists, sockstatTable),
		newFieldFile(filepath.Join(dir, "sockstat6"), splitLists, sockstat6Table))
}

func socketsSampler() source.Sampler {
	return source.Sampler{Name: sockets, Reads: netDir + "/{sockstat,sockstat6}", Needs: "CONFIG_INET; sockstat6 CONFIG_IPV6",
		Descs: fieldDescs(sockstatTable, sockstat6Table),
		Open:  func() (source.Source, error) { return openSockets(netDir) }}
}

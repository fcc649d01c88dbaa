// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSocketsAsWritten(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/sockstat", "sockets: used 15\nTCP: inuse 1 orphan 2 tw 3 alloc 4 mem 5\nUDP: inuse 6 mem 7\nUDPLITE: inuse 8\nRAW: inuse 9\nFRAG: inuse 10 memory 11\n")
	write(t, dir+"/sockstat6", "TCP6: inuse 12\nUDP6: inuse 13\nUDPLITE6: inuse 14\nRAW6: inuse 15\nFRAG6: inuse 16 memory 17\n")
	page := uint64(os.Getpagesize())
	want := map[string]uint64{"socket_count": 15, "socket_in_use ipv4 tcp": 1, "tcp_orphans": 2, "tcp_time_wait": 3, "tcp_allocated": 4,
		"socket_memory tcp": 5 * page, "socket_in_use ipv4 udp": 6, "socket_memory udp": 7 * page, "socket_in_use ipv4 udplite": 8,
		"socket_in_use ipv4 raw": 9, "ip_reassembly_queues ipv4": 10, "ip_reassembly_memory ipv4": 11, "socket_in_use ipv6 tcp": 12,
		"socket_in_use ipv6 udp": 13, "socket_in_use ipv6 udplite": 14, "socket_in_use ipv6 raw": 15, "ip_reassembly_queues ipv6": 16,
		"ip_reassembly_memory ipv6": 17}
	if got := says(t, opened[*fieldSource](t)(openSockets(dir))); !equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

// TestSocketsAreCounted opens 7 UDP sockets, 5 that listen, a connection, one
// that ends in TIME_WAIT, and leaves half a packet waiting for its end.
func TestSocketsAreCounted(t *testing.T) {
	newNamespace(t)
	write(t, "/proc/sys/net/ipv6/conf/lo/disable_ipv6", "0")
	s := opened[*fieldSource](t)(openSockets(threadNet))
	before := says(t, s)
	for range 7 {
		udp(t, unix.AF_INET)
	}
	for range 3 {
		udp(t, unix.AF_INET6)
	}
	var address unix.Sockaddr
	var server int
	for range 5 {
		server, address = listener(t, 10)
	}
	if _, err := connected(t, address); err != nil {
		t.Fatal(err)
	}
	accepted, _, err := unix.Accept(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(accepted) })
	expect(t, grown(before, says(t, s)), map[string]int64{"socket_in_use ipv4 udp": 7, "socket_in_use ipv6 udp": 3,
		"socket_in_use ipv4 tcp": 7, "tcp_time_wait": 0, "socket_count": 7 + 3 + 7})

	client, err := connected(t, address)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := unix.Accept(server)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(client)
	unix.Close(other)
	expect(t, grown(before, says(t, s)), map[string]int64{"socket_in_use ipv4 tcp": 7, "tcp_time_wait": 1})

	sendFragment(t)
	got := says(t, s)
	expect(t, got, map[string]int64{"ip_reassembly_queues ipv4": 1})
	if got["ip_reassembly_memory ipv4"] == 0 {
		t.Error("a fragment takes no memory")
	}
	allocates(t, s)
}

// sendFragment sends the first 1,480 bytes of a datagram whose rest never comes.
func sendFragment(t *testing.T) {
	t.Helper()
	fd := socket(t, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	packet := make([]byte, 1500)
	const moreFragments = 0x20
	copy(packet, []byte{0x45, 0, 0, 0, 0x12, 0x34, moreFragments, 0, 64, unix.IPPROTO_UDP, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1})
	if err := unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkSockets(b *testing.B) {
	benchmark(b, opened[*fieldSource](b)(openSockets(netDir)))
}

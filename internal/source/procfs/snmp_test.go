// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
)

func TestProtocolsAsWritten(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/snmp", "Ip: Forwarding InReceives\nIp: 2 11\nTcp: RtoMin MaxConn CurrEstab RetransSegs\nTcp: 200 -1 3 7\nUdp: InDatagrams New\nUdp: 5 1\n")
	write(t, dir+"/snmp6", "Ip6InReceives                   \t13\nIcmp6OutType135\t9\nUdp6InDatagrams \t17\n")
	write(t, dir+"/netstat", "TcpExt: TW TCPMemoryPressuresChrono\nTcpExt: 19 23\nMPTcpExt: MPCurrEstab\nMPTcpExt: 2\n")
	s := opened[*fieldSource](t)(openProtocols(dir))
	want := map[string]uint64{"ip_packets receive ipv4": 11, "tcp_established": 3, "tcp_retransmits": 7, "udp_datagrams receive ipv4": 5,
		"ip_packets receive ipv6": 13, "udp_datagrams receive ipv6": 17, "tcp_time_wait_ends expired": 19,
		"tcp_memory_pressure_time": 23_000_000, "mptcp_established": 2}
	if got := says(t, s); !equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	schema := s.schema
	if says(t, s); s.schema != schema {
		t.Error("another schema for the same fields")
	}
	// A module that is loaded brings a group.
	write(t, dir+"/snmp", "Tcp: RetransSegs\nTcp: 8\nUdpLite: InErrors\nUdpLite: 4\n")
	got := says(t, s)
	expect(t, got, map[string]int64{"tcp_retransmits": 8, "udplite_errors ipv4": 4, "ip_packets receive ipv4": -1, "udp_datagrams receive ipv6": 17})
}

func equal(a, b map[string]uint64) bool {
	for key, value := range a {
		if other, ok := b[key]; !ok || other != value {
			return false
		}
	}
	return len(a) == len(b)
}

func TestProtocolsWithoutIPv6(t *testing.T) {
	dir := t.TempDir()
	if _, err := openProtocols(dir); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no files: %v", err)
	}
	write(t, dir+"/netstat", "TcpExt: TW\nTcpExt: 1\n")
	if got := says(t, opened[*fieldSource](t)(openProtocols(dir))); len(got) != 1 {
		t.Errorf("read %v", got)
	}
}

func TestOtherFormsOfProtocolsAreErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/snmp", "")
	s := opened[*fieldSource](t)(openProtocols(dir))
	for _, text := range []string{"Tcp: A B\nTcp: 1\n", "Tcp: A\nTcp: 1 2\n", "Tcp: A\nUdp: 1\n", "Tcp: A\n", "Tcp A\nTcp 1\n",
		"Tcp: A\nTcp: x\n", "Tcp: A\nTcp: 1x\n", "Tcp: RetransSegs RetransSegs\nTcp: 1 2\n"} {
		write(t, dir+"/snmp", text)
		if err := s.Read(&metric.Frame{}); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	for _, text := range []string{"a\n", "a b\n", "a 1 2\n", "\n"} {
		if _, err := splitNamed([]byte(text), nil); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	for _, text := range []string{"a\n", "a: b\n", "a: b c\n"} {
		if _, err := splitLists([]byte(text), nil); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestTheTablesAreOfThisKernel finds misspelt names: what a table has is in the
// files of this kernel, but for what only others have.
func TestTheTablesAreOfThisKernel(t *testing.T) {
	s := opened[*fieldSource](t)(openProtocols(netDir))
	says(t, s)
	// Those that are new in some kernel, that belong to the other family,
	// or that UDP-Lite took with it when it was removed.
	passing := []string{"OutTransmits", "ForwDatagrams", "OutForwDatagrams", "RateLimit", "MPTcpExt", "TCPPLBRehash", "TCPAckCompressed", "TcpTimeoutRehash",
		"TcpDuplicateDataRehash", "TWRecycled", "MemErrors", "UdpLite", "PAWSOldAck", "PAWSTimewait", "TCPMD5", "InTooBig", "InTruncated", "InNoRoutes", "Csum", "Mcast",
		"Bcast", "Octets", "ECT", "CEPkts", "Overlaps", "Icmp", "Ip Out", "Ip Reasm", "Ip Frag"}
	var all int
	for _, file := range s.files {
		for at, field := range file.table {
			all++
			if !slices.Contains(file.fields, field) && !slices.ContainsFunc(passing, func(p string) bool { return strings.Contains(at, p) }) &&
				!strings.HasPrefix(at, "IpExt") {
				t.Errorf("%s has no %s", file.path, at)
			}
		}
	}
	if len(s.schema.Series) < 150 {
		t.Errorf("%d of %d fields", len(s.schema.Series), all)
	}
	t.Logf("%d of %d fields", len(s.schema.Series), all)
}

// udp is a UDP socket bound to loopback.
func udp(t testing.TB, family int) (fd int, address unix.Sockaddr) {
	t.Helper()
	fd = socket(t, family, unix.SOCK_DGRAM, 0)
	return fd, bound(t, fd, family)
}

// bound binds a socket to a free port of loopback.
func bound(t testing.TB, fd, family int) unix.Sockaddr {
	t.Helper()
	var address unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if family == unix.AF_INET6 {
		address = &unix.SockaddrInet6{Addr: [16]byte(net.IPv6loopback)}
	}
	if err := unix.Bind(fd, address); err != nil {
		t.Fatal(err)
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// send sends a datagram to where nobody may be: the ICMP message that answered
// the one before is an error of a call that then sends nothing (udp(7)).
func send(t testing.TB, fd int, data []byte, to unix.Sockaddr) {
	t.Helper()
	for {
		err := unix.Sendto(fd, data, 0, to)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
}

// TestDatagramsAreCounted sends 101 datagrams of 137 bytes that are received,
// 17 to a port that nobody has and, each too big for the rest of the buffer,
// 13 that are dropped.
func TestDatagramsAreCounted(t *testing.T) {
	newNamespace(t)
	s := opened[*fieldSource](t)(openProtocols(threadNet))
	receiver, address := udp(t, unix.AF_INET)
	sender, _ := udp(t, unix.AF_INET)
	before := says(t, s)
	data := make([]byte, 137)
	for range 101 {
		if err := unix.Sendto(sender, data, 0, address); err != nil {
			t.Fatal(err)
		}
		if n, _, err := unix.Recvfrom(receiver, make([]byte, 200), 0); err != nil || n != 137 {
			t.Fatal(n, err)
		}
	}
	expect(t, grown(before, says(t, s)), map[string]int64{
		"udp_datagrams receive ipv4": 101, "udp_datagrams transmit ipv4": 101, "udp_datagrams receive ipv6": 0,
		"ip_packets receive ipv4": 101, "ip_packets transmit ipv4": 101, "ip_delivered ipv4": 101,
		"ip_bytes receive ipv4": 101 * (137 + 28), "ip_bytes transmit ipv4": 101 * (137 + 28), "ip_ecn_packets not_ect ipv4": 101,
		"udp_errors ipv4": 0, "udp_no_port ipv4": 0, "tcp_segments receive": 0,
	})

	before = says(t, s)
	nobody, closed := udp(t, unix.AF_INET)
	unix.Close(nobody)
	for range 17 {
		send(t, sender, data, closed)
	}
	expect(t, grown(before, says(t, s)), map[string]int64{"udp_no_port ipv4": 17, "udp_datagrams transmit ipv4": 17,
		"udp_datagrams receive ipv4": 0, "udp_errors ipv4": 0})

	before = says(t, s)
	if err := unix.SetsockoptInt(receiver, unix.SOL_SOCKET, unix.SO_RCVBUF, 0); err != nil { // the smallest there is
		t.Fatal(err)
	}
	const all = 40
	for range all {
		if err := unix.Sendto(sender, make([]byte, 1000), 0, address); err != nil {
			t.Fatal(err)
		}
	}
	queued := int64(0)
	for unix.SetNonblock(receiver, true); ; queued++ {
		if _, _, err := unix.Recvfrom(receiver, make([]byte, 1000), 0); err != nil {
			break
		}
	}
	if queued == 0 || queued == all {
		t.Fatalf("%d of %d datagrams were queued", queued, all)
	}
	expect(t, grown(before, says(t, s)), map[string]int64{"udp_datagrams receive ipv4": queued, "udp_errors ipv4": all - queued,
		"udp_buffer_errors receive ipv4": all - queued, "udp_checksum_errors ipv4": 0})
	allocates(t, s)
}

// TestDatagramsOfIPv6AreCounted sends 23 datagrams of 41 bytes, and 5 to a port
// that nobody has, each of which an ICMP message answers.
func TestDatagramsOfIPv6AreCounted(t *testing.T) {
	newNamespace(t)
	write(t, "/proc/sys/net/ipv6/conf/lo/disable_ipv6", "0")
	s := opened[*fieldSource](t)(openProtocols(threadNet))
	_, address := udp(t, unix.AF_INET6)
	sender, _ := udp(t, unix.AF_INET6)
	before := says(t, s)
	for range 23 {
		if err := unix.Sendto(sender, make([]byte, 41), 0, address); err != nil {
			t.Fatal(err)
		}
	}
	nobody, closed := udp(t, unix.AF_INET6)
	unix.Close(nobody)
	for range 5 {
		send(t, sender, make([]byte, 41), closed)
	}
	expect(t, grown(before, says(t, s)), map[string]int64{"udp_datagrams transmit ipv6": 28, "udp_datagrams transmit ipv4": 0,
		"udp_no_port ipv6": 5, "icmp_message_types transmit ipv6 destination_unreachable": 5,
		"icmp_message_types receive ipv6 destination_unreachable": 5, "icmp_messages transmit ipv6": 5})
}

// listener is a TCP socket that listens on loopback.
func listener(t testing.TB, backlog int) (fd int, address unix.Sockaddr) {
	t.Helper()
	fd = socket(t, unix.AF_INET, unix.SOCK_STREAM, 0)
	address = bound(t, fd, unix.AF_INET)
	if err := unix.Listen(fd, backlog); err != nil {
		t.Fatal(err)
	}
	return fd, address
}

// connected is a socket that connected, and the error if it could not.
func connected(t testing.TB, to unix.Sockaddr) (fd int, err error) {
	t.Helper()
	fd = socket(t, unix.AF_INET, unix.SOCK_STREAM, 0)
	return fd, unix.Connect(fd, to)
}

// TestConnectionsAreCounted has 19 connections refused, opens 7, resets 3 of
// them by closing with data unread, and overflows an accept queue.
func TestConnectionsAreCounted(t *testing.T) {
	newNamespace(t)
	s := opened[*fieldSource](t)(openProtocols(threadNet))
	before := says(t, s)
	nobody, closed := listener(t, 1)
	unix.Close(nobody)
	for range 19 {
		if _, err := connected(t, closed); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("connect to nobody: %v", err)
		}
	}
	expect(t, grown(before, says(t, s)), map[string]int64{"tcp_attempt_failures": 19, "tcp_opens active": 19, "tcp_opens passive": 0,
		"tcp_resets_sent": 19, "tcp_segments transmit": 38, "tcp_segments receive": 38, "tcp_retransmits": 0, "tcp_established": 0})

	before = says(t, s)
	server, address := listener(t, 16)
	var clients, accepted []int
	for range 7 {
		fd, err := connected(t, address)
		if err != nil {
			t.Fatal(err)
		}
		a, _, err := unix.Accept(server)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(a) })
		clients, accepted = append(clients, fd), append(accepted, a)
	}
	expect(t, grown(before, says(t, s)), map[string]int64{"tcp_opens active": 7, "tcp_opens passive": 7, "tcp_attempt_failures": 0,
		"tcp_segments transmit": 21, "tcp_segments receive": 21, "tcp_established": 14})

	before = says(t, s)
	for i := range 3 {
		if _, err := unix.Write(accepted[i], []byte("unread")); err != nil {
			t.Fatal(err)
		}
		unix.Close(clients[i])
	}
	expect(t, grown(before, says(t, s)), map[string]int64{"tcp_aborts close": 3, "tcp_aborts data": 0, "tcp_resets_sent": 3,
		"tcp_data_segments": 3, "tcp_established_resets": 6})
	allocates(t, s)
}

// TestListenOverflowsAreCounted connects to a queue of one, which has room for
// two (net/core/sock.h, sk_acceptq_is_full).
func TestListenOverflowsAreCounted(t *testing.T) {
	newNamespace(t)
	s := opened[*fieldSource](t)(openProtocols(threadNet))
	_, address := listener(t, 1)
	for range 2 {
		if _, err := connected(t, address); err != nil {
			t.Fatal(err)
		}
	}
	before := says(t, s)
	const lost = 11
	for range lost {
		fd := socket(t, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err := unix.Connect(fd, address); !errors.Is(err, unix.EINPROGRESS) {
			t.Fatalf("connect to a full queue: %v", err)
		}
	}
	expect(t, grown(before, says(t, s)), map[string]int64{"tcp_listen_overflows": lost, "tcp_listen_drops": lost, "tcp_opens active": lost,
		"tcp_opens passive": 0, "tcp_retransmits": 0})
}

// TestAgainstTheFilesOfProtocols compares all with the files, read in another
// way, in a namespace where nothing happens meanwhile.
func TestAgainstTheFilesOfProtocols(t *testing.T) {
	newNamespace(t)
	_, address := udp(t, unix.AF_INET)
	sender, _ := udp(t, unix.AF_INET)
	for range 5 {
		if err := unix.Sendto(sender, []byte("x"), 0, address); err != nil {
			t.Fatal(err)
		}
	}
	s := opened[*fieldSource](t)(openProtocols(threadNet))
	got, want := says(t, s), map[string]uint64{}
	for _, file := range s.files {
		for name, value := range fieldsOf(t, file.path) {
			if f := file.table[name]; f != nil {
				want[strings.Join(append([]string{f.desc.Name}, f.values...), " ")] = value * max(f.scale, 1)
			}
		}
	}
	if !equal(got, want) || got["udp_datagrams transmit ipv4"] != 5 {
		t.Errorf("read %v, want %v", got, want)
	}
}

// fieldsOf is a file of the network by "group key", or "key".
func fieldsOf(t *testing.T, path string) map[string]uint64 {
	t.Helper()
	m := map[string]uint64{}
	lines := strings.Split(strings.TrimSpace(readFile(t, path)), "\n")
	add := func(name, value string) {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		m[name] = uint64(n)
	}
	for i := 0; i < len(lines); i++ {
		fields := strings.Fields(lines[i])
		switch filepath.Base(path) {
		case "snmp6":
			add(fields[0], fields[1])
		default:
			i++
			for j, value := range strings.Fields(lines[i])[1:] {
				add(strings.TrimSuffix(fields[0], ":")+" "+fields[j+1], value)
			}
		}
	}
	return m
}

func FuzzFields(f *testing.F) {
	f.Add([]byte("Tcp: A B\nTcp: 1 -2\n"))
	f.Add([]byte("A\t 1\n"))
	f.Add([]byte("TCP: a 1 b 2\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, split := range []func([]byte, []number) ([]number, error){splitPairs, splitNamed, splitLists} {
			numbers, err := split(bytes.Clone(b), nil)
			if err != nil {
				continue
			}
			for _, n := range numbers {
				if len(n.key) == 0 || bytes.ContainsAny(n.key, " \t\n") {
					t.Errorf("%q has a number called %q", b, n.key)
				}
			}
		}
	})
}

func BenchmarkProtocols(b *testing.B) {
	benchmark(b, opened[*fieldSource](b)(openProtocols(netDir)))
}

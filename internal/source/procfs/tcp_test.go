// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// diagnosed is what a source of sockets is, or a skip where the kernel lists
// none (Debian has tcp_diag as a module).
func diagnosed[S source.Source](t testing.TB, s S, err error) S {
	t.Helper()
	if errors.Is(err, source.ErrUnsupported) {
		t.Skip(err)
	}
	return opened[S](t)(s, err)
}

// TestSocketsByState has 3 sockets listen and one with a connection closed by
// the client alone, 5 open connections, one in TIME_WAIT and one that waits for
// its SYN to be answered.
func TestSocketsByState(t *testing.T) {
	newNamespace(t)
	c, err := openTCPCount()
	c = diagnosed(t, c, err)
	if got := says(t, c); got["tcp_connections ipv4 listen"] != 0 || len(got) != 2*(len(tcpStates)-1) {
		t.Errorf("a new namespace has %v", got)
	}
	var server int
	var address unix.Sockaddr
	for range 3 {
		server, address = listener(t, 16)
	}
	pair := func() (client, accepted int) {
		client, err := connected(t, address)
		if err != nil {
			t.Fatal(err)
		}
		accepted, _, err = unix.Accept(server)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(accepted) })
		return client, accepted
	}
	for range 5 {
		pair()
	}
	client, _ := pair()
	unix.Close(client) // FIN_WAIT2 here, CLOSE_WAIT there
	client, accepted := pair()
	unix.Close(client)
	unix.Close(accepted) // TIME_WAIT here, nothing there
	// A full accept queue lets no SYN be answered.
	lost := socket(t, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	_, full := listener(t, 0)
	if _, err := connected(t, full); err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(lost, full); !errors.Is(err, unix.EINPROGRESS) {
		t.Fatal(err)
	}
	// The peer may put off its ACK of the FIN (tcp_delack_min, 40 ms).
	await(t, func() bool { c.next = 0; return says(t, c)["tcp_connections ipv4 fin_wait1"] == 0 })
	want := map[string]int64{"established": 10 + 2, "syn_sent": 1, "syn_recv": 0, "fin_wait1": 0, "fin_wait2": 1, "time_wait": 1,
		"close": 0, "close_wait": 1, "last_ack": 0, "listen": 4, "closing": 0}
	c.next = 0
	got := says(t, c)
	for state, n := range want {
		expect(t, got, map[string]int64{"tcp_connections ipv4 " + state: n, "tcp_connections ipv6 " + state: 0})
	}
	c.next = 0
	allocates(t, c)
}

// TestDearListsAreRare holds that a frame between two lists is the last one's.
func TestDearListsAreRare(t *testing.T) {
	newNamespace(t)
	c, err := openTCPCount()
	c = diagnosed(t, c, err)
	var first, second metric.Frame
	if err := c.Read(&first); err != nil {
		t.Fatal(err)
	}
	if c.next != c.end+tcpShare*(c.end-c.begin) {
		t.Errorf("after %d ns the next list is %d ns away", c.end-c.begin, c.next-c.end)
	}
	listener(t, 1)
	c.next = host.Mono() + 1e12
	if err := c.Read(&second); err != nil || second.End != first.End || values(&second)["tcp_connections ipv4 listen"] != 0 {
		t.Errorf("%v of %d, before of %d, %v", values(&second), second.End, first.End, err)
	}
	c.next = 0
	if err := c.Read(&second); err != nil || second.Begin <= first.End || values(&second)["tcp_connections ipv4 listen"] != 1 {
		t.Errorf("%v of %d, before of %d, %v", values(&second), second.Begin, first.End, err)
	}
}

// port is that of an address, as the label has it.
func port(address unix.Sockaddr) string {
	switch a := address.(type) {
	case *unix.SockaddrInet4:
		return fmt.Sprint(a.Port)
	case *unix.SockaddrInet6:
		return fmt.Sprint(a.Port)
	}
	return ""
}

// TestAcceptQueues has 7 connections wait to be accepted in a queue of 11 and 2
// in each of two on one port, and more ports than are shown.
func TestAcceptQueues(t *testing.T) {
	newNamespace(t)
	b, err := openTCPBacklog(2)
	b = diagnosed(t, b, err)
	if got := says(t, b); len(got) != 0 {
		t.Errorf("a new namespace has %v", got)
	}
	server, busy := listener(t, 11)
	says(t, b) // so that it is the first
	for range 7 {
		if _, err := connected(t, busy); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, says(t, b), map[string]int64{"tcp_listen_backlog " + port(busy): 7, "tcp_listen_backlog_limit " + port(busy): 11})
	for range 3 {
		fd, _, err := unix.Accept(server)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
	}
	expect(t, says(t, b), map[string]int64{"tcp_listen_backlog " + port(busy): 4})

	shared := sharedPort(t, 3, 5)
	says(t, b)
	const each = 6
	for range each {
		if _, err := connected(t, shared); err != nil {
			t.Fatal(err)
		}
	}
	// The kernel picks one of the three by a hash; a queue of 5 has room for 6.
	expect(t, says(t, b), map[string]int64{"tcp_listen_backlog " + port(shared): each, "tcp_listen_backlog_limit " + port(shared): 15})

	for _, waiting := range []int{2, 3} {
		_, address := listener(t, 4)
		for range waiting {
			if _, err := connected(t, address); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect(t, says(t, b), map[string]int64{"tcp_listen_backlog other": 5, "tcp_listen_backlog_limit other": 8,
		"tcp_listen_backlog " + port(busy): 4, "tcp_listen_backlog " + port(shared): each})
	allocates(t, b)
}

// sharedPort is listened on by n sockets (SO_REUSEPORT).
func sharedPort(t *testing.T, n, backlog int) (address unix.Sockaddr) {
	t.Helper()
	address = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	for range n {
		fd := socket(t, unix.AF_INET, unix.SOCK_STREAM, 0)
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			t.Fatal(err)
		}
		err := unix.Bind(fd, address)
		if err == nil {
			err = unix.Listen(fd, backlog)
		}
		if err != nil {
			t.Fatal(err)
		}
		if address, err = unix.Getsockname(fd); err != nil {
			t.Fatal(err)
		}
	}
	return address
}

func BenchmarkTCPBacklog(b *testing.B) {
	s, err := openTCPBacklog(maxPorts)
	benchmark(b, diagnosed(b, s, err))
}

// BenchmarkTCPCount lists 2,000 sockets in TIME_WAIT, listening or connected,
// as many as the limit of open files lets it have.
func BenchmarkTCPCount(b *testing.B) {
	newNamespace(b)
	server, address := listener(b, 2000)
	for range 200 {
		if _, err := connected(b, address); err != nil {
			b.Fatal(server, err)
		}
	}
	s, err := openTCPCount()
	s = diagnosed(b, s, err)
	var f metric.Frame
	for b.Loop() {
		s.next = 0
		if err := s.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}

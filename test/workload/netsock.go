// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Loopback is 127.0.0.1.
var Loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Socket is a socket whose calls block and are made one by one, so that a test
// knows what the kernel did. A call that fails panics.
type Socket struct {
	fd   int
	Addr netip.AddrPort // what it is bound to
}

func check(what string, err error) {
	if err != nil {
		panic(fmt.Sprintf("%s: %v", what, err))
	}
}

// NewSocket makes a socket (unix.SOCK_STREAM or SOCK_DGRAM) bound to a free
// port of the address.
func NewSocket(kind int, address netip.Addr) *Socket {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	check("make a socket", err)
	s := &Socket{fd: fd}
	check("bind", unix.Bind(fd, &unix.SockaddrInet4{Addr: address.As4()}))
	s.learn()
	return s
}

func (s *Socket) learn() {
	name, err := unix.Getsockname(s.fd)
	check("get a socket's name", err)
	four := name.(*unix.SockaddrInet4)
	s.Addr = netip.AddrPortFrom(netip.AddrFrom4(four.Addr), uint16(four.Port))
}

// Listen makes a listener that keeps backlog + 1 connections waiting.
func Listen(address netip.Addr, backlog int) *Socket {
	s := NewSocket(unix.SOCK_STREAM, address)
	check("listen", unix.Listen(s.fd, backlog))
	return s
}

// Accept takes the first connection that waits.
func (s *Socket) Accept() *Socket {
	fd, _, err := unix.Accept4(s.fd, unix.SOCK_CLOEXEC)
	check("accept", err)
	return &Socket{fd: fd, Addr: s.Addr}
}

// Dial connects to a listener, or gives the error.
func Dial(to netip.AddrPort, options ...func(fd int) error) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check("make a socket", err)
	for _, option := range options {
		check("set an option", option(fd))
	}
	s := &Socket{fd: fd}
	err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		s.Close()
		return nil, err
	}
	return s, nil
}

// NoWait makes Dial return before there is an answer.
func NoWait(fd int) error { return unix.SetNonblock(fd, true) }

// GiveUp ends a Dial that gets no answer when it would ask a second time,
// after a second.
func GiveUp(fd int) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 1)
}

// Pair is both ends of a connection to a listener.
func Pair(listener *Socket) (client, server *Socket) {
	client, err := Dial(listener.Addr)
	check("connect", err)
	check("set TCP_NODELAY", unix.SetsockoptInt(client.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	return client, listener.Accept()
}

// Send sends n bytes with one call.
func (s *Socket) Send(n int) {
	sent, err := unix.Write(s.fd, make([]byte, n))
	check("send", err)
	if sent != n {
		panic(fmt.Sprintf("%d of %d bytes were sent", sent, n))
	}
}

// SendTo sends a datagram of n bytes.
func (s *Socket) SendTo(to netip.AddrPort, n int) {
	check("send", unix.Sendto(s.fd, make([]byte, n), 0, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}))
}

// Receive gets n bytes, or a datagram, with one call.
func (s *Socket) Receive(n int) { s.recv(n, unix.MSG_WAITALL) }

// Peek looks at n bytes and leaves them.
func (s *Socket) Peek(n int) { s.recv(n, unix.MSG_PEEK) }

func (s *Socket) recv(n, flags int) {
	got, _, err := unix.Recvfrom(s.fd, make([]byte, n), flags)
	check("receive", err)
	if got != n {
		panic(fmt.Sprintf("%d of %d bytes came", got, n))
	}
}

// Drain receives what waits, and is how many datagrams that were.
func (s *Socket) Drain() (n int) {
	b := make([]byte, 1)
	for {
		_, _, err := unix.Recvfrom(s.fd, b, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return n
		}
		check("receive", err)
		n++
	}
}

// Shrink makes the socket's receive buffer as small as the kernel lets.
func (s *Socket) Shrink() {
	check("set SO_RCVBUF", unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1))
}

// Refuse has the socket's own filter drop all that comes (bpf(4): ret 0).
func (s *Socket) Refuse() {
	filter := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	check("set SO_ATTACH_FILTER", unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}))
}

// Segment has the kernel cut what is sent into datagrams of so many bytes.
func (s *Socket) Segment(size int) {
	check("set UDP_SEGMENT", unix.SetsockoptInt(s.fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, size))
}

// Info is the kernel's own account of a connection (tcp(7)).
func (s *Socket) Info() *unix.TCPInfo {
	info, err := unix.GetsockoptTCPInfo(s.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	check("get TCP_INFO", err)
	return info
}

// Abort closes a connection with a reset.
func (s *Socket) Abort() {
	check("set SO_LINGER", unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	s.Close()
}

// Close closes the socket.
func (s *Socket) Close() { check("close", unix.Close(s.fd)) }

// Datagrams6 sends n datagrams of size bytes from an IPv6 socket to itself and
// receives them.
func Datagrams6(n, size int) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	check("make a socket", err)
	s := &Socket{fd: fd}
	defer s.Close()
	check("bind", unix.Bind(fd, &unix.SockaddrInet6{Addr: [16]byte{15: 1}}))
	name, err := unix.Getsockname(fd)
	check("get a socket's name", err)
	for range n {
		check("send", unix.Sendto(fd, make([]byte, size), 0, name))
		s.Receive(size)
	}
}

// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace of its own, with its loopback up.
type Namespace struct{ fd int }

// NewNamespace makes a network namespace for the length of the test.
func NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	n := &Namespace{}
	inThread(t, "make a network namespace", func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		var err error
		if n.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		return setFlags("lo", unix.IFF_UP)
	})
	t.Cleanup(func() { unix.Close(n.fd) })
	return n
}

// Do runs f on a thread inside the namespace. Sockets that f makes stay in it.
func (n *Namespace) Do(t testing.TB, f func() error) {
	t.Helper()
	inThread(t, "in the network namespace", func() error {
		if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

func inThread(t testing.TB, what string, f func() error) {
	t.Helper()
	done := make(chan error)
	go onNewThread(func() { done <- f() })
	if err := <-done; err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Link is an interface of this namespace and what is behind it. Nobody sends
// by it but the test: it has no IPv6, and its neighbours are given.
type Link struct {
	Name        string
	Local, Peer netip.Addr
	// Nobody is an address of the link that no one has.
	Nobody netip.Addr
	ns     *Namespace // of the peer
}

var (
	localMAC = [6]byte{2, 0, 0, 0, 0, 1}
	peerMAC  = [6]byte{2, 0, 0, 0, 0, 2}
)

// links counts the links that this process made: each has a subnet of
// 198.18.0.0/15, which is for tests (RFC 2544).
var links int

func newLink(kind string) *Link {
	links++
	subnet := func(host int) netip.Addr {
		return netip.AddrFrom4([4]byte{198, 18 + byte(os.Getpid()&1), byte(os.Getpid() >> 1), byte(links*8 + host)})
	}
	return &Link{Name: fmt.Sprintf("%s%d-%d", kind, os.Getpid()%100000, links), Local: subnet(1), Peer: subnet(2), Nobody: subnet(3)}
}

// NewVeth makes a pair of virtual Ethernet interfaces, one of them in ns, until
// the test ends.
func NewVeth(t testing.TB, ns *Namespace) *Link {
	t.Helper()
	l := newLink("rzv")
	l.ns = ns
	if err := l.make(); err != nil {
		t.Fatalf("make veth pair %s: %v", l.Name, err)
	}
	t.Cleanup(func() {
		if err := l.remove(); err != nil {
			t.Errorf("remove %s: %v", l.Name, err)
		}
	})
	if err := errors.Join(l.configure(l.Local), setNeighbour(l.Name, l.Peer, peerMAC)); err != nil {
		t.Fatal(err)
	}
	ns.Do(t, func() error {
		return errors.Join(l.configure(l.Peer), setNeighbour(l.Name, l.Local, localMAC))
	})
	return l
}

// Far runs f at the peer's end.
func (l *Link) Far(t testing.TB, f func() error) {
	t.Helper()
	l.ns.Do(t, f)
}

// Misdirect has all packets to the peer go to a station that is not there, or
// no longer.
func (l *Link) Misdirect(t testing.TB, on bool) {
	t.Helper()
	if err := misdirect(l.Name, l.Peer, peerMAC, on); err != nil {
		t.Fatal(err)
	}
}

// MisdirectBack does so with the packets from the peer.
func (l *Link) MisdirectBack(t testing.TB, on bool) {
	t.Helper()
	l.Far(t, func() error { return misdirect(l.Name, l.Local, localMAC, on) })
}

func misdirect(name string, neighbour netip.Addr, mac [6]byte, on bool) error {
	if on {
		mac[5] = 0xee
	}
	return setNeighbour(name, neighbour, mac)
}

// Hurry lets the link find out within a tenth of a second that Nobody is there.
func (l *Link) Hurry(t testing.TB) {
	t.Helper()
	for file, value := range map[string]int{"mcast_solicit": 1, "ucast_solicit": 1, "retrans_time_ms": 50} {
		if err := write("/proc/sys/net/ipv4/neigh/"+l.Name+"/"+file, value); err != nil {
			t.Fatal(err)
		}
	}
}

// Statistic is what the kernel's driver counted: a file of
// /sys/class/net/NAME/statistics.
func (l *Link) Statistic(t testing.TB, name string) (n uint64) {
	t.Helper()
	text, err := os.ReadFile("/sys/class/net/" + l.Name + "/statistics/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(text), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// FarNetstat is a field of TcpExt in the peer's /proc/net/netstat.
func (l *Link) FarNetstat(t testing.TB, field string) (n uint64) {
	t.Helper()
	l.Far(t, func() error {
		text, err := os.ReadFile("/proc/thread-self/net/netstat")
		if err != nil {
			return err
		}
		lines := strings.Split(string(text), "\n") // the names, then the values
		at := slices.Index(strings.Fields(lines[0]), field)
		if at < 0 {
			return fmt.Errorf("no field %s in /proc/net/netstat", field)
		}
		n, err = strconv.ParseUint(strings.Fields(lines[1])[at], 10, 64)
		return err
	})
	return n
}

// configure gives the interface its address and sets it up.
func (l *Link) configure(own netip.Addr) error {
	if err := write("/proc/sys/net/ipv6/conf/"+l.Name+"/disable_ipv6", 1); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := setAddress(l.Name, own); err != nil {
		return err
	}
	return setFlags(l.Name, unix.IFF_UP)
}

// make asks rtnetlink(7) for the pair; both have the same name, in two
// namespaces.
func (l *Link) make() error {
	var namespace [4]byte
	binary.NativeEndian.PutUint32(namespace[:], uint32(l.ns.fd))
	name := append([]byte(l.Name), 0)
	info := make([]byte, unix.SizeofIfInfomsg)
	const vethInfoPeer = 1 // include/uapi/linux/veth.h
	return rtnetlink(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, info,
		attribute(unix.IFLA_IFNAME, name), attribute(unix.IFLA_ADDRESS, localMAC[:]),
		attribute(unix.IFLA_LINKINFO,
			attribute(unix.IFLA_INFO_KIND, []byte("veth")),
			attribute(unix.IFLA_INFO_DATA,
				attribute(vethInfoPeer, info, attribute(unix.IFLA_IFNAME, name),
					attribute(unix.IFLA_ADDRESS, peerMAC[:]), attribute(unix.IFLA_NET_NS_FD, namespace[:])))))
}

func (l *Link) remove() error {
	return rtnetlink(unix.RTM_DELLINK, 0, make([]byte, unix.SizeofIfInfomsg), attribute(unix.IFLA_IFNAME, append([]byte(l.Name), 0)))
}

// attribute is a netlink attribute, padded, with its payload in parts.
func attribute(kind uint16, parts ...[]byte) []byte {
	b := make([]byte, 4)
	for _, p := range parts {
		b = append(b, p...)
	}
	binary.NativeEndian.PutUint16(b, uint16(len(b)))
	binary.NativeEndian.PutUint16(b[2:], kind)
	return append(b, make([]byte, -len(b)&3)...)
}

// rtnetlink makes a request and waits for its acknowledgement.
func rtnetlink(kind, flags uint16, parts ...[]byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	b := make([]byte, unix.SizeofNlMsghdr)
	for _, p := range parts {
		b = append(b, p...)
	}
	*(*unix.NlMsghdr)(unsafe.Pointer(&b[0])) = unix.NlMsghdr{Len: uint32(len(b)), Type: kind, Flags: flags | unix.NLM_F_REQUEST | unix.NLM_F_ACK}
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("rtnetlink answers with %d bytes", n)
	}
	if errno := -int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

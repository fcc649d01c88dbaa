// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctl makes a request of netdevice(7) about an interface of this thread's
// namespace.
func ioctl(name string, request uint, set func(*unix.Ifreq) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifreq, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := set(ifreq); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, request, ifreq); err != nil {
		return fmt.Errorf("configure %s: %w", name, err)
	}
	return nil
}

func setFlags(name string, flags uint16) error {
	return ioctl(name, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(flags); return nil })
}

// setAddress gives an interface an address in a subnet of eight.
func setAddress(name string, address netip.Addr) error {
	if err := ioctl(name, unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(address.AsSlice()) }); err != nil {
		return err
	}
	return ioctl(name, unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 248}) })
}

// setNeighbour writes an entry of arp(7) that stays.
func setNeighbour(name string, address netip.Addr, mac [6]byte) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var request struct { // arpreq
		protocol, hardware unix.RawSockaddr
		flags              int32
		netmask            unix.RawSockaddr
		dev                [16]byte
	}
	const complete, permanent = 2, 4 // include/uapi/linux/if_arp.h
	protocol := (*unix.RawSockaddrInet4)(unsafe.Pointer(&request.protocol))
	protocol.Family, protocol.Addr = unix.AF_INET, address.As4()
	for i, b := range mac {
		request.hardware.Data[i] = int8(b)
	}
	request.hardware.Family = unix.ARPHRD_ETHER
	request.flags = complete | permanent
	copy(request.dev[:], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSARP, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("set the neighbour of %s: %w", name, errno)
	}
	return nil
}

// Tun is an interface whose other side is a file: the test is the wire.
type Tun struct {
	Link
	fd int
}

// NewTun makes an interface that holds as many packets as queue until they are
// taken.
func NewTun(t testing.TB, queue int) *Tun {
	t.Helper()
	d := &Tun{Link: *newLink("rzt")}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("open /dev/net/tun: %v", err)
	}
	d.fd = fd
	t.Cleanup(func() { unix.Close(fd) })
	request, err := unix.NewIfreq(d.Name)
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		t.Fatalf("make %s: %v", d.Name, err)
	}
	if err := ioctl(d.Name, unix.SIOCSIFTXQLEN, func(r *unix.Ifreq) error { r.SetUint32(uint32(queue)); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := d.configure(d.Local); err != nil {
		t.Fatal(err)
	}
	return d
}

// Arrive has n packets arrive at the interface.
func (d *Tun) Arrive(t testing.TB, n int, packet []byte) {
	t.Helper()
	for range n {
		if _, err := unix.Write(d.fd, packet); err != nil {
			t.Fatalf("have a packet arrive at %s: %v", d.Name, err)
		}
	}
}

// Take takes all packets that the interface holds, and is how many they were.
func (d *Tun) Take(t testing.TB) (n int) {
	t.Helper()
	packet := make([]byte, 1<<16)
	for {
		_, err := unix.Read(d.fd, packet)
		if errors.Is(err, unix.EAGAIN) {
			return n
		}
		if err != nil {
			t.Fatalf("take a packet of %s: %v", d.Name, err)
		}
		n++
	}
}

// Datagram is an IPv4 packet (RFC 791) from the peer to a UDP port of this
// side, with size bytes of payload and without a UDP checksum.
func (d *Tun) Datagram(port uint16, size int) []byte {
	const ip, udp = 20, 8
	b := make([]byte, ip+udp+size)
	b[0], b[8], b[9] = 4<<4|ip/4, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	copy(b[12:], d.Peer.AsSlice())
	copy(b[16:], d.Local.AsSlice())
	binary.BigEndian.PutUint16(b[ip:], 9)
	binary.BigEndian.PutUint16(b[ip+2:], port)
	binary.BigEndian.PutUint16(b[ip+4:], uint16(udp+size))
	var sum uint32
	for i := 0; i < ip; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum+sum>>16))
	return b
}

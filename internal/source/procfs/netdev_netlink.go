// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
)

// netlink is a socket that asks the kernel for lists (netlink(7)).
type netlink struct {
	protocol int
	fd       int // -1: it was given up in the middle of a list
	sequence uint32
	buf      []byte
	limit    time.Duration // of one list
}

// openNetlink opens a socket of a protocol such as NETLINK_ROUTE. A list that
// takes longer than the limit is an error.
func openNetlink(protocol int, limit time.Duration) (*netlink, error) {
	// The kernel fills at most 32 KiB at a time (af_netlink.c, netlink_recvmsg).
	n := &netlink{protocol: protocol, fd: -1, buf: make([]byte, 32<<10), limit: limit}
	return n, n.open()
}

func (n *netlink) open() (err error) {
	n.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, n.protocol)
	if err != nil {
		n.fd = -1
		return fmt.Errorf("open netlink socket: %w", err)
	}
	wait := unix.NsecToTimeval(int64(n.limit))
	if err := unix.SetsockoptTimeval(n.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return errors.Join(fmt.Errorf("open netlink socket: %w", err), n.Close())
	}
	return nil
}

var (
	errShort       = errors.New("message is cut short")
	errInterrupted = errors.New("the list changed while it was read")
	errSlow        = errors.New("the list takes too long")
)

// list asks for a list and hands each entry's payload to each. The request has
// room for a header in front, which list fills in.
func (n *netlink) list(kind uint16, request []byte, each func(payload []byte)) error {
	if n.fd < 0 {
		if err := n.open(); err != nil {
			return err
		}
	}
	n.sequence++
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], kind)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(request[8:], n.sequence)
	clear(request[12:unix.NLMSG_HDRLEN])
	err := n.ask(request, each)
	if err != nil {
		// What is left of the list would be in the way of the next.
		err = errors.Join(err, n.Close())
	}
	return err
}

func (n *netlink) ask(request []byte, each func(payload []byte)) error {
	deadline := host.Mono() + int64(n.limit)
	if _, err := unix.Write(n.fd, request); err != nil {
		return fmt.Errorf("ask netlink: %w", err)
	}
	for {
		got, err := unix.Read(n.fd, n.buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN), host.Mono() > deadline:
			return errSlow
		case err != nil:
			return fmt.Errorf("read netlink: %w", err)
		}
		if done, err := n.messages(n.buf[:got], each); done || err != nil {
			return err
		}
	}
}

// messages goes through what one read gave. done: the list ends there.
func (n *netlink) messages(b []byte, each func(payload []byte)) (done bool, err error) {
	for len(b) > 0 {
		if len(b) < unix.NLMSG_HDRLEN {
			return false, errShort
		}
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return false, errShort
		}
		kind, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
		payload := b[unix.NLMSG_HDRLEN:size]
		switch {
		case flags&unix.NLM_F_DUMP_INTR != 0:
			return false, errInterrupted
		case kind == unix.NLMSG_DONE, kind == unix.NLMSG_ERROR:
			if len(payload) < 4 {
				return true, nil
			}
			if code := int32(binary.NativeEndian.Uint32(payload)); code < 0 {
				return false, fmt.Errorf("read netlink: %w", unix.Errno(-code))
			}
			return true, nil
		}
		each(payload)
		b = b[min((size+3)&^3, len(b)):]
	}
	return false, nil
}

// attributes hands each attribute (struct rtattr) in b to each.
func attributes(b []byte, each func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return
		}
		each(binary.NativeEndian.Uint16(b[2:]), b[unix.SizeofRtAttr:size])
		b = b[min((size+3)&^3, len(b)):]
	}
}

// Close closes the socket.
func (n *netlink) Close() (err error) {
	if n.fd >= 0 {
		err = unix.Close(n.fd)
	}
	n.fd = -1
	return err
}

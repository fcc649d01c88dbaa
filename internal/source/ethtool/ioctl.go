// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket asks drivers by ioctl (include/uapi/linux/ethtool.h).
type socket struct {
	fd  int
	ask ifreq
	// The kernel writes as many strings and numbers as the driver has by
	// then, whatever was asked for (net/ethtool/ioctl.c), so these have room
	// for more than a driver with statistics of ours ever has.
	strings, numbers []byte
}

// ifreq is struct ifreq of netdevice(7) with a pointer in it.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

func newSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket for ethtool: %w", err)
	}
	return &socket{fd: fd}, nil
}

// ioctl hands the driver of an interface a structure, to change in place.
func (s *socket) ioctl(name string, b []byte) error {
	s.ask = ifreq{data: unsafe.Pointer(&b[0])}
	copy(s.ask.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&s.ask)))
	runtime.KeepAlive(s)
	runtime.KeepAlive(b)
	if errno != 0 {
		return errno
	}
	return nil
}

const (
	setStatistics = 1    // ETH_SS_STATS: of the sets of strings that of statistics
	nameSize      = 32   // ETH_GSTRING_LEN
	headerSize    = 12   // of struct ethtool_gstrings: cmd, string_set, len
	mostNames     = 4096 // ena has some 20 for each of up to 32 queues
)

// names is how many statistics a driver has (struct ethtool_sset_info), then
// what they are called (struct ethtool_gstrings).
func (s *socket) names(name string) ([]string, error) {
	info := make([]byte, 20)
	binary.NativeEndian.PutUint32(info, unix.ETHTOOL_GSSET_INFO)
	binary.NativeEndian.PutUint64(info[8:], 1<<setStatistics)
	switch err := s.ioctl(name, info); {
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil, nil // a driver without statistics, as loopback is
	case err != nil:
		return nil, fmt.Errorf("ask for statistics: %w", err)
	}
	n := int(binary.NativeEndian.Uint32(info[16:]))
	if binary.NativeEndian.Uint64(info[8:]) == 0 || n == 0 {
		return nil, nil
	}
	if n > mostNames {
		return nil, fmt.Errorf("ask for statistics: %d are too many", n)
	}
	if s.strings == nil {
		s.strings = make([]byte, headerSize+mostNames*nameSize)
	}
	b := s.strings
	binary.NativeEndian.PutUint32(b, unix.ETHTOOL_GSTRINGS)
	binary.NativeEndian.PutUint32(b[4:], setStatistics)
	binary.NativeEndian.PutUint32(b[8:], uint32(n))
	if err := s.ioctl(name, b); err != nil {
		return nil, fmt.Errorf("ask for the names of statistics: %w", err)
	}
	return parseNames(b), nil
}

// parseNames reads struct ethtool_gstrings: len strings of nameSize bytes, the
// rest of each zero.
func parseNames(b []byte) (names []string) {
	if len(b) < headerSize {
		return nil
	}
	n := binary.NativeEndian.Uint32(b[8:])
	for b = b[headerSize:]; n > 0 && len(b) >= nameSize; n-- {
		name, _, _ := bytes.Cut(b[:nameSize], []byte{0})
		names = append(names, string(name))
		b = b[nameSize:]
	}
	return names
}

var errChanged = errors.New("the driver has other statistics than before")

// values reads struct ethtool_stats: cmd, n_stats, and 64 bits for each.
func (s *socket) values(name string, to []uint64) error {
	const head = 8
	if s.numbers == nil {
		s.numbers = make([]byte, head+8*mostNames)
	}
	binary.NativeEndian.PutUint32(s.numbers, unix.ETHTOOL_GSTATS)
	binary.NativeEndian.PutUint32(s.numbers[4:], uint32(len(to)))
	if err := s.ioctl(name, s.numbers); err != nil {
		return err
	}
	if binary.NativeEndian.Uint32(s.numbers[4:]) != uint32(len(to)) {
		return errChanged
	}
	for i := range to {
		to[i] = binary.NativeEndian.Uint64(s.numbers[head+8*i:])
	}
	return nil
}

// Close closes the socket.
func (s *socket) Close() error { return unix.Close(s.fd) }

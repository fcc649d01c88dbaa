// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// links is the sampler of the state of the network namespace's interfaces, from
// rtnetlink(7), and of their speed, from the driver (SIOCETHTOOL). Both wait
// for the lock of the network configuration (RTNL), which others may hold for
// seconds, so this is never read in the tick.
const links = "network_link"

func onLink(name string, unit metric.Unit, help string) *metric.Desc {
	return gaugeOf(links, "network_interface_"+name, unit, help, "interface", "kind")
}

// linkColumns are what is known of an interface, in the order of the constants
// below.
var linkColumns = []column{
	linkUp:      {desc: onLink("up", metric.None, "1 if the interface is set up, 0 if it is set down")},
	linkCarrier: {desc: onLink("carrier", metric.None, "1 if the interface has a carrier, 0 if not")},
	linkMTU:     {desc: onLink("mtu", metric.Bytes, "largest packet that the interface sends, without the link-layer header"), alone: true},
	linkSpeed:   {desc: onLink("speed", "bits per second", "speed of the link as its driver tells it"), scale: 1_000_000},
	linkChanges: {desc: counterOf(links, "network_interface_carrier_changes", metric.None,
		"times that the carrier was lost or came back", "interface", "kind")},
}

const (
	linkUp = iota
	linkCarrier
	linkMTU
	linkSpeed
	linkChanges
)

// link is the source of the state of interfaces.
type link struct {
	netlink *netlink
	ioctl   int
	request []byte
	each    func(payload []byte) // l.parse
	part    func(kind uint16, value []byte)
	roster  roster

	// Of the message under way.
	name  []byte
	state [5]uint64

	ask    ifreq
	answer ethtoolCmd
}

// ifreq is struct ifreq of netdevice(7) with a pointer in it, ethtoolCmd struct
// ethtool_cmd of include/uapi/linux/ethtool.h.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

type ethtoolCmd struct {
	cmd     uint32
	_       [2]uint32
	speed   uint16
	_       [14]byte
	speedHi uint16
	_       [14]byte
}

// openLink opens the sockets in the network namespace of this thread, of which
// class is /sys/class/net.
func openLink(class string, limit int) (*link, error) {
	n, err := openNetlink(unix.NETLINK_ROUTE, 5*time.Second)
	if err != nil {
		return nil, err
	}
	l := &link{netlink: n, roster: roster{source: links, columns: linkColumns, key: "interface", limit: limit,
		look: lookAtInterface(class)}}
	l.each, l.part = l.parse, l.attribute
	l.ioctl, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	// struct ifinfomsg, all of it 0, and one attribute: no statistics.
	const noStatistics = 1 << 3 // RTEXT_FILTER_SKIP_STATS, include/uapi/linux/rtnetlink.h
	l.request = make([]byte, unix.NLMSG_HDRLEN+unix.SizeofIfInfomsg, 64)
	l.request = binary.NativeEndian.AppendUint16(l.request, unix.SizeofRtAttr+4)
	l.request = binary.NativeEndian.AppendUint16(l.request, unix.IFLA_EXT_MASK)
	l.request = binary.NativeEndian.AppendUint32(l.request, noStatistics)
	return l, nil
}

// Name is "network_link".
func (l *link) Name() string { return links }

// Read fills f, without allocating while the same interfaces are there.
func (l *link) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	err := errInterrupted
	for try := 0; try < 3 && errors.Is(err, errInterrupted); try++ {
		l.roster.begin()
		err = l.netlink.list(unix.RTM_GETLINK, l.request, l.each)
	}
	f.End = host.Mono()
	if err != nil {
		return err
	}
	return l.roster.end(f)
}

// parse reads struct ifinfomsg and its attributes.
func (l *link) parse(b []byte) {
	if len(b) < unix.SizeofIfInfomsg {
		return
	}
	flags := binary.NativeEndian.Uint32(b[8:])
	l.name, l.state = nil, [5]uint64{linkUp: uint64(flags & unix.IFF_UP), linkSpeed: unknown}
	attributes(b[unix.SizeofIfInfomsg:], l.part)
	if len(l.name) == 0 {
		return
	}
	d := l.roster.see(l.name)
	l.state[linkSpeed] = l.speed(l.name)
	copy(d.now, l.state[:])
}

func (l *link) attribute(kind uint16, value []byte) {
	switch {
	case kind == unix.IFLA_IFNAME:
		l.name = bytes.TrimRight(value, "\x00")
	case kind == unix.IFLA_CARRIER && len(value) >= 1:
		l.state[linkCarrier] = uint64(value[0])
	case kind == unix.IFLA_MTU && len(value) >= 4:
		l.state[linkMTU] = uint64(binary.NativeEndian.Uint32(value))
	case kind == unix.IFLA_CARRIER_CHANGES && len(value) >= 4:
		l.state[linkChanges] = uint64(binary.NativeEndian.Uint32(value))
	}
}

// speed is that of an interface in millions of bits a second, or unknown: most
// devices that are no hardware have none, and no device has one without a
// carrier.
func (l *link) speed(name []byte) uint64 {
	l.answer = ethtoolCmd{cmd: unix.ETHTOOL_GSET}
	l.ask = ifreq{data: unsafe.Pointer(&l.answer)}
	copy(l.ask.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(l.ioctl), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&l.ask)))
	runtime.KeepAlive(l)
	speed := uint64(l.answer.speedHi)<<16 | uint64(l.answer.speed)
	const none = 1<<32 - 1 // SPEED_UNKNOWN
	if errno != 0 || speed == none || speed == 0 {
		return unknown
	}
	return speed
}

// Close closes the sockets.
func (l *link) Close() error { return errors.Join(l.netlink.Close(), unix.Close(l.ioctl)) }

func linksSampler() source.Sampler {
	return source.Sampler{Name: links, Reads: "rtnetlink, SIOCETHTOOL", Needs: "CONFIG_NET", Blocking: true, Every: 5 * time.Second,
		Descs: columnDescs(linkColumns),
		Open:  func() (source.Source, error) { return openLink("/sys/class/net", maxInterfaces) }}
}

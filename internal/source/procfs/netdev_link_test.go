// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
)

func TestLoopbackIsUp(t *testing.T) {
	class := newNamespace(t)
	l := opened[*link](t)(openLink(class, 10))
	want := map[string]int64{"network_interface_up lo loopback": 1, "network_interface_carrier lo loopback": 1,
		"network_interface_mtu lo loopback": 65536, "network_interface_speed lo loopback": -1, "network_interface_carrier_changes lo loopback": 0}
	expect(t, says(t, l), want)
	allocates(t, l)
	write(t, class+"/lo/mtu", "1777")
	setDown(t, "lo")
	expect(t, says(t, l), map[string]int64{"network_interface_up lo loopback": 0, "network_interface_mtu lo loopback": 1777})
}

func setDown(t testing.TB, name string) {
	t.Helper()
	fd := socket(t, unix.AF_INET, unix.SOCK_DGRAM, 0)
	request, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		t.Fatal(err)
	}
}

// TestLinksOfVeth takes the carrier of an interface away by its peer.
func TestLinksOfVeth(t *testing.T) {
	class := newNamespace(t)
	l := opened[*link](t)(openLink(class, 10))
	newVeth(t, class, "left", "right")
	before := says(t, l)
	expect(t, before, map[string]int64{"network_interface_up left veth": 1, "network_interface_carrier left veth": 1,
		"network_interface_mtu left veth": 1500, "network_interface_speed left veth": 10_000_000_000})
	setDown(t, "right")
	await(t, func() bool { return firstLine(class+"/left/operstate") != "up" })
	after := says(t, l)
	expect(t, after, map[string]int64{"network_interface_up left veth": 1, "network_interface_carrier left veth": 0, "network_interface_up right veth": 0})
	expect(t, grown(before, after), map[string]int64{"network_interface_carrier_changes left veth": 1})
	if want := firstLine(class + "/left/carrier_changes"); want == "" {
		t.Error("sysfs does not tell carrier changes")
	}
	removeInterface(t, "left")
	if got := says(t, l); len(got) != 4 {
		t.Errorf("without the pair there is %v", got)
	}
}

// TestOtherLinks has more interfaces than are shown: their MTUs have no sum.
func TestOtherLinks(t *testing.T) {
	class := newNamespace(t)
	newVeth(t, class, "left", "right")
	l := opened[*link](t)(openLink(class, 1))
	expect(t, says(t, l), map[string]int64{"network_interface_up other veth": 2, "network_interface_carrier other veth": 2,
		"network_interface_mtu other veth": -1, "network_interface_speed other veth": 20_000_000_000})
}

func TestSizesOfTheKernel(t *testing.T) {
	for name, got := range map[string][2]uintptr{
		"struct ifreq":             {unsafe.Sizeof(ifreq{}), 40},
		"struct ethtool_cmd":       {unsafe.Sizeof(ethtoolCmd{}), 44},
		"ethtool_cmd.speed":        {unsafe.Offsetof(ethtoolCmd{}.speed), 12},
		"ethtool_cmd.speed_hi":     {unsafe.Offsetof(ethtoolCmd{}.speedHi), 28},
		"the pointer in an ifreq":  {unsafe.Offsetof(ifreq{}.data), 16},
		"struct inet_diag_req_v2":  {diagRequestSize, 56},
		"netlink header and ifreq": {unix.NLMSG_HDRLEN + unix.SizeofIfInfomsg, 32},
	} {
		if got[0] != got[1] {
			t.Errorf("%s is %d, want %d", name, got[0], got[1])
		}
	}
}

// answer is a netlink message.
func answer(kind, flags uint16, payload ...byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(payload)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = append(b, make([]byte, 8)...)
	b = append(b, payload...)
	return append(b, make([]byte, -len(payload)&3)...)
}

func TestNetlinkMessages(t *testing.T) {
	var n netlink
	var got [][]byte
	each := func(b []byte) { got = append(got, slices.Clone(b)) }
	done, err := n.messages(slices.Concat(answer(16, 2, 1, 2, 3), answer(16, 2, 4), answer(unix.NLMSG_DONE, 2, 0, 0, 0, 0)), each)
	if !done || err != nil || len(got) != 2 || len(got[0]) != 3 || got[1][0] != 4 {
		t.Errorf("read %v, %v, %v", got, done, err)
	}
	if done, err := n.messages(answer(16, 2, 1), each); done || err != nil {
		t.Errorf("a list that goes on: %v, %v", done, err)
	}
	refused := -int32(unix.ENOENT)
	for what, c := range map[string]struct {
		b    []byte
		want error
	}{
		"an error":               {answer(unix.NLMSG_ERROR, 0, binary.NativeEndian.AppendUint32(nil, uint32(refused))...), unix.ENOENT},
		"an error at the end":    {answer(unix.NLMSG_DONE, 0, binary.NativeEndian.AppendUint32(nil, uint32(refused))...), unix.ENOENT},
		"a list that changed":    {answer(16, unix.NLM_F_DUMP_INTR, 1), errInterrupted},
		"a header cut short":     {answer(16, 2)[:10], errShort},
		"a message cut short":    {answer(16, 2, 1, 2, 3, 4)[:18], errShort},
		"a length below headers": {make([]byte, 16), errShort},
	} {
		if _, err := n.messages(c.b, each); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestListsThatFailAreGivenUp asks for what there is not, then for what there
// is, by the same socket.
func TestListsThatFailAreGivenUp(t *testing.T) {
	l := opened[*link](t)(openLink("/sys/class/net", 10))
	if err := l.netlink.list(0x7ff0, make([]byte, 32), func([]byte) {}); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("a list that there is not: %v", err)
	}
	if l.netlink.fd >= 0 {
		t.Error("the socket is kept")
	}
	if got := says(t, l); got["network_interface_mtu lo loopback"] == 0 {
		t.Errorf("read %v", got)
	}
	if _, err := openNetlink(250, 1); !errors.Is(err, unix.EPROTONOSUPPORT) && !errors.Is(err, unix.EINVAL) {
		t.Errorf("a protocol that there is not: %v", err)
	}
}

func FuzzNetlink(f *testing.F) {
	attributes := slices.Concat(make([]byte, unix.SizeofIfInfomsg), attribute(unix.IFLA_IFNAME, 'l', 'o', 0), attribute(unix.IFLA_MTU, 1, 2, 3, 4), attribute(unix.IFLA_CARRIER, 1))
	f.Add(answer(16, 2, attributes...))
	f.Add(answer(20, 2, make([]byte, diagSize)...))
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var n netlink
		l := link{ioctl: fd, roster: roster{source: links, columns: linkColumns, key: "interface", limit: 2, look: func(d *device) { d.label = d.id }}}
		l.part = l.attribute
		l.roster.begin()
		n.messages(b, l.parse)
		if err := l.roster.end(&metric.Frame{}); err != nil {
			t.Error(err)
		}
		var c tcpCount
		n.messages(b, c.count)
		p := tcpBacklog{roster: roster{source: tcpListen, columns: tcpListenColumns, key: "port", limit: 2, look: func(d *device) { d.label = d.id }}}
		p.roster.begin()
		n.messages(b, p.add)
		if err := p.roster.end(&metric.Frame{}); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkLinks(b *testing.B) {
	benchmark(b, opened[*link](b)(openLink("/sys/class/net", maxInterfaces)))
}

// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

const netdevHead = "Inter-|   Receive | Transmit\n face |bytes ...\n"

// netdevLine has 16 numbers, from first on.
func netdevLine(name string, first int) string {
	line := fmt.Sprintf("%6s:", name)
	for i := range 16 {
		line += fmt.Sprintf(" %7d", first+i)
	}
	return line + "\n"
}

// fakeNetdev is a source of files that the test writes.
type fakeNetdev struct {
	*netdev
	t          testing.TB
	dir, class string
}

func newFakeNetdev(t testing.TB, limit int) *fakeNetdev {
	t.Helper()
	f := &fakeNetdev{t: t, dir: t.TempDir(), class: t.TempDir()}
	f.write("")
	f.netdev = opened[*netdev](t)(openNetdev(f.dir, f.class, limit))
	return f
}

func (f *fakeNetdev) write(lines string) {
	f.t.Helper()
	write(f.t, filepath.Join(f.dir, "dev"), netdevHead+lines)
}

// exists makes an interface of an index.
func (f *fakeNetdev) exists(name string, index int) {
	f.t.Helper()
	write(f.t, filepath.Join(f.class, name, "ifindex"), fmt.Sprintln(index))
	write(f.t, filepath.Join(f.class, name, "iflink"), fmt.Sprintln(index))
}

func (f *fakeNetdev) is(name, file, text string) {
	f.t.Helper()
	write(f.t, filepath.Join(f.class, name, file), text)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func starts(t testing.TB, f *metric.Frame, name string) int64 {
	t.Helper()
	i := slices.IndexFunc(f.Schema.Series, func(s metric.Series) bool { return slices.Contains(s.Values, name) })
	if i < 0 {
		t.Fatalf("no series of %s", name)
	}
	return f.Schema.Series[i].Start
}

func TestNetdevColumns(t *testing.T) {
	f := newFakeNetdev(t, 10)
	f.is("eth0", "device", "")
	f.is("lo", "type", "772\n")
	f.write(netdevLine("lo", 101) + netdevLine("eth0", 1))
	got := says(t, f)
	expect(t, got, map[string]int64{
		"network_interface_bytes receive eth0 physical": 1, "network_interface_packets receive eth0 physical": 2,
		"network_interface_errors receive eth0 physical": 3, "network_interface_drops receive eth0 physical": 4,
		"network_interface_fifo_errors receive eth0 physical": 5, "network_interface_frame_errors eth0 physical": 6,
		"network_interface_compressed_packets receive eth0 physical": 7, "network_interface_multicast_packets eth0 physical": 8,
		"network_interface_bytes transmit eth0 physical": 9, "network_interface_packets transmit eth0 physical": 10,
		"network_interface_errors transmit eth0 physical": 11, "network_interface_drops transmit eth0 physical": 12,
		"network_interface_fifo_errors transmit eth0 physical": 13, "network_interface_collisions eth0 physical": 14,
		"network_interface_carrier_errors eth0 physical": 15, "network_interface_compressed_packets transmit eth0 physical": 16,
		"network_interface_bytes receive lo loopback": 101,
	})
	if len(got) != 32 {
		t.Errorf("%d series", len(got))
	}
}

func TestInterfacesComeAndGo(t *testing.T) {
	f := newFakeNetdev(t, 10)
	f.exists("a", 1)
	f.write(netdevLine("a", 100))
	var frame metric.Frame
	read := func() map[string]uint64 {
		t.Helper()
		if err := f.Read(&frame); err != nil {
			t.Fatal(err)
		}
		return values(&frame)
	}
	read()
	first := frame.Schema
	if got := starts(t, &frame, "a"); got != host.BootTime() {
		t.Errorf("an interface older than the agent counts from %d", got)
	}
	f.write(netdevLine("a", 107))
	if got := read(); got["network_interface_bytes receive a virtual"] != 107 || frame.Schema != first {
		t.Errorf("read %v, of the same schema: %v", got, frame.Schema == first)
	}
	// Another interface of the name: what it has counted is its own.
	f.exists("a", 2)
	f.write(netdevLine("a", 5))
	before := f.roster.last
	if got := read(); got["network_interface_bytes receive a virtual"] != 5 || starts(t, &frame, "a") != before {
		t.Errorf("another interface says %v since %d", got, starts(t, &frame, "a"))
	}
	// The same one with other counters: when they fell is not known.
	f.write(netdevLine("a", 1))
	if got := read(); got["network_interface_bytes receive a virtual"] != 0 || starts(t, &frame, "a") <= before {
		t.Errorf("counters that fell say %v since %d", got, starts(t, &frame, "a"))
	}
	f.write(netdevLine("a", 4))
	if got := read(); got["network_interface_bytes receive a virtual"] != 3 {
		t.Errorf("counters that fell and grew by 3 say %v", got)
	}
	f.write("")
	if got := read(); len(got) != 0 {
		t.Errorf("without interfaces there is %v", got)
	}
	f.write(netdevLine("b", 0)[:7] + strings.Repeat(" 0", 16) + "\n")
	if read(); starts(t, &frame, "b") <= before {
		t.Errorf("a new interface counts from %d", starts(t, &frame, "b"))
	}
	// The same members in another order.
	f.write(netdevLine("b", 3) + netdevLine("c", 50))
	read()
	f.write(netdevLine("c", 60) + netdevLine("b", 4))
	expect(t, read(), map[string]int64{"network_interface_bytes receive b virtual": 4, "network_interface_bytes receive c virtual": 60})
}

// TestOtherInterfacesAddUp has more interfaces than are shown, of two kinds.
func TestOtherInterfacesAddUp(t *testing.T) {
	f := newFakeNetdev(t, 2)
	for _, name := range []string{"p1", "p2"} {
		f.is(name, "device", "")
	}
	f.exists("v3", 3)
	f.write(netdevLine("p1", 1000) + netdevLine("v1", 100) + netdevLine("p2", 2000) + netdevLine("v2", 10) + netdevLine("v3", 20))
	sum := func(direction, kind string) (sum uint64) {
		for key, value := range says(t, f) {
			if strings.HasPrefix(key, "network_interface_bytes "+direction) && strings.HasSuffix(key, kind) {
				sum += value
			}
		}
		return sum
	}
	expect(t, says(t, f), map[string]int64{
		"network_interface_bytes receive p1 physical": 1000, "network_interface_bytes receive v1 virtual": 100,
		"network_interface_bytes receive other physical": 2000, "network_interface_bytes receive other virtual": 30,
		"network_interface_bytes receive v2 virtual": -1,
	})
	if got := sum("receive", "virtual"); got != 130 {
		t.Errorf("virtual interfaces add up to %d", got)
	}
	// v2 goes: what it counted stays. v3 stays where it is although there
	// is room, for its series must not begin in the middle.
	f.write(netdevLine("p1", 1000) + netdevLine("p2", 2005) + netdevLine("v3", 25))
	expect(t, says(t, f), map[string]int64{
		"network_interface_bytes receive other physical": 2005, "network_interface_bytes receive other virtual": 35,
		"network_interface_bytes receive v3 virtual": -1, "network_interface_bytes receive v1 virtual": -1,
	})
	// v4 takes the room. One whose name is taken does not.
	f.write(netdevLine("p1", 1000) + netdevLine("p2", 2005) + netdevLine("other", 1) + netdevLine("v3", 26) + netdevLine("v4", 7))
	expect(t, says(t, f), map[string]int64{"network_interface_bytes receive other virtual": 37, "network_interface_bytes receive v4 virtual": 7})
	// v4 goes, v3 is another device now, and has the room.
	f.write(netdevLine("p1", 1000) + netdevLine("p2", 2005) + netdevLine("other", 1) + netdevLine("v3", 26))
	says(t, f)
	f.exists("v3", 4)
	f.write(netdevLine("p1", 1000) + netdevLine("p2", 2005) + netdevLine("other", 1) + netdevLine("v3", 5))
	expect(t, says(t, f), map[string]int64{"network_interface_bytes receive other virtual": 37, "network_interface_bytes receive v3 virtual": 5})
}

func TestOtherFormsOfNetdevAreErrors(t *testing.T) {
	f := newFakeNetdev(t, 10)
	for _, text := range []string{"", "x\n", netdevHead + "eth0 1 2 3\n", netdevHead + "eth0: 1 2 3\n", netdevHead + ": 1\n"} {
		write(t, filepath.Join(f.dir, "dev"), text)
		if err := f.Read(&metric.Frame{}); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestGaugesThatAreNotKnown has a device whose gauge comes, changes and goes.
func TestGaugesThatAreNotKnown(t *testing.T) {
	r := roster{source: links, columns: linkColumns, key: "interface", limit: 1, look: func(d *device) { d.label, d.kind = d.id, "virtual" }}
	var f metric.Frame
	says := func(speed uint64) map[string]uint64 {
		t.Helper()
		r.begin()
		for _, name := range []string{"a", "b"} {
			d := r.see([]byte(name))
			d.now[linkUp], d.now[linkMTU], d.now[linkSpeed] = 1, 9000, speed
		}
		if err := r.end(&f); err != nil {
			t.Fatal(err)
		}
		return values(&f)
	}
	const one, all = "network_interface_speed a virtual", "network_interface_speed other virtual"
	expect(t, says(unknown), map[string]int64{one: -1, all: 0, "network_interface_up a virtual": 1})
	expect(t, says(1000), map[string]int64{one: 1e9, all: 1e9, "network_interface_mtu a virtual": 9000, "network_interface_mtu other virtual": -1})
	before := f.Schema
	if says(2500); f.Schema != before {
		t.Error("another schema for another speed")
	}
	expect(t, says(unknown), map[string]int64{one: -1, all: 0})
}

// sendFrames sends frames of a size through an interface (packet(7)).
func sendFrames(t *testing.T, name string, n, size int) {
	t.Helper()
	const all = 0x0300 // ETH_P_ALL in the byte order of the network
	fd := socket(t, unix.AF_PACKET, unix.SOCK_RAW, all)
	frame := make([]byte, size)
	copy(frame, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01")
	binary.BigEndian.PutUint16(frame[12:], 0x88b5) // for local experiments: no protocol takes it
	for range n {
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index(t, name)}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLoopbackCountsFrames sends 101 frames of 137 bytes with a header of 14,
// which loopback takes off before it counts (drivers/net/loopback.c).
func TestLoopbackCountsFrames(t *testing.T) {
	class := newNamespace(t)
	n := opened[*netdev](t)(openNetdev(threadNet, class, 10))
	before := says(t, n)
	sendFrames(t, "lo", 101, 137)
	expect(t, grown(before, says(t, n)), map[string]int64{
		"network_interface_bytes receive lo loopback": 101 * 123, "network_interface_bytes transmit lo loopback": 101 * 123,
		"network_interface_packets receive lo loopback": 101, "network_interface_packets transmit lo loopback": 101,
		"network_interface_errors receive lo loopback": 0, "network_interface_errors transmit lo loopback": 0,
	})
	allocates(t, n)
}

// TestVethCountsFrames makes pairs of interfaces, sends through one, and has
// them go and come again.
func TestVethCountsFrames(t *testing.T) {
	class := newNamespace(t)
	n := opened[*netdev](t)(openNetdev(threadNet, class, 3))
	if got := says(t, n); len(got) != len(netdevColumns) {
		t.Fatalf("a new namespace has %v", got)
	}
	newVeth(t, class, "left", "right")
	before := says(t, n)
	sendFrames(t, "left", 23, 211)
	expect(t, grown(before, says(t, n)), map[string]int64{
		"network_interface_bytes transmit left veth": 23 * 211, "network_interface_packets transmit left veth": 23,
		"network_interface_bytes receive right veth": 23 * 211, "network_interface_packets receive right veth": 23,
		"network_interface_bytes receive left veth": 0, "network_interface_bytes transmit right veth": 0,
		"network_interface_bytes receive lo loopback": 0,
	})
	// Two more are beyond the bound.
	newVeth(t, class, "third", "fourth")
	sendFrames(t, "third", 29, 307)
	expect(t, says(t, n), map[string]int64{
		"network_interface_bytes transmit other veth": 29 * 307, "network_interface_packets receive other veth": 29,
		"network_interface_bytes transmit third veth": -1,
	})
	// The first pair goes and another of its name comes.
	removeInterface(t, "left")
	newVeth(t, class, "left", "right")
	sendFrames(t, "left", 7, 100)
	expect(t, says(t, n), map[string]int64{"network_interface_bytes transmit left veth": 700, "network_interface_packets receive right veth": 7})
	removeInterface(t, "third")
	expect(t, says(t, n), map[string]int64{"network_interface_bytes transmit other veth": 29 * 307})
}

func FuzzNetdev(f *testing.F) {
	f.Add([]byte(netdevHead + netdevLine("lo", 1)))
	f.Add([]byte(netdevHead + "a:1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := roster{source: interfaces, columns: netdevColumns, key: "interface", limit: 2,
			look: func(d *device) { d.label, d.kind = d.id, "virtual" }}
		for range 2 {
			r.begin()
			if parseNetdev(&r, b) != nil {
				return
			}
			var frame metric.Frame
			if err := r.end(&frame); err != nil {
				t.Fatal(err)
			}
			if shown := min(len(r.order), 2); len(frame.Schema.Series) < shown*len(netdevColumns) {
				t.Errorf("%d devices, %d series", len(r.order), len(frame.Schema.Series))
			}
		}
	})
}

func BenchmarkNetdev(b *testing.B) {
	benchmark(b, opened[*netdev](b)(openNetdev("/proc/net", "/sys/class/net", maxInterfaces)))
}

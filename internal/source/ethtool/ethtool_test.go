// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// fake is a machine with these interfaces.
type fake struct {
	order  []string
	cards  map[string]*fakeCard
	asked  int
	closed bool
}

type fakeCard struct {
	names  []string
	values []uint64
	refuse error
}

func (f *fake) interfaces() ([]string, error) { f.asked++; return f.order, nil }

func (f *fake) names(name string) ([]string, error) { return f.cards[name].names, f.cards[name].refuse }

func (f *fake) values(name string, to []uint64) error {
	c := f.cards[name]
	if c == nil {
		return unix.ENODEV
	}
	if len(to) != len(c.values) {
		return errChanged
	}
	copy(to, c.values)
	return c.refuse
}

func (f *fake) Close() error { f.closed = true; return nil }

// ena is what the driver has, among much else.
var ena = []string{"total_resets", "bw_in_allowance_exceeded", "bw_out_allowance_exceeded", "pps_allowance_exceeded",
	"conntrack_allowance_exceeded", "linklocal_allowance_exceeded", "conntrack_allowance_available", "queue_0_tx_cnt"}

func instance() *fake {
	return &fake{order: []string{"lo", "eth0", "eth1"}, cards: map[string]*fakeCard{
		"lo":   {},
		"eth0": {names: ena, values: []uint64{99, 11, 12, 13, 14, 15, 16, 98}},
		"eth1": {names: ena[:5], values: []uint64{99, 21, 22, 23, 24}}, // of an older driver
	}}
}

func values(t testing.TB, s *Source) (m map[string]uint64, f metric.Frame) {
	t.Helper()
	if err := s.Read(&f); err != nil {
		t.Fatal(err)
	}
	m = map[string]uint64{}
	for _, series := range f.Schema.Series {
		m[strings.Join(append([]string{strings.TrimPrefix(series.Desc.Name, "network_ena_")}, series.Values...), " ")] = f.Values[series.Off]
	}
	return m, f
}

func expect(t testing.TB, got, want map[string]uint64) {
	t.Helper()
	for key, value := range want {
		if g, ok := got[key]; !ok || g != value {
			t.Errorf("%s = %d, %v; want %d", key, g, ok, value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

// TestAllowancesOfEveryInterface has two: each keeps its own numbers.
func TestAllowancesOfEveryInterface(t *testing.T) {
	s, err := open(instance())
	if err != nil {
		t.Fatal(err)
	}
	got, f := values(t, s)
	expect(t, got, map[string]uint64{
		"bandwidth_allowance_exceeded receive eth0": 11, "bandwidth_allowance_exceeded transmit eth0": 12, "pps_allowance_exceeded eth0": 13,
		"conntrack_allowance_exceeded eth0": 14, "linklocal_allowance_exceeded eth0": 15, "conntrack_allowance_available eth0": 16,
		"bandwidth_allowance_exceeded receive eth1": 21, "bandwidth_allowance_exceeded transmit eth1": 22,
		"pps_allowance_exceeded eth1": 23, "conntrack_allowance_exceeded eth1": 24,
	})
	if start := f.Schema.Series[0].Start; start != host.BootTime() {
		t.Errorf("an interface older than the agent counts from %d", start)
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := s.Read(&f); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations in a read", n)
	}
}

func TestInterfacesAreFoundAgain(t *testing.T) {
	k := instance()
	s, err := open(k)
	if err != nil {
		t.Fatal(err)
	}
	values(t, s)
	if k.asked != 1 {
		t.Errorf("looked for interfaces %d times before the first read's end", k.asked)
	}
	// One is attached and found within the interval.
	k.order = append(k.order, "eth2")
	k.cards["eth2"] = &fakeCard{names: ena[:2], values: []uint64{0, 31}}
	s.looked -= int64(rediscover) + 1
	got, f := values(t, s)
	if got["bandwidth_allowance_exceeded receive eth2"] != 31 || len(got) != 11 {
		t.Errorf("read %v", got)
	}
	if last := f.Schema.Series[len(f.Schema.Series)-1]; last.Start <= host.BootTime() || last.Start > host.Wall() {
		t.Errorf("a new interface counts from %d", last.Start)
	}
	// One goes away: no frame, then one without it.
	k.order = []string{"lo", "eth0"}
	delete(k.cards, "eth1")
	if err := s.Read(&f); !errors.Is(err, unix.ENODEV) {
		t.Errorf("an interface that is gone: %v", err)
	}
	if got, _ := values(t, s); len(got) != 6 {
		t.Errorf("read %v", got)
	}
	// The driver was replaced by one with less.
	k.cards["eth0"] = &fakeCard{names: ena[1:2], values: []uint64{5}}
	if err := s.Read(&f); !errors.Is(err, errChanged) {
		t.Errorf("a driver that was replaced: %v", err)
	}
	got, _ = values(t, s)
	expect(t, got, map[string]uint64{"bandwidth_allowance_exceeded receive eth0": 5})
	// The last one goes: the source stays, and says nothing.
	k.order = nil
	s.looked -= int64(rediscover) + 1
	if got, _ := values(t, s); len(got) != 0 {
		t.Errorf("without interfaces there is %v", got)
	}
}

func TestMachinesWithoutAllowances(t *testing.T) {
	k := instance()
	k.order = []string{"lo"}
	if _, err := open(k); !errors.Is(err, source.ErrUnsupported) || !k.closed {
		t.Errorf("a machine with loopback alone: %v, closed %v", err, k.closed)
	}
	k = instance()
	k.cards["eth0"].refuse, k.cards["eth1"].refuse = unix.EIO, unix.EIO
	if _, err := open(k); !errors.Is(err, source.ErrUnsupported) {
		t.Errorf("drivers that refuse: %v", err)
	}
}

// TestThisMachine is honest about the interfaces of this one.
func TestThisMachine(t *testing.T) {
	sampler := Samplers()[0]
	s, err := sampler.Open()
	if err == nil {
		t.Cleanup(func() { s.Close() })
		if got, _ := values(t, s.(*Source)); len(got) == 0 {
			t.Error("it is supported, and says nothing")
		}
		return
	}
	if !errors.Is(err, source.ErrUnsupported) {
		t.Error(err)
	}
	driver, _ := os.Readlink("/sys/class/net/eth0/device/driver")
	if strings.HasSuffix(driver, "/ena") {
		t.Errorf("eth0 is an ENA: %v", err)
	}
}

// TestLoopbackHasNoStatistics asks the kernel itself.
func TestLoopbackHasNoStatistics(t *testing.T) {
	s, err := newSocket()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if names, err := s.names("lo"); err != nil || len(names) != 0 {
		t.Errorf("loopback has %v, %v", names, err)
	}
	if _, err := s.names("nosuch0"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("an interface that there is not: %v", err)
	}
	if err := s.values("nosuch0", make([]uint64, 3)); !errors.Is(err, unix.ENODEV) {
		t.Errorf("an interface that there is not: %v", err)
	}
}

// TestStatisticsOfTheKernel reads those of every interface here whose driver
// has any, as virtio's and veth's do, twice.
func TestStatisticsOfTheKernel(t *testing.T) {
	s, err := newSocket()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		names, err := s.names(i.Name)
		if err != nil {
			t.Fatal(err)
		}
		if len(names) == 0 {
			continue
		}
		if slices.Contains(names, "") {
			t.Errorf("%s: %q", i.Name, names)
		}
		before, after := make([]uint64, len(names)), make([]uint64, len(names))
		for _, to := range [][]uint64{before, after} {
			if err := s.values(i.Name, to); err != nil {
				t.Fatal(err)
			}
		}
		for j, name := range names {
			if strings.HasSuffix(name, "_packets") && after[j] < before[j] {
				t.Errorf("%s: %s fell from %d to %d", i.Name, name, before[j], after[j])
			}
		}
		t.Logf("%s has %d statistics: %v", i.Name, len(names), names[:min(4, len(names))])
		if err := s.values(i.Name, make([]uint64, len(names)+1)); !errors.Is(err, errChanged) {
			t.Errorf("%s has one more: %v", i.Name, err)
		}
	}
}

func TestSizesOfTheKernel(t *testing.T) {
	if size, data := unsafe.Sizeof(ifreq{}), unsafe.Offsetof(ifreq{}.data); size != 40 || data != 16 {
		t.Errorf("struct ifreq has %d bytes, the pointer at %d", size, data)
	}
}

// stringsOf is struct ethtool_gstrings.
func stringsOf(names ...string) []byte {
	b := make([]byte, headerSize)
	binary.NativeEndian.PutUint32(b[8:], uint32(len(names)))
	for _, name := range names {
		b = append(b, append([]byte(name), make([]byte, nameSize-len(name))...)...)
	}
	return b
}

func TestNamesOfStatistics(t *testing.T) {
	long := strings.Repeat("x", nameSize)
	if got := parseNames(stringsOf("a", long, "bw_in_allowance_exceeded")); !slices.Equal(got, []string{"a", long, "bw_in_allowance_exceeded"}) {
		t.Errorf("read %q", got)
	}
	if got := parseNames(stringsOf("a", "b")[:headerSize+nameSize+3]); !slices.Equal(got, []string{"a"}) {
		t.Errorf("cut short: %q", got)
	}
	if got := choose([]string{"x", "pps_allowance_exceeded"}); len(got) != 1 || got[0].from != 1 || statistics[got[0].statistic].name != "pps_allowance_exceeded" {
		t.Errorf("chose %v", got)
	}
}

func TestTheSamplerSaysWhatItIs(t *testing.T) {
	for _, s := range Samplers() {
		for _, d := range s.Descs {
			if err := d.Validate(); err != nil || d.Sampler != s.Name || d.Help == "" {
				t.Errorf("%+v: %v", d, err)
			}
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add(stringsOf("a", "bw_in_allowance_exceeded"))
	f.Fuzz(func(t *testing.T, b []byte) {
		names := parseNames(b)
		for _, take := range choose(names) {
			if names[take.from] != statistics[take.statistic].name {
				t.Errorf("%q: %v", names, take)
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	s, err := open(instance())
	if err != nil {
		b.Fatal(err)
	}
	var f metric.Frame
	for b.Loop() {
		if err := s.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// tree writes files of a sysfs.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const devices = "bus/event_source/devices/"

func TestEncodeByTheFormatFiles(t *testing.T) {
	root := tree(t, map[string]string{devices + "u/type": "17", devices + "u/format/event": "config:0-7,32-35",
		devices + "u/format/umask": "config:8-15", devices + "u/format/edge": "config:18", devices + "u/format/filter": "config1:17-26",
		devices + "u/events/hits": "event=0x1c2,umask=3,edge"})
	u, err := readPMU(root, "u")
	if err != nil {
		t.Fatal(err)
	}
	f := func(terms string, want code) {
		t.Helper()
		want.kind = 17
		if got, err := u.encode(terms); err != nil || got != want {
			t.Errorf("%s is %+v, %v; want %+v", terms, got, err, want)
		}
	}
	f("event=0x1c2,umask=0x03", code{config: 1<<32 | 0x03c2})
	f("edge,filter=0x3ff", code{config: 1 << 18, config1: 0x3ff << 17})
	f("config=0x1234,config1=7", code{config: 0x1234, config1: 7})
	if got, err := u.named("hits"); err != nil || got.config != 1<<32|1<<18|0x03c2 {
		t.Errorf("the event hits is %+v, %v", got, err)
	}
	for _, terms := range []string{"", "event", "event=", "event=0x1000", "umask=256", "unknown=1", "event=x"} {
		if got, err := u.encode(terms); err == nil && terms != "event" {
			t.Errorf("%q is accepted as %+v", terms, got)
		}
	}
	if _, err := readPMU(root, "none"); !errors.Is(err, source.ErrUnsupported) {
		t.Errorf("error %v, want that it is unsupported", err)
	}
}

func FuzzParseFormat(f *testing.F) {
	f.Add("config:0-7,32-35", uint64(0x1c2))
	f.Add("config1:63", uint64(1))
	f.Add("config:64", uint64(1))
	f.Fuzz(func(t *testing.T, text string, value uint64) {
		word, mask, err := parseFormat(text)
		if err != nil {
			return
		}
		if word > 1 || mask == 0 {
			t.Fatalf("%q is word %d, mask %#x", text, word, mask)
		}
		out := deposit(value, mask)
		low := value
		if n := bits.OnesCount64(mask); n < 64 {
			low &= 1<<n - 1
		}
		if out&^mask != 0 || bits.OnesCount64(out) != bits.OnesCount64(low) {
			t.Errorf("%#x spread over %#x is %#x", value, mask, out)
		}
	})
}

// cache writes that a CPU has the L3 cache id.
func cache(files map[string]string, cpu, id string) {
	files["devices/system/cpu/cpu"+cpu+"/cache/index3/id"] = id
}

// l3 opens cpu_l3 on a fake kernel over a written sysfs.
func l3(t *testing.T, f *fake, root string) *Source {
	t.Helper()
	s, err := openSource("cpu_l3", f, true, func([]int) ([]target, error) { return l3Targets(root) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, s, f) })
	return s
}

func TestL3OfAMDHasEveryDomain(t *testing.T) {
	files := map[string]string{devices + "amd_l3/type": "11", devices + "amd_l3/cpumask": "0,8",
		devices + "amd_l3/format/event": "config:0-7", devices + "amd_l3/format/umask": "config:8-15"}
	cache(files, "0", "0")
	cache(files, "8", "4")
	f := newFake("0-15")
	f.say(0, 0xff04, 10, 10, map[uint64]uint64{0xff04: 100, 0x0104: 10})
	f.say(8, 0xff04, 10, 10, map[uint64]uint64{0xff04: 200, 0x0104: 20})
	var frame metric.Frame
	expect(t, shown(t, l3(t, f, tree(t, files)), &frame), map[string]uint64{"cpu_l3_access 0": 100, "cpu_l3_miss 0": 10,
		"cpu_l3_access 4": 200, "cpu_l3_miss 4": 20, "perf_multiplexed cpu_l3_access": 0, "perf_multiplexed cpu_l3_miss": 0})
	for _, o := range f.fds {
		if o.attr.Type != 11 {
			t.Errorf("opened %+v", o)
		}
	}
}

// boxes writes two packages with three CHAs each.
func boxes(formats map[string]string) map[string]string {
	files := map[string]string{}
	for box, kind := range map[string]string{"0": "30", "1": "31", "2": "32"} {
		dir := devices + "uncore_cha_" + box + "/"
		files[dir+"type"], files[dir+"cpumask"] = kind, "0,24"
		for name, text := range formats {
			files[dir+"format/"+name] = text
		}
	}
	cache(files, "0", "0")
	cache(files, "24", "1")
	return files
}

var (
	iceLake = map[string]string{"event": "config:0-7", "umask": "config:8-15,32-57"}
	skylake = map[string]string{"event": "config:0-7", "umask": "config:8-15", "filter_state": "config1:17-26", "filter_rem": "config1:0",
		"filter_loc": "config1:1", "filter_all_op": "config1:3", "filter_nm": "config1:4", "filter_not_nm": "config1:5"}
)

func TestL3OfIntelIsTheSumOfAllBoxes(t *testing.T) {
	const access, miss = 0x1fff<<32 | 0xff34, 0xc001fe<<32 | 0x0135
	f := newFake("0-47")
	f.say(0, access, 10, 10, map[uint64]uint64{access: 100, miss: 10})
	f.say(24, access, 10, 10, map[uint64]uint64{access: 200, miss: 20})
	s := l3(t, f, tree(t, boxes(iceLake)))
	var frame metric.Frame
	got := shown(t, s, &frame)
	if got["cpu_l3_access 0"] != 300 || got["cpu_l3_miss 0"] != 30 || got["cpu_l3_access 1"] != 600 || got["cpu_l3_miss 1"] != 60 || len(got) != 6 {
		t.Errorf("there is %v", got)
	}
	kinds := map[uint32]int{}
	for _, o := range f.fds {
		kinds[o.attr.Type]++
	}
	if len(kinds) != 3 || kinds[30] != 4 || kinds[31] != 4 || kinds[32] != 4 {
		t.Errorf("counters by unit: %v, want 4 of each of 3", kinds)
	}
	// A sum that lacks a box is no sum: one that fails takes its cache along.
	f.says[spot{0, -1, access}] = says{err: unix.EIO}
	got = shown(t, s, &frame)
	if _, there := got["cpu_l3_access 0"]; there || got["cpu_l3_access 1"] != 600 {
		t.Errorf("there is %v", got)
	}
}

func TestL3OfSkylakeFilters(t *testing.T) {
	f := newFake("0-47")
	l3(t, f, tree(t, boxes(skylake)))
	for _, o := range f.fds {
		if want := map[uint64]uint64{0x1134: 0x3ff << 17, 0x2135: 0x3b}[o.attr.Config]; want == 0 || o.attr.Ext1 != want {
			t.Errorf("opened %#x with filter %#x", o.attr.Config, o.attr.Ext1)
		}
	}
}

func TestL3Unsupported(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no unit":         {devices + "software/type": "1"},
		"unknown formats": boxes(map[string]string{"event": "config:0-7"}),
	} {
		if _, err := l3Targets(tree(t, files)); !errors.Is(err, source.ErrUnsupported) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	files := map[string]string{"devices/system/cpu/cpu3/topology/physical_package_id": "1"}
	if id, err := l3ID(tree(t, files), 3); id != "1" || err != nil {
		t.Errorf("without cache ids CPU 3 is of %q, %v; want its package", id, err)
	}
}

func TestFrequencyNeedsAPERFAndMPERF(t *testing.T) {
	files := map[string]string{devices + "msr/type": "9", devices + "msr/format/event": "config:0-63", devices + "msr/events/tsc": "event=0x00"}
	if _, err := frequencyEvents(tree(t, files)); !errors.Is(err, source.ErrUnsupported) || !strings.Contains(err.Error(), "aperf") {
		t.Errorf("without APERF: error %v", err)
	}
	files[devices+"msr/events/aperf"], files[devices+"msr/events/mperf"] = "event=0x01", "event=0x02"
	groups, err := frequencyEvents(tree(t, files))
	if err != nil || len(groups) != 1 || !groups[0].pinned {
		t.Fatalf("%+v, %v; want one pinned group", groups, err)
	}
	var got []code
	for _, e := range groups[0].events {
		got = append(got, e.code)
	}
	if want := []code{{kind: 9, config: 1}, {kind: 9, config: 2}, {kind: 9}}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func TestHybridProcessorsNameTheUnit(t *testing.T) {
	root := tree(t, map[string]string{devices + "cpu_core/type": "4", devices + "cpu_core/cpus": "0-1",
		devices + "cpu_atom/type": "10", devices + "cpu_atom/cpus": "2"})
	targets := perCPU(root, []int{0, 2}, nil)
	if len(targets) != 2 || targets[0].places[0] != (place{0, 4}) || targets[1].places[0] != (place{2, 10}) || targets[1].member != "2" {
		t.Errorf("targets %+v", targets)
	}
	f := func(c code, p place, want code) {
		t.Helper()
		if got := c.at(p); got != want {
			t.Errorf("%+v at %+v is %+v, want %+v", c, p, got, want)
		}
	}
	f(raw(0x45), place{2, 10}, code{kind: 10, config: 0x45})
	f(raw(0x45), place{2, 0}, raw(0x45))
	f(softwareCode(5), place{2, 10}, softwareCode(5))
	if runtime.GOARCH == "amd64" {
		f(hardware(1), place{2, 10}, code{config: 10<<32 | 1})
	} else {
		f(hardware(1), place{2, 10}, hardware(1))
	}
}

func TestDTLBByProcessor(t *testing.T) {
	f := func(arch string, p processor, want ...string) {
		t.Helper()
		var got []string
		for _, g := range dtlbOf(arch, p) {
			for _, e := range g.events {
				word := e.desc.Name + " " + e.value
				if e.code.kind == unix.PERF_TYPE_RAW {
					word += " raw"
				}
				got = append(got, word)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s %+v: %q, want %q", arch, p, got, want)
		}
	}
	f("arm64", processor{}, "cpu_dtlb_miss all raw", "cpu_dtlb_access all raw")
	f("amd64", processor{"AuthenticAMD", 0x19, 0x61}, "cpu_dtlb_miss all raw")
	f("amd64", processor{"AuthenticAMD", 0x15, 1}, "cpu_dtlb_miss load", "cpu_dtlb_access load", "cpu_dtlb_miss store", "cpu_dtlb_access store")
	f("amd64", processor{"GenuineIntel", 6, 0x55}, "cpu_dtlb_miss load raw", "cpu_dtlb_access load", "cpu_dtlb_miss store raw", "cpu_dtlb_access store")
	f("amd64", processor{"GenuineIntel", 6, 0x8f}, "cpu_dtlb_miss load", "cpu_dtlb_access load", "cpu_dtlb_miss store", "cpu_dtlb_access store")
	if e := dtlbOf("amd64", processor{})[1].events[0]; e.code.config != 3|1<<8|1<<16 {
		t.Errorf("store misses are %#x (perf_event_open(2))", e.code.config)
	}
}

func FuzzParseProcessor(f *testing.F) {
	f.Add("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: x\n\nprocessor\t: 1\nmodel\t: 1\n")
	f.Add("model : ")
	f.Fuzz(func(t *testing.T, text string) {
		if p := parseProcessor(text); p.vendor != strings.TrimSpace(p.vendor) {
			t.Errorf("%q", p.vendor)
		}
	})
}

func TestParseProcessor(t *testing.T) {
	text := "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: x\n\nprocessor\t: 1\nmodel\t: 1\n"
	if p := parseProcessor(text); p != (processor{"GenuineIntel", 6, 85}) {
		t.Errorf("%+v", p)
	}
}

func TestSamplersDescribeThemselves(t *testing.T) {
	names := map[string]bool{}
	for _, s := range Samplers(&told{}, "/sys/fs/cgroup", false, 0) {
		if names[s.Name] || s.Reads == "" || s.Open == nil || s.Every == 0 || len(s.Descs) == 0 {
			t.Errorf("sampler %+v", s)
		}
		names[s.Name] = true
		for _, d := range s.Descs {
			if err := d.Validate(); err != nil {
				t.Error(err)
			}
			if d != multiplexed && d.Sampler != s.Name {
				t.Errorf("%s of sampler %s says it is of %s", d.Name, s.Name, d.Sampler)
			}
		}
	}
	for _, want := range []string{"cpu_perf", "cpu_frequency", "cpu_branch", "cpu_cache", "cpu_dtlb", "cpu_l3", "cpu_software",
		"cpu_perf_cgroup", "cpu_software_cgroup"} {
		if !names[want] {
			t.Errorf("there is no sampler %s", want)
		}
	}
	if names["cpu_frequency_cgroup"] {
		t.Error("the msr unit knows no cgroups")
	}
}

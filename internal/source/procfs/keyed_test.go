// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// reader is a source whose files a test writes.
type reader struct {
	source.Source
	t     testing.TB
	frame metric.Frame
}

// open is the source that f makes, which is closed at the end.
func open(t testing.TB, f func() (source.Source, error)) *reader {
	t.Helper()
	s, err := f()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &reader{Source: s, t: t}
}

// says is what a read gives, by name and labels.
func (r *reader) says() map[string]uint64 {
	r.t.Helper()
	if err := r.Read(&r.frame); err != nil {
		r.t.Fatal(err)
	}
	if r.frame.Begin > r.frame.End || r.frame.Begin == 0 {
		r.t.Fatalf("read from %d to %d", r.frame.Begin, r.frame.End)
	}
	return values(&r.frame)
}

// wants reads and compares with all that is wanted.
func (r *reader) wants(want map[string]uint64) {
	r.t.Helper()
	got := r.says()
	for key, n := range want {
		if v, ok := got[key]; v != n || !ok {
			r.t.Errorf("%s = %d, %v; want %d", key, v, ok, n)
		}
	}
	for key, n := range got {
		if _, ok := want[key]; !ok {
			r.t.Errorf("%s = %d is not wanted", key, n)
		}
	}
}

// start is when a series began to count.
func (r *reader) start(key string) int64 {
	r.t.Helper()
	for _, s := range r.frame.Schema.Series {
		if strings.Join(append([]string{s.Desc.Name}, s.Values...), " ") == key {
			return s.Start
		}
	}
	r.t.Fatalf("there is no %s", key)
	return 0
}

// rewrite writes a file whole, so that those who have it open see it.
func rewrite(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// allocatesNothing reads again and again.
func allocatesNothing(t *testing.T, s source.Source) {
	t.Helper()
	var f metric.Frame
	if n := testing.AllocsPerRun(100, func() {
		if err := s.Read(&f); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations in a read", n)
	}
}

// TestSamplers holds of each sampler what it says of itself: on this machine
// it opens and publishes only what it lists, without allocating, or it says
// what the machine lacks.
func TestSamplers(t *testing.T) {
	names := map[string]bool{}
	for _, s := range Samplers() {
		if names[s.Name] {
			t.Errorf("two samplers are called %s", s.Name)
		}
		names[s.Name] = true
		t.Run(s.Name, func(t *testing.T) {
			listed := map[*metric.Desc]bool{}
			for _, d := range s.Descs {
				if err := d.Validate(); err != nil || d.Sampler != s.Name || d.Help == "" || listed[d] {
					t.Errorf("%+v: %v", d, err)
				}
				listed[d] = true
			}
			src, err := s.Open()
			if errors.Is(err, source.ErrUnsupported) {
				t.Log(err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			var f metric.Frame
			if err := src.Read(&f); err != nil {
				t.Fatal(err)
			}
			for _, series := range f.Schema.Series {
				if !listed[series.Desc] {
					t.Errorf("%s is not listed", series.Desc.Name)
				}
			}
			if len(f.Values) != f.Schema.Words || f.Schema.Source != src.Name() {
				t.Errorf("%d of %d words from %s", len(f.Values), f.Schema.Words, f.Schema.Source)
			}
			t.Logf("%d series", len(f.Schema.Series))
		})
	}
}

func TestMetricsAreDescribedOnce(t *testing.T) {
	byName := map[string]*metric.Desc{"cpu_usage": cpuUsage, "cpu_cores": cpuCores}
	for _, s := range Samplers() {
		for _, d := range s.Descs {
			if other := byName[d.Name]; other != nil && other != d {
				t.Errorf("%s is described by %s and %s", d.Name, other.Sampler, d.Sampler)
			}
			byName[d.Name] = d
		}
	}
}

func TestSeqFileIsReadToItsEnd(t *testing.T) {
	const file = "/proc/kallsyms" // a record a line, about a hundred thousand of them
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := openSeqFile(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 2 {
		// Other tests load programs, whose symbols come and go.
		if got, err := f.Read(); err != nil || len(got) < len(want)-len(want)/10 || len(want) < 100_000 {
			t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
		}
	}
}

const someMeminfo = `MemTotal:       24684084 kB
Active:            58204 kB
Active(anon):       1556 kB
Active(file):      56648 kB
NewInSomeKernel:      17 kB
SReclaimable:         23 kB
HugePages_Total:       3
DirectMap2M:     2070528 kB
`

func writtenMeminfo(t testing.TB, text string) (*reader, string) {
	path := filepath.Join(t.TempDir(), "meminfo")
	rewrite(t, path, text)
	return open(t, func() (source.Source, error) { return newKeyedSource(meminfo, path, meminfoTable) }), path
}

func TestMeminfoAsWritten(t *testing.T) {
	r, path := writtenMeminfo(t, someMeminfo)
	want := map[string]uint64{"memory_total": 24684084 << 10, "memory_active anon": 1556 << 10, "memory_active file": 56648 << 10,
		"memory_slab reclaimable": 23 << 10, "memory_hugepages_total": 3, "memory_direct_map 2M": 2070528 << 10}
	r.wants(want)
	first := r.frame.Schema
	allocatesNothing(t, r)
	if r.says(); r.frame.Schema != first {
		t.Error("another schema for the same lines")
	}
	rewrite(t, path, strings.Replace(someMeminfo, "    23 kB", "    19 kB", 1))
	want["memory_slab reclaimable"] = 19 << 10 // a gauge falls
	r.wants(want)
	rewrite(t, path, "MemTotal: 1 kB\nMemFree: 0 kB\n")
	r.wants(map[string]uint64{"memory_total": 1024, "memory_free": 0})
}

func TestKeyedRefusesOtherForms(t *testing.T) {
	for _, text := range []string{"", "MemTotal: 1 MB\n", "MemTotal:\n", "MemTotal: x kB\n", "MemTotal: 1 kB", "12\n",
		"Unknown: 1 kB\n", "MemTotal: 1 kB\nMemTotal: 1 kB\n", "MemTotal: 1 kB\n\n"} {
		r, _ := writtenMeminfo(t, text)
		if err := r.Read(&r.frame); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestVmstatAsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vmstat")
	r := open(t, func() (source.Source, error) {
		rewrite(t, path, "numa_hit 5\npgpgin 7\npswpout 3\npgfault 100\npgmajfault 40\nnr_free_pages 9\nnr_dirty_threshold 2\n")
		return newKeyedSource(vmstat, path, vmstatTable)
	})
	page := uint64(os.Getpagesize())
	r.wants(map[string]uint64{"memory_numa_hit": 5, "memory_paged in": 7 << 10, "memory_swapped out": 3 * page,
		"memory_page_faults minor": 60, "memory_page_faults major": 40, "memory_dirty_threshold": 2 * page})
	if start := r.start("memory_numa_hit"); start != host.BootTime() {
		t.Errorf("counters began at %d, want when the machine did", start)
	}
	if start := r.start("memory_dirty_threshold"); start != 0 {
		t.Errorf("a gauge began to count at %d", start)
	}
	// A major fault is counted before the fault is, a CPU goes offline, and
	// a key comes in between.
	rewrite(t, path, "numa_hit 4\npgfault 101\npswpin 1\npgmajfault 42\nnr_dirty_threshold 1\n")
	r.wants(map[string]uint64{"memory_numa_hit": 5, "memory_swapped in": page,
		"memory_page_faults minor": 60, "memory_page_faults major": 42, "memory_dirty_threshold": page})
	rewrite(t, path, "numa_hit 6\npgfault 103\npswpin 1\npgmajfault 42\nnr_dirty_threshold 1\n")
	r.wants(map[string]uint64{"memory_numa_hit": 6, "memory_swapped in": page,
		"memory_page_faults minor": 61, "memory_page_faults major": 42, "memory_dirty_threshold": page})
}

// TestTables holds that every row of a table makes a series of its own.
func TestTables(t *testing.T) {
	for name, table := range map[string][]row{"meminfo": meminfoTable, "vmstat": vmstatTable, "node": nodeMeminfo, "numastat": nodeNumastat} {
		keys, series := map[string]bool{}, map[string]bool{}
		for _, r := range table {
			id := r.desc.Name + " " + strings.Join(r.values, " ")
			if keys[r.key] || series[id] {
				t.Errorf("%s: %s, %s: twice", name, r.key, id)
			}
			keys[r.key], series[id] = true, true
			fixed := len(r.desc.Keys)
			if strings.HasPrefix(r.desc.Name, "memory_node_") {
				fixed-- // the node
			}
			if len(r.values) != fixed {
				t.Errorf("%s: %d label values for keys %q", r.key, len(r.values), r.desc.Keys)
			}
		}
		for _, r := range table {
			if r.less != "" && !keys[r.less] {
				t.Errorf("%s: %s is taken out of it and is not in the table", r.key, r.less)
			}
		}
	}
}

// fileValues reads a file of keys and values in another way, in the units of
// the file but for kB.
func fileValues(t testing.TB, path string) map[string]uint64 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		unit := uint64(1)
		if words[len(words)-1] == "kB" {
			words, unit = words[:len(words)-1], 1024
		}
		n, err := strconv.ParseUint(words[len(words)-1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		m[strings.TrimSuffix(words[len(words)-2], ":")] = n * unit
	}
	return m
}

// TestAgainstTheFiles holds each series between what the kernel said before
// and after.
func TestAgainstTheFiles(t *testing.T) {
	for _, c := range []struct {
		path  string
		table []row
	}{{"/proc/meminfo", meminfoTable}, {"/proc/vmstat", vmstatTable}} {
		r := open(t, func() (source.Source, error) { return newKeyedSource("test", c.path, c.table) })
		r.says() // it has other lines to learn
		found, wrong := 0, []string(nil)
		// Whoever reads the file has the kernel add up what the CPUs hold back,
		// which for a moment is nowhere (mm/vmstat.c, fold_vm_zone_numa_events).
		if !undisturbed(func() bool {
			before := fileValues(t, c.path)
			got := r.says()
			found, wrong = compare(c.table, got, before, fileValues(t, c.path))
			return len(wrong) == 0
		}) {
			t.Errorf("%s: %s", c.path, strings.Join(wrong, "\n"))
		}
		t.Logf("%s: %d of %d rows are there", c.path, found, len(c.table))
		if found < 40 {
			t.Errorf("%s has only %d of the rows", c.path, found)
		}
	}
}

// compare is how many rows there are, and which are not between what the
// kernel said before and after.
func compare(table []row, got, before, after map[string]uint64) (found int, wrong []string) {
	for _, row := range table {
		low, is := before[row.key]
		value, there := got[strings.Join(append([]string{row.desc.Name}, row.values...), " ")]
		if is != there {
			wrong = append(wrong, fmt.Sprintf("%s: in the file %v, a series %v", row.key, is, there))
		}
		if !is {
			continue
		}
		found++
		high := after[row.key]
		if row.less != "" {
			low, high = low-after[row.less], high-before[row.less]
		}
		low, high = low*max(row.scale, 1), high*max(row.scale, 1)
		if row.desc.Kind == metric.Counter && (value < low || value > high) || low == high && row.desc.Kind == metric.Gauge && value != low && steady(row.key) {
			wrong = append(wrong, fmt.Sprintf("%s is %d, not %d to %d", row.key, value, low, high))
		}
	}
	return found, wrong
}

// steady tells gauges that nothing changes in passing.
func steady(key string) bool {
	return strings.HasSuffix(key, "Total") || strings.HasPrefix(key, "Huge") || strings.HasPrefix(key, "DirectMap")
}

// TestMeminfoIsWhole holds that nothing of this kernel's meminfo is passed
// over but what is a sum of others.
func TestMeminfoIsWhole(t *testing.T) {
	known := map[string]bool{"Active": true, "Inactive": true, "Slab": true}
	for _, r := range meminfoTable {
		known[r.key] = true
	}
	for key := range fileValues(t, "/proc/meminfo") {
		if !known[key] {
			t.Errorf("%s is passed over", key)
		}
	}
}

func FuzzKeyed(f *testing.F) {
	f.Add([]byte(someMeminfo), []byte("MemTotal: 1 kB\n"))
	f.Add([]byte("Node 0 MemTotal:        8218828 kB\n"), []byte("pgfault 1\npgmajfault 2\n"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		k := &keyed{table: append(vmstatTable[:len(vmstatTable):len(vmstatTable)], meminfoTable...), known: map[string]*cell{}}
		for _, text := range [][]byte{first, second} {
			if !k.parse(text) && k.learn(text) != nil {
				continue
			}
			series := k.series(nil)
			if words := k.words(nil); len(words) != len(series) || len(series) == 0 {
				t.Fatalf("%d words for %d series", len(words), len(series))
			}
			if _, err := metric.NewSchema("x", series); err != nil {
				t.Error(err)
			}
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package cgroupfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// readable is what a test reads.
type readable interface {
	Read(*metric.Frame) error
}

// shown is a frame as text: name, then labels, then the value, but for the
// counts of what is not read.
func shown(t *testing.T, s readable) map[string]float64 {
	t.Helper()
	var f metric.Frame
	if err := s.Read(&f); err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for i := range f.Schema.Series {
		e := &f.Schema.Series[i]
		all[strings.Join(append([]string{e.Desc.Name}, e.Values...), " ")] = e.Desc.Value(f.Values[e.Off])
	}
	return all
}

// tree writes files below a temporary folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func pathsOf(paths ...string) *told {
	g := &told{}
	var all []host.Cgroup
	for i, p := range paths {
		all = append(all, host.Cgroup{ID: uint64(i + 1), Path: p, Born: int64(1000 + i)})
	}
	g.set(all...)
	return g
}

func same(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			t.Errorf("%s = %v (there: %t), want %v", k, g, ok, v)
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s = %v is not wanted", k, v)
		}
	}
}

func TestBandwidthOfBothVersions(t *testing.T) {
	v2 := tree(t, map[string]string{
		"a/cpu.max": "20000 100000\n", "b/cpu.max": "max 100000\n",
		"a/cpu.stat": "usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods 31\nnr_throttled 29\nthrottled_usec 1700\nnr_bursts 0\nburst_usec 0\n",
		"b/cpu.stat": "usage_usec 5\nuser_usec 3\nsystem_usec 2\n",
	})
	want := map[string]float64{
		"cgroup_cpu_bandwidth_quota /a": 20e6, "cgroup_cpu_bandwidth_period_duration /a": 100e6, "cgroup_cpu_bandwidth_period_duration /b": 100e6,
		"cgroup_cpu_bandwidth_periods /a": 31, "cgroup_cpu_bandwidth_throttled_periods /a": 29, "cgroup_cpu_bandwidth_throttled_time /a": 1.7e6,
		"cgroup_cpu_bandwidth_bursts /a": 0, "cgroup_cpu_bandwidth_burst_time /a": 0, "cpu_bandwidth_unread": 0,
	}
	same(t, shown(t, newSheet("cpu_bandwidth", pathsOf("/a", "/b"), v2, 0, bandwidth)), want)
	v1 := tree(t, map[string]string{
		"a/cpu.cfs_quota_us": "20000\n", "a/cpu.cfs_period_us": "100000\n", "b/cpu.cfs_quota_us": "-1\n", "b/cpu.cfs_period_us": "100000\n",
		"a/cpu.stat": "nr_periods 31\nnr_throttled 29\nthrottled_time 1700000\nnr_bursts 0\nburst_time 0\n",
	})
	same(t, shown(t, newSheet("cpu_bandwidth", pathsOf("/a", "/b"), v1, 0, bandwidthV1)), want)
}

func TestMemoryOfBothVersions(t *testing.T) {
	v2 := tree(t, map[string]string{
		"a/memory.current": "4096\n", "a/memory.max": "max\n", "a/memory.swap.max": "8192\n",
		"a/memory.stat":   "anon 17\nfile 19\nnew_in_some_kernel 1\nfile_dirty 3\npgfault 101\npgmajfault 7\n",
		"a/memory.events": "low 0\nhigh 2\nmax 3\noom 1\noom_kill 1\noom_group_kill 0\n",
	})
	same(t, shown(t, newSheet("cgroup_memory", pathsOf("/a"), v2, 0, memory)), map[string]float64{
		"cgroup_memory_usage /a": 4096, "cgroup_swap_limit /a": 8192, "cgroup_memory /a anon": 17, "cgroup_memory /a file": 19,
		"cgroup_memory /a dirty": 3, "cgroup_memory_page_faults /a": 101, "cgroup_memory_major_page_faults /a": 7,
		"cgroup_memory_events low /a": 0, "cgroup_memory_events high /a": 2, "cgroup_memory_events max /a": 3,
		"cgroup_memory_events oom /a": 1, "cgroup_memory_events oom_kill /a": 1, "cgroup_memory_unread": 0,
	})
	v1 := tree(t, map[string]string{
		"a/memory.usage_in_bytes": "4096\n", "a/memory.limit_in_bytes": "9223372036854771712\n",
		"a/memory.stat":    "cache 1\ntotal_cache 19\ntotal_rss 17\ntotal_swap 5\ntotal_pgfault 101\ntotal_pgmajfault 7\n",
		"a/memory.failcnt": "3\n", "a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
	})
	same(t, shown(t, newSheet("cgroup_memory", pathsOf("/a"), v1, 0, memoryV1)), map[string]float64{
		"cgroup_memory_usage /a": 4096, "cgroup_memory /a anon": 17, "cgroup_memory /a file": 19, "cgroup_swap_usage /a": 5,
		"cgroup_memory_page_faults /a": 101, "cgroup_memory_major_page_faults /a": 7,
		"cgroup_memory_events max /a": 3, "cgroup_memory_events oom_kill /a": 1, "cgroup_memory_unread": 0,
	})
}

func TestPressureIsARatioAndATime(t *testing.T) {
	root := tree(t, map[string]string{
		"a/io.pressure":  "some avg10=12.50 avg60=1.25 avg300=0.00 total=1700\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=170\n",
		"a/irq.pressure": "full avg10=0.00 avg60=0.00 avg300=0.00 total=13\n",
	})
	got := shown(t, newSheet("cgroup_pressure", pathsOf("/a"), root, 0, pressures))
	for k, want := range map[string]float64{
		"cgroup_pressure some /a io 10s": 0.125, "cgroup_pressure some /a io 60s": 0.0125, "cgroup_pressure full /a io 10s": 0.005,
		"cgroup_pressure_stalled some /a io": 1.7e6, "cgroup_pressure_stalled full /a io": 170e3, "cgroup_pressure_stalled full /a irq": 13e3,
	} {
		if got[k] != want {
			t.Errorf("%s = %v, want %v", k, got[k], want)
		}
	}
	if _, there := got["cgroup_pressure_stalled some /a irq"]; there {
		t.Error("irq has no line some, and it is published")
	}
}

func TestInputAndOutput(t *testing.T) {
	want := map[string]float64{
		"cgroup_io_bytes vg-root /a read": 4096, "cgroup_io_bytes vg-root /a write": 8192, "cgroup_io_bytes vg-root /a discard": 0,
		"cgroup_io_operations vg-root /a read": 1, "cgroup_io_operations vg-root /a write": 2, "cgroup_io_operations vg-root /a discard": 0,
		"cgroup_io_bytes 9:9 /a read": 512, "cgroup_io_bytes 9:9 /a write": 0, "cgroup_io_bytes 9:9 /a discard": 0,
		"cgroup_io_operations 9:9 /a read": 3, "cgroup_io_operations 9:9 /a write": 0, "cgroup_io_operations 9:9 /a discard": 0,
		"cgroup_io_unread": 1,
	}
	sys := tree(t, map[string]string{"254:0/dm/name": "vg-root\n"})
	root := tree(t, map[string]string{
		"a/io.stat": "254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n9:9 rbytes=512 wbytes=0 rios=3 wios=0 dbytes=0 dios=0 cost.usage=1\n",
	})
	s := newIO(pathsOf("/a", "/b"), root, 1)
	s.sys = sys
	same(t, shown(t, s), want)
}

func TestADeviceAndAFileComeAndGo(t *testing.T) {
	root := tree(t, map[string]string{"a/io.stat": "8:0 rbytes=1 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n", "a/pids.current": "3\n"})
	s, p := newIO(pathsOf("/a"), root, 0), newSheet("cgroup_pids", pathsOf("/a"), root, 0, pids)
	count := func(s readable) int { return len(shown(t, s)) - 1 }
	if count(s) != 6 || count(p) != 1 {
		t.Fatalf("%d and %d series, want 6 and 1", count(s), count(p))
	}
	if err := errors.Join(os.WriteFile(root+"/a/io.stat", nil, 0o644), os.WriteFile(root+"/a/pids.max", []byte("17\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if count(s) != 0 || count(p) != 2 {
		t.Errorf("%d and %d series, want none and 2", count(s), count(p))
	}
	if err := os.RemoveAll(root + "/a"); err != nil {
		t.Fatal(err)
	}
	if count(s) != 0 || count(p) != 0 {
		t.Errorf("%d and %d series of a group that is gone", count(s), count(p))
	}
}

func TestWhatIsNoNumberIsAnError(t *testing.T) {
	f := func(name, text string, files []file) {
		t.Helper()
		var frame metric.Frame
		if err := newSheet("x", pathsOf("/a"), tree(t, map[string]string{"a/" + name: text}), 0, files).Read(&frame); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s = %q: error %v", name, text, err)
		}
	}
	f("cpu.max", "x 5\n", bandwidth)
	f("cpu.stat", "nr_periods x\n", bandwidth)
	f("cpu.stat", "nr_periods\n", bandwidth)
	f("cpu.pressure", "some avg10=x\n", pressures)
	f("cpu.pressure", "some total=-1\n", pressures)
	f("cpu.pressure", "some total\n", pressures)
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte("some avg10=0.00 total=1\nanon 3\n20000 100000\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, files := range [][]file{bandwidth, bandwidthV1, memory, memoryV1, pids, pressures} {
			for i := range files {
				n := len(files[i].fields)
				_ = files[i].parse(text, make([]uint64, n), make([]bool, n))
			}
		}
		s, m := newIO(nil, "", 0), &mover{}
		for _, line := range bytes.Split(text, newline) {
			_, _ = s.parse(m, line)
		}
		if len(m.devices) > maxDevices {
			t.Fatalf("%d devices", len(m.devices))
		}
	})
}

func BenchmarkSheetOfAHundred(b *testing.B) {
	root := b.TempDir()
	var paths []string
	for i := range 100 {
		p := fmt.Sprintf("/g%d", i)
		if err := os.Mkdir(root+p, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(root+p+"/memory.stat", []byte("anon 1\nfile 2\npgfault 3\n"), 0o644); err != nil {
			b.Fatal(err)
		}
		paths = append(paths, p)
	}
	s := newSheet("cgroup_memory", pathsOf(paths...), root, 0, memory)
	var f metric.Frame
	for b.Loop() {
		if err := s.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
)

const sample = `cpu  30 3 5 100 7 1 2 4 6 1
cpu0 10 2 3 60 4 1 0 1 6 1
cpu2 20 1 2 40 3 0 2 3 0 0
intr 12345 0 1
ctxt 99
btime 1700000000
processes 7
`

func newStat(t testing.TB) *Stat {
	t.Helper()
	s, err := NewStat(true, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// values is what a frame says by CPU and state.
func values(f *metric.Frame) map[string]uint64 {
	m := map[string]uint64{}
	for _, s := range f.Schema.Series {
		key := s.Desc.Name
		for _, v := range s.Values {
			key += " " + v
		}
		m[key] = f.Values[s.Off]
	}
	return m
}

func TestStatesAreDisjoint(t *testing.T) {
	path := t.TempDir() + "/stat"
	if err := os.WriteFile(path, []byte(sample), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &Stat{file: file, usage: true, cores: true}
	defer s.Close()
	var f metric.Frame
	if err := s.Read(&f); err != nil {
		t.Fatal(err)
	}
	got := values(&f)
	for key, ticks := range map[string]uint64{
		"cpu_usage 0 user": 4, "cpu_usage 0 nice": 1, "cpu_usage 0 system": 3, "cpu_usage 0 idle": 60,
		"cpu_usage 0 iowait": 4, "cpu_usage 0 irq": 1, "cpu_usage 0 softirq": 0, "cpu_usage 0 steal": 1,
		"cpu_usage 0 guest": 7, "cpu_usage 2 user": 20, "cpu_usage 2 steal": 3,
	} {
		if got[key] != ticks*tick {
			t.Errorf("%s = %d, want %d ticks", key, got[key], ticks)
		}
	}
	if got["cpu_cores"] != 2 || len(got) != 19 {
		t.Errorf("%d cores in %d series, want 2 in 19", got["cpu_cores"], len(got))
	}
	if start := f.Schema.Series[0].Start; start != 1700000000e9 {
		t.Errorf("counters began at %d, want when the machine did", start)
	}
	// idle steps back, CPU 2 goes away.
	if err := os.WriteFile(path, []byte("cpu0 10 2 3 59 4 1 0 1 6 1\nbtime 1700000000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	first := f.Schema
	if err := s.Read(&f); err != nil {
		t.Fatal(err)
	}
	if f.Schema == first || len(f.Schema.Series) != len(states)+1 {
		t.Error("a CPU that went away is still in the schema")
	}
}

func TestCountersNeverStepBack(t *testing.T) {
	s := &Stat{usage: true}
	for _, text := range []string{"cpu0 1 1 1 50 1 1 1 1 1 1\nbtime 1\n", "cpu0 1 1 1 49 1 1 1 1 1 1\nbtime 1\n"} {
		if _, err := s.parse([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if s.schema == nil {
			if err := s.rebuild(1); err != nil {
				t.Fatal(err)
			}
		}
		for j, v := range s.times[0] {
			s.last[j] = max(s.last[j], v*tick)
		}
	}
	if s.last[idle] != 50*tick {
		t.Errorf("idle went from 50 ticks to %d", s.last[idle]/tick)
	}
}

// TestTheStatesAddUpToTheTime holds Σ states against the clock, and a known
// load against getrusage.
func TestTheStatesAddUpToTheTime(t *testing.T) {
	s := newStat(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set, old unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		t.Fatal(err)
	}
	set.Set(0)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &old)
	var before, after metric.Frame
	if err := s.Read(&before); err != nil {
		t.Fatal(err)
	}
	began := threadUser(t)
	for threadUser(t)-began < int64(time.Second) {
		for range 1 << 20 {
			sink++
		}
	}
	used := threadUser(t) - began
	if err := s.Read(&after); err != nil {
		t.Fatal(err)
	}
	elapsed := float64(after.End - before.Begin)
	a, b := values(&after), values(&before)
	var sum float64
	for _, state := range states {
		sum += float64(a["cpu_usage 0 "+state] - b["cpu_usage 0 "+state])
	}
	// Each state is rounded to ticks of 10 ms on its own.
	if slack := float64(len(states) * tick); sum < elapsed*0.97-slack || sum > elapsed*1.03+slack {
		t.Errorf("the states of CPU 0 add up to %.0f ms in %.0f ms", sum/1e6, elapsed/1e6)
	}
	if got := float64(a["cpu_usage 0 user"] - b["cpu_usage 0 user"]); got < float64(used)*0.9-2*tick {
		t.Errorf("CPU 0 was %.0f ms in user mode; this thread alone %d ms", got/1e6, used/1e6)
	}
}

var sink uint64

// threadUser is the user time of this thread in nanoseconds (getrusage(2)).
func threadUser(t testing.TB) int64 {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &r); err != nil {
		t.Fatal(err)
	}
	return r.Utime.Nano()
}

func TestReadAllocatesNothing(t *testing.T) {
	s := newStat(t)
	var f metric.Frame
	if n := testing.AllocsPerRun(20, func() {
		if err := s.Read(&f); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations in a read", n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("cpu0 1 2\nbtime x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Stat
		if _, err := s.parse(b); err == nil && (len(s.now) == 0 || len(s.now) != len(s.times)) {
			t.Errorf("%d CPUs with %d times, and no error", len(s.now), len(s.times))
		}
	})
}

func BenchmarkRead(b *testing.B) {
	s := newStat(b)
	var f metric.Frame
	for b.Loop() {
		if err := s.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

const sample = `cpu  30 3 5 100 7 1 2 4 6 1
cpu0 10 2 3 60 4 1 0 1 6 1
cpu2 20 1 2 40 3 0 2 3 0 0
intr 12345 0 1
ctxt 99
btime 1700000000
`

// written is a source of a file that a test writes.
type written struct {
	*Stat
	t     *testing.T
	path  string
	frame metric.Frame
}

func newWritten(t *testing.T, usage, cores bool) *written {
	t.Helper()
	w := &written{t: t, path: t.TempDir() + "/stat"}
	w.write("")
	file, err := source.OpenFile(w.path)
	if err != nil {
		t.Fatal(err)
	}
	w.Stat = &Stat{file: file, usage: usage, cores: cores, shown: map[int]*counted{}}
	t.Cleanup(func() { w.Close() })
	return w
}

func (w *written) write(text string) {
	w.t.Helper()
	if err := os.WriteFile(w.path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// says writes text and is what the frame then says, in ticks.
func (w *written) says(text string) map[string]uint64 {
	w.t.Helper()
	w.write(text)
	if err := w.Read(&w.frame); err != nil {
		w.t.Fatal(err)
	}
	m := values(&w.frame)
	for key := range m {
		if strings.HasPrefix(key, "cpu_usage") {
			m[key] /= tick
		}
	}
	return m
}

// values is what a frame says, by name and labels.
func values(f *metric.Frame) map[string]uint64 {
	m := map[string]uint64{}
	for _, s := range f.Schema.Series {
		m[strings.Join(append([]string{s.Desc.Name}, s.Values...), " ")] = f.Values[s.Off]
	}
	return m
}

func TestStatesAreDisjoint(t *testing.T) {
	w := newWritten(t, true, true)
	got := w.says(sample)
	for key, want := range map[string]uint64{
		"cpu_usage 0 user": 4, "cpu_usage 0 nice": 1, "cpu_usage 0 system": 3, "cpu_usage 0 idle": 60,
		"cpu_usage 0 iowait": 4, "cpu_usage 0 irq": 1, "cpu_usage 0 softirq": 0, "cpu_usage 0 steal": 1,
		"cpu_usage 0 guest": 7, "cpu_usage 2 user": 20, "cpu_usage 2 steal": 3, "cpu_cores": 2,
	} {
		if value, ok := got[key]; value != want || !ok {
			t.Errorf("%s = %d, %v; want %d", key, value, ok, want)
		}
	}
	if len(got) != 2*len(states)+1 {
		t.Errorf("%d series", len(got))
	}
	if start := w.frame.Schema.Series[0].Start; start != host.BootTime() {
		t.Errorf("counters began at %d, want when the machine did", start)
	}
}

func TestSamplersThatAreOffAreNotThere(t *testing.T) {
	if got := newWritten(t, false, true).says(sample); len(got) != 1 || got["cpu_cores"] != 2 {
		t.Errorf("cpu_cores alone gives %v", got)
	}
	if got := newWritten(t, true, false).says(sample); len(got) != 2*len(states) {
		t.Errorf("cpu_usage alone gives %v", got)
	}
}

func TestCPUsComeAndGo(t *testing.T) {
	w := newWritten(t, true, true)
	w.says(sample)
	first := w.frame.Schema
	w.says(sample)
	if w.frame.Schema != first {
		t.Error("another schema for the same CPUs")
	}
	got := w.says("cpu0 10 2 3 60 4 1 0 1 6 1\n")
	if _, there := got["cpu_usage 2 user"]; there || got["cpu_cores"] != 1 || len(got) != len(states)+1 {
		t.Errorf("CPU 2 went offline, and there is %v", got)
	}
	// CPU 2 comes back with less idle time than it had, within the jitter.
	if got := w.says(strings.Replace(sample, " 40 ", " 39 ", 1)); got["cpu_usage 2 idle"] != 40 || w.frame.Schema.Hash != first.Hash {
		t.Errorf("CPU 2 is back with %d ticks idle", got["cpu_usage 2 idle"])
	}
}

func TestCountersNeverStepBack(t *testing.T) {
	w := newWritten(t, true, false)
	f := func(idle string, want uint64) {
		t.Helper()
		if got := w.says("cpu0 1 1 1 " + idle + " 1 1 1 1 0 0\n"); got["cpu_usage 0 idle"] != want {
			t.Errorf("idle is %d, want %d", got["cpu_usage 0 idle"], want)
		}
	}
	f("500", 500)
	f("499", 500)
	f("500", 500)
	f("501", 501)
	f("401", 501)
	first := w.frame.Schema
	f("400", 0) // a reset: the counters are zero at a later start
	if s := w.frame.Schema; s == first || s.Series[0].Start <= first.Series[0].Start || s.Series[0].Start > host.Wall() {
		t.Errorf("after a reset the start is %d, before it was %d", s.Series[0].Start, first.Series[0].Start)
	}
	f("407", 7)
}

func TestFileThatGrows(t *testing.T) {
	w := newWritten(t, false, true)
	var b strings.Builder
	for cpu := range 2000 {
		fmt.Fprintf(&b, "cpu%d 1 1 1 1 1 1 1 1 1 1\n", cpu)
	}
	if got := w.says(b.String()); got["cpu_cores"] != 2000 {
		t.Errorf("%d CPUs, want 2000", got["cpu_cores"])
	}
}

func TestOtherFormsAreErrors(t *testing.T) {
	w := newWritten(t, true, true)
	for _, text := range []string{"", "cpu  1 2 3\n", "cpu0 1 2 3\n", "cpux 1 1 1 1 1 1 1 1 1 1\n", "cpu1 1 1 1 1 1 1 1 1 1 1\ncpu0 1 1 1 1 1 1 1 1 1 1\n"} {
		w.write(text)
		if err := w.Read(&w.frame); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func newStat(t testing.TB) *Stat {
	t.Helper()
	s, err := NewStat(true, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
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
	t.Logf("%.0f ms in %.0f ms, %.0f ms of them in user mode, %d ms this thread", sum/1e6, elapsed/1e6,
		float64(a["cpu_usage 0 user"]-b["cpu_usage 0 user"])/1e6, used/1e6)
	// Each state is rounded to ticks of 10 ms on its own. The kernel loses
	// those that come while the machine itself has no CPU, which an emulated
	// one often has not.
	least := 0.97
	if os.Getenv("REZOLUS_VM") != "" {
		least = 0.6
	}
	if slack := float64(len(states) * tick); sum < elapsed*least-slack || sum > elapsed*1.03+slack {
		t.Errorf("the states of CPU 0 add up to %.0f ms in %.0f ms", sum/1e6, elapsed/1e6)
	}
	if got := float64(a["cpu_usage 0 user"] - b["cpu_usage 0 user"]); got < float64(used)*(least-0.07)-2*tick || got > elapsed+2*tick {
		t.Errorf("CPU 0 was %.0f of %.0f ms in user mode; this thread alone %d ms", got/1e6, elapsed/1e6, used/1e6)
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
	if err := s.Read(&f); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
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
		s := Stat{usage: true, cores: true, shown: map[int]*counted{}}
		if s.parse(b) != nil {
			return
		}
		if len(s.now) == 0 || len(s.now) != len(s.times) {
			t.Fatalf("%d CPUs with %d times, and no error", len(s.now), len(s.times))
		}
		s.advance()
		if err := s.rebuild(); err != nil || s.schema.Words != len(s.now)*len(states)+1 {
			t.Errorf("%d CPUs: %+v, %v", len(s.now), s.schema, err)
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

func BenchmarkParse(b *testing.B) {
	s := Stat{shown: map[int]*counted{}}
	for b.Loop() {
		if err := s.parse([]byte(sample)); err != nil {
			b.Fatal(err)
		}
	}
}

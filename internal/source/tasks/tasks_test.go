// SPDX-License-Identifier: Apache-2.0

package tasks

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/test/workload"
)

// machine is a file system of tasks that a test writes.
type machine struct {
	*Tasks
	t     testing.TB
	proc  string
	total uint64
	frame metric.Frame
}

func newMachine(t testing.TB, limit int) *machine {
	t.Helper()
	m := &machine{t: t, proc: t.TempDir()}
	m.write("stat", "cpu  0 0 0 0 0 0 0 0 0 0\n")
	m.write("uptime", "1 1\n")
	m.Tasks = newTasks(t, m.proc, limit)
	return m
}

func newTasks(t testing.TB, proc string, limit int) *Tasks {
	t.Helper()
	s, err := New(proc, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.proc, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// task writes a process of one thread.
func (m *machine) task(pid int, comm string, ticks, birth uint64) {
	m.t.Helper()
	text := fmt.Sprintf("%d (%s) S 1 -1 0 0 -1 4194304 1 0 0 0 %d %d 5 5 20 0 1 0 %d 3133440 362\n", pid, comm, ticks-ticks/3, ticks/3, birth)
	m.write(fmt.Sprintf("%d/stat", pid), text)
	m.write(fmt.Sprintf("%d/task/%d/stat", pid, pid), text)
	m.write(fmt.Sprintf("%d/cgroup", pid), "9:name=systemd:/x\n0::/some\n")
}

func (m *machine) kill(pid int) {
	if err := os.RemoveAll(filepath.Join(m.proc, fmt.Sprint(pid))); err != nil {
		m.t.Fatal(err)
	}
}

// says reads and is what the frame says, in ticks.
func (m *machine) says() map[string]uint64 {
	m.t.Helper()
	m.write("stat", fmt.Sprintf("cpu  %d 0 1 700 7 0 2 9 0 0\ncpu0 0\n", m.total))
	if err := m.Read(&m.frame); err != nil {
		m.t.Fatal(err)
	}
	got := values(&m.frame)
	for key := range got {
		got[key] /= tick
	}
	return got
}

func (m *machine) wants(want map[string]uint64) {
	m.t.Helper()
	got := m.says()
	for key, n := range want {
		if v, ok := got[key]; v != n || !ok {
			m.t.Errorf("%s = %d, %v; want %d", key, v, ok, n)
		}
	}
	if len(got) != len(want) {
		m.t.Errorf("%d series, want %d: %v", len(got), len(want), got)
	}
}

// values is what a frame says, by labels.
func values(f *metric.Frame) map[string]uint64 {
	m := map[string]uint64{}
	for _, s := range f.Schema.Series {
		key := strings.Join(s.Values, " ")
		if s.Desc == ended {
			key = "ended"
		}
		m[key] = f.Values[s.Off]
	}
	return m
}

func start(t testing.TB, f *metric.Frame, key string) int64 {
	t.Helper()
	for _, s := range f.Schema.Series {
		if strings.Join(s.Values, " ") == key {
			return s.Start
		}
	}
	t.Fatalf("there is no %s", key)
	return 0
}

const others = "other other other other"

// TestTheBusiestAreShown follows tasks through a life. The total is 3 ticks
// more than what the tasks used: interrupts.
func TestTheBusiestAreShown(t *testing.T) {
	m := newMachine(t, 2)
	m.task(10, "a", 100, 7)
	m.task(11, "b) (c", 50, 8)
	m.task(12, "idle", 0, 9)
	m.task(13, "d", 20, 9)
	m.total = 170
	want := map[string]uint64{"/some a 10 10": 100, "/some b) (c 11 11": 50, others: 23, "ended": 0}
	m.wants(want)
	if at := start(t, &m.frame, "/some a 10 10"); at != host.BootTime()+7*tick {
		t.Errorf("began at %d, want at its birth", at)
	}
	before := m.frame.Schema
	m.wants(want)
	if m.frame.Schema != before {
		t.Error("another schema for the same tasks")
	}
	// d uses more than a, but not twice what a lately did.
	m.task(13, "d", 40, 9)
	m.total = 190
	want[others] = 43
	m.wants(want)
	// d uses much more than either lately did, and b least.
	m.task(13, "d", 140, 9)
	m.total = 290
	delete(want, "/some b) (c 11 11")
	want["/some d 13 13"], want["ended"] = 100, 50
	last := m.last
	m.wants(want)
	if at := start(t, &m.frame, "/some d 13 13"); at != last {
		t.Errorf("began at %d, want at the read before, %d", at, last)
	}
	// a dies having used more, and another comes at once.
	m.kill(10)
	m.task(14, "e", 5, 99)
	m.total = 290 + 11 + 5
	delete(want, "/some a 10 10")
	want["/some e 14 14"], want["ended"], want[others] = 5, 150, 43+11
	m.wants(want)
	// e is another program now, and its number one of another task then.
	m.task(14, "f", 8, 99)
	m.total += 3
	delete(want, "/some e 14 14")
	want["/some f 14 14"], want["ended"] = 3, 155
	m.wants(want)
	m.task(14, "f", 2, 100)
	m.total += 2
	want["/some f 14 14"], want["ended"] = 2, 158
	m.wants(want)
	// The tasks are ahead of the CPUs: the others wait.
	m.task(14, "f", 62, 100)
	want["/some f 14 14"] = 62
	m.wants(want)
	m.total += 60
	m.wants(want)
	m.total += 1
	want[others]++
	m.wants(want)
}

func TestThreads(t *testing.T) {
	m := newMachine(t, 8)
	m.task(10, "a", 3, 7)
	m.write("10/task/11/stat", "11 (a 2) R 1 1 0 0 -1 4194304 1 0 0 0 17 2 5 5 20 0 1 0 9 3133440 362\n")
	m.total = 22
	m.wants(map[string]uint64{"/some a 10 10": 3, " a 2 11 10": 19, others: 3, "ended": 0})
	if err := os.RemoveAll(filepath.Join(m.proc, "10/task/11")); err != nil {
		t.Fatal(err)
	}
	text := "10 (a) S 1 1 0 0 -1 4194304 1 0 0 0 24 0 5 5 20 0 1 0 7 3133440 362\n" // with what the thread used
	m.write("10/stat", text)
	m.write("10/task/10/stat", strings.Replace(text, " 24 ", " 5 ", 1))
	m.total = 24
	m.wants(map[string]uint64{"/some a 10 10": 5, others: 3, "ended": 19})
}

// TestTheBooksBalance has tasks come, work, change their names and go at
// random, and holds that no counter falls and nothing is lost.
func TestTheBooksBalance(t *testing.T) {
	m := newMachine(t, 5)
	random := rand.New(rand.NewPCG(1, 2))
	type life struct{ ticks, birth uint64 }
	alive := map[int]*life{}
	before := map[string]uint64{}
	starts := map[string]int64{}
	for round := range 300 {
		for pid := 1; pid <= 20; pid++ {
			l := alive[pid]
			switch dice := random.IntN(10); {
			case l == nil && dice < 2:
				l = &life{uint64(random.IntN(3)), uint64(round)}
				m.total += l.ticks
				alive[pid] = l
			case l != nil && dice == 0:
				m.kill(pid)
				m.total += uint64(random.IntN(5)) // what nobody saw
				delete(alive, pid)
				continue
			case l != nil && dice < 6:
				used := uint64(random.IntN(40))
				l.ticks, m.total = l.ticks+used, m.total+used
			}
			if l != nil {
				m.task(pid, []string{"x", "y"}[random.IntN(30)/29], l.ticks, l.birth)
			}
		}
		got := m.says()
		var sum uint64
		for key, n := range got {
			sum += n
			if key != "ended" && key != others {
				if at := start(t, &m.frame, key); at != starts[key] {
					starts[key] = at
					delete(before, key)
				}
			}
			if n < before[key] {
				t.Fatalf("%s fell from %d to %d", key, before[key], n)
			}
			before[key] = n
		}
		if sum != m.total+3 || len(got) > 7 {
			t.Fatalf("%d series with %d ticks of %d", len(got), sum, m.total+3)
		}
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	m := newMachine(t, 3)
	for pid := 1; pid < 50; pid++ {
		m.task(pid, "x", uint64(pid), 1)
	}
	m.says()
	if n := testing.AllocsPerRun(50, func() {
		if err := m.Read(&m.frame); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations in a read", n)
	}
}

// TestAThreadOfThisProcess burns CPU time and compares with getrusage(2), and
// all with the busy time of the machine.
func TestAThreadOfThisProcess(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := newTasks(t, "/proc", 0)
	var before, after metric.Frame
	if err := s.Read(&before); err != nil {
		t.Fatal(err)
	}
	base := values(&before)
	cpu := workload.ThreadCPU()
	workload.Burn(500 * time.Millisecond)
	used := uint64(workload.ThreadCPU() - cpu)
	if err := s.Read(&after); err != nil {
		t.Fatal(err)
	}
	got := values(&after)
	suffix := fmt.Sprintf(" %d %d", unix.Gettid(), os.Getpid())
	found := false
	var sum, sumBefore uint64
	for _, n := range base {
		sumBefore += n
	}
	for key, n := range got {
		sum += n
		if strings.HasSuffix(key, suffix) {
			found = true
			grown := n - base[key]
			t.Logf("%s: %d ms", key, grown/1e6)
			if grown < used-2*tick || grown > used+10*tick {
				t.Errorf("%s used %d ms, by its own clock %d ms", key, grown/1e6, used/1e6)
			}
		}
	}
	if !found {
		t.Errorf("this thread is not shown: %v", got)
	}
	if grown, elapsed := sum-sumBefore, uint64(after.End-before.Begin); grown < used-5*tick || grown > elapsed*uint64(runtime.NumCPU())+10*tick {
		t.Errorf("all used %d ms in %d ms, this thread alone %d ms", grown/1e6, elapsed/1e6, used/1e6)
	}
	for key, n := range base {
		if now, there := got[key]; there && now < n {
			t.Errorf("%s fell from %d to %d", key, n, now)
		}
	}
}

func TestOtherForms(t *testing.T) {
	for _, text := range []string{"", "1", "1 (a", "1 (a)", "1 (a) S 1 1 0 0 -1 4194304 1 0 0 0 x 2 5 5 20 0 1 0 9 3\n", "1 )a( S 1"} {
		if s, ok := parseStat([]byte(text)); ok {
			t.Errorf("%q is %+v", text, s)
		}
	}
	for _, text := range []string{"", "cpu0 1 2 3 4 5 6 7\n", "cpu  1 2 3 4 5 6\n"} {
		if busy, ok := busyTime([]byte(text)); ok {
			t.Errorf("%q is %d", text, busy)
		}
	}
	for text, want := range map[string]string{"": "", "x\n": "", "0::/a:b\n": "/a:b", "0::/a\n2:cpu,cpuacct:/b\n": "/b", "2:cpuset:/c\n0::/a\n": "/a"} {
		if got := parseCgroup([]byte(text)); got != want {
			t.Errorf("%q is in %q, want %q", text, got, want)
		}
	}
}

func TestSamplers(t *testing.T) {
	for _, s := range Samplers() {
		if !s.Off {
			t.Errorf("%s is on by default", s.Name)
		}
		for _, d := range s.Descs {
			if err := d.Validate(); err != nil || d.Sampler != s.Name || d.Help == "" {
				t.Errorf("%+v: %v", d, err)
			}
		}
		src, err := s.Open()
		if err != nil {
			t.Fatal(err)
		}
		var f metric.Frame
		if err := errors.Join(src.Read(&f), src.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("10 (a) S 1 -1 0 0 -1 4194304 1 0 0 0 24 0 5 5 20 0 1 0 7 3133440 362\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, ok := parseStat(text); ok && len(s.comm) >= len(text) {
			t.Errorf("%q is all of %q", s.comm, text)
		}
		parseCgroup(text)
		busyTime(text)
	})
}

func BenchmarkRead(b *testing.B) {
	s := newTasks(b, "/proc", 0)
	var f metric.Frame
	for b.Loop() {
		if err := s.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(s.processes)), "ns/process")
}

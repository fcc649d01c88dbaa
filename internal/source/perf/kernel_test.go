// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// These tests count events of the running kernel and need root.

func sampler(t testing.TB, name string, groups Groups) source.Sampler {
	t.Helper()
	h := host.CgroupMode()
	for _, s := range Samplers(groups, h.Mount, h.V1(), 0) {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no sampler %s", name)
	return source.Sampler{}
}

func opens(t testing.TB, name string, groups Groups) reader {
	t.Helper()
	s, err := sampler(t, name, groups).Open()
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

// sum adds up what a metric gained with a label value, in whatever place.
func sum(before, after map[string]uint64, name, label string) (n uint64) {
	for key, value := range after {
		if f := strings.Fields(key); f[0] == name && (label == "" || f[1] == label || f[len(f)-1] == label) {
			n += value - before[key]
		}
	}
	return n
}

// TestGroundTruth has a process alone in a group do known work and holds the
// group's counters against it, and all groups against the CPUs.
func TestGroundTruth(t *testing.T) {
	if len(host.Online()) < 2 {
		t.Fatal("this test moves a thread between two CPUs")
	}
	w := newWorker(t)
	groups := &told{}
	groups.set(host.Cgroup{ID: 1, Path: "/"}, host.Cgroup{ID: 2, Path: w.path})
	byCPU, byGroup := opens(t, "cpu_software", nil), opens(t, "cpu_software_cgroup", groups)
	var frames [4]metric.Frame
	outer := shown(t, byCPU, &frames[0])
	before := shown(t, byGroup, &frames[1])
	inner := shown(t, byCPU, &frames[2])
	minor, major, cpu := w.work()
	innerEnd := shown(t, byCPU, &frames[2])
	after := shown(t, byGroup, &frames[3])
	outerEnd := shown(t, byCPU, &frames[2])

	within := func(what string, got, least, most uint64) {
		t.Helper()
		t.Logf("%s: %d", what, got)
		if got < least || got > most {
			t.Errorf("%s: %d, want %d to %d", what, got, least, most)
		}
	}
	// The worker's own threads fault a little before and after its getrusage.
	faults := func(kind string) uint64 {
		key := "cgroup_perf_page_faults " + kind + " " + w.path
		return after[key] - before[key]
	}
	within("minor faults of the group", faults("minor"), max(minorFaults, minor), minor+64)
	within("major faults of the group", faults("major"), major, major)
	if onDisk(t) {
		within("major faults of the worker", major, majorFaults, majorFaults)
	}
	within("migrations of the group", after["cgroup_perf_cpu_migrations "+w.path]-before["cgroup_perf_cpu_migrations "+w.path], moves, moves)
	clock := after["cgroup_perf_task_clock "+w.path] - before["cgroup_perf_task_clock "+w.path]
	// The time of a switch is in a thread's CPU time, but not in the group's
	// clock, and the runtime's own threads switch often.
	within("task clock of the group", clock, uint64(burn), uint64(cpu)*6/5+5_000_000)

	// Every event of a CPU is of one group or of "other".
	for _, m := range []struct{ name, label string }{{"perf_page_faults", "minor"}, {"perf_page_faults", "major"}, {"perf_cpu_migrations", ""}} {
		all := sum(before, after, "cgroup_"+m.name, m.label)
		within(m.name+" "+m.label+" of all groups", all, sum(inner, innerEnd, m.name, m.label), sum(outer, outerEnd, m.name, m.label))
	}
}

// TestFaultsOfACPU touches fresh pages on one CPU and holds the faults of all
// against /proc/vmstat, which counts those without a task's own access too.
func TestFaultsOfACPU(t *testing.T) {
	s := opens(t, "cpu_software", nil)
	cpus := host.Online()
	cpu := cpus[len(cpus)-1]
	var frame metric.Frame
	least := vmstat(t, "pgfault")
	before := shown(t, s, &frame)
	faultsOn(t, cpu)
	after := shown(t, s, &frame)
	most := vmstat(t, "pgfault") - least
	key := "perf_page_faults " + strconv.Itoa(cpu) + " minor"
	here, all := after[key]-before[key], sum(before, after, "perf_page_faults", "")
	t.Logf("%d faults on CPU %d, %d on all, %d in /proc/vmstat", here, cpu, all, most)
	if here < minorFaults || all < here || all > most {
		t.Errorf("%d faults on CPU %d, %d on all; want %d or more, and at most %d", here, cpu, all, minorFaults, most)
	}
	if start := frame.Schema.Series[0].Start; start < host.BootTime() || start > host.Wall() {
		t.Errorf("counters began at %d", start)
	}
}

func vmstat(t testing.TB, name string) uint64 {
	t.Helper()
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[0] == name {
			n, err := strconv.ParseUint(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("/proc/vmstat has no %s", name)
	return 0
}

// TestHardwareIsThereOrUnsupported: whatever machine this is, a sampler either
// counts, with a series for each event that opened, or says what is missing.
func TestHardwareIsThereOrUnsupported(t *testing.T) {
	groups := &told{}
	groups.set(host.Cgroup{ID: 1, Path: "/"})
	h := host.CgroupMode()
	for _, sampler := range Samplers(groups, h.Mount, h.V1(), 0) {
		s, err := sampler.Open()
		if err != nil {
			t.Logf("%s: %v", sampler.Name, err)
			if !errors.Is(err, source.ErrUnsupported) {
				t.Errorf("%s: %v, which is not that it is unsupported", sampler.Name, err)
			}
			continue
		}
		var f metric.Frame
		if err := s.Read(&f); err != nil {
			t.Errorf("%s: %v", sampler.Name, err)
		} else {
			t.Logf("%s: %d series", sampler.Name, len(f.Schema.Series))
		}
		if s.Name() != sampler.Name {
			t.Errorf("the source of %s is named %s", sampler.Name, s.Name())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCycles counts cycles of this very CPU while it is busy, on machines that
// can, and by a thread's own counter holds it that the others cannot.
func TestCycles(t *testing.T) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES, Size: unix.PERF_ATTR_SIZE_VER0}
	fd, lack := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if lack == nil {
		unix.Close(fd)
	}
	s, err := sampler(t, "cpu_perf", nil).Open()
	if errors.Is(err, source.ErrUnsupported) {
		if lack == nil {
			t.Errorf("this thread can count its cycles, but %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := newWorker(t)
	groups := &told{}
	groups.set(host.Cgroup{ID: 1, Path: "/"}, host.Cgroup{ID: 2, Path: w.path})
	byGroup := opens(t, "cpu_perf_cgroup", groups)
	var f metric.Frame
	before, groupsBefore := shown(t, s, &f), shown(t, byGroup, &f)
	_, _, cpu := w.work()
	groupsAfter := shown(t, byGroup, &f)
	after := shown(t, s, &f)
	all, group := sum(before, after, "cpu_cycles", ""), groupsAfter["cgroup_cpu_cycles "+w.path]-groupsBefore["cgroup_cpu_cycles "+w.path]
	every := sum(groupsBefore, groupsAfter, "cgroup_cpu_cycles", "")
	t.Logf("%d cycles in %d ns of a group, %d of all groups, %d of all CPUs", group, cpu, every, all)
	if rate := float64(group) / float64(cpu); rate < 0.5 || rate > 10 {
		t.Errorf("the group ran at %.2f GHz", rate)
	}
	if group > every || every > all {
		t.Errorf("%d cycles of a group, %d of all groups, %d of all CPUs", group, every, all)
	}
}

// TestTakingTurns has more groups than any processor has counters: each must
// come out at about the cycles that a pinned one counts.
func TestTakingTurns(t *testing.T) {
	cycle := event{desc: cpuCycles, code: hardware(unix.PERF_COUNT_HW_CPU_CYCLES)}
	groups := []group{{pinned: true, events: []event{cycle}}}
	for range 40 {
		groups = append(groups, group{events: []event{cycle}})
	}
	cpu := host.Online()[0]
	s, err := openSource("turns", &machine{}, true, func([]int) ([]target, error) { return perCPU(sysfs, []int{cpu}, groups), nil })
	if errors.Is(err, source.ErrUnsupported) {
		t.Log(err) // TestCycles holds that
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var f metric.Frame
	err = pinned(t, cpu, func() error {
		for end := threadCPU() + int64(5*burn); threadCPU() < end; {
		}
		return s.Read(&f)
	})
	if err != nil {
		t.Fatal(err)
	}
	var exact uint64
	var turns []uint64
	for i, c := range s.cells {
		if i == 0 {
			exact = c.totals[0]
		} else {
			turns = append(turns, c.totals[0])
		}
	}
	share := values(&f)["perf_multiplexed cpu_cycles"]
	t.Logf("%d cycles exactly, %d ppm of the time was estimated: %d", exact, share, turns)
	if share == 0 {
		t.Error("41 groups had a counter each all the time")
	}
	for _, n := range turns {
		if n < exact*3/4 || n > exact*5/4 {
			t.Errorf("a group that takes turns has %d cycles of %d", n, exact)
		}
	}
}

// TestMSRUnit counts the time stamp counter through its unit, which virtual
// machines have too, against the clock.
func TestMSRUnit(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		return // no such unit
	}
	unit, err := readPMU(sysfs, "msr")
	if err != nil {
		t.Fatal(err)
	}
	tsc, err := unit.named("tsc")
	if err != nil {
		t.Fatal(err)
	}
	groups := []group{{pinned: true, events: []event{{desc: cpuTSC, code: tsc}}}}
	s, err := openSource("tsc", &machine{}, true, func(online []int) ([]target, error) { return perCPU(sysfs, online, groups), nil })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var f metric.Frame
	rates := map[string]float64{}
	before := shown(t, s, &f)
	began := f.Begin
	for end := threadCPU() + int64(burn); threadCPU() < end; {
	}
	after := shown(t, s, &f)
	elapsed := float64(f.Begin - began)
	for key, value := range after {
		if strings.HasPrefix(key, "cpu_tsc") {
			rates[key] = float64(value-before[key]) / elapsed
			if rates[key] < 0.5 || rates[key] > 10 {
				t.Errorf("%s runs at %.3f GHz", key, rates[key])
			}
		} else if value != 0 {
			t.Errorf("%s is %d, want that nothing was estimated", key, value)
		}
	}
	// All CPUs have the same one.
	for key, rate := range rates {
		if first := rates["cpu_tsc "+strconv.Itoa(host.Online()[0])]; rate < first*0.99 || rate > first*1.01 {
			t.Errorf("%s runs at %.4f GHz, another at %.4f", key, rate, first)
		}
	}
	t.Log(rates)
}

func TestReadAllocatesNothing(t *testing.T) {
	groups := &told{}
	groups.set(host.Cgroup{ID: 1, Path: "/"})
	for _, r := range []reader{opens(t, "cpu_software", nil), opens(t, "cpu_software_cgroup", groups)} {
		var f metric.Frame
		if n := testing.AllocsPerRun(100, func() {
			if err := r.Read(&f); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations in a read", n)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	s := opens(b, "cpu_software", nil)
	var f metric.Frame
	for b.Loop() {
		if err := s.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadCgroups(b *testing.B) {
	groups := &told{}
	groups.set(host.Cgroup{ID: 1, Path: "/"})
	s := opens(b, "cpu_software_cgroup", groups)
	var f metric.Frame
	for b.Loop() {
		if err := s.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}

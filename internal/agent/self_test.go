// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
)

// readSelf is what the agent says of itself now, by "name value value".
func readSelf(t *testing.T, a *Agent) map[string][]uint64 {
	t.Helper()
	var f metric.Frame
	if err := a.sources[0].Read(&f); err != nil {
		t.Fatal(err)
	}
	if len(f.Values) != f.Schema.Words {
		t.Fatalf("%d words for a schema of %d", len(f.Values), f.Schema.Words)
	}
	got := map[string][]uint64{}
	for _, s := range f.Schema.Series {
		name := strings.Join(append([]string{s.Desc.Name}, s.Values...), " ")
		got[name] = slices.Clone(f.Values[s.Off : s.Off+s.Desc.Words()])
	}
	return got
}

func TestSelf(t *testing.T) {
	programs := []ProgramCost{{"syscall", "sys_enter", 23, 2300}}
	a := New(Options{Run: &metric.Run{Started: 1}, Self: Self{
		KernelMemory: func() uint64 { return 4096 },
		Programs:     func(to []ProgramCost) []ProgramCost { return append(to, programs...) },
	}})
	defer a.stop()
	a.Add(newFake("other"), SourceOptions{})
	a.sources[1].spent.Store(5)
	a.sources[1].errors.Store(6)
	a.sources[1].lost.Store(7)
	a.stats.ticks.Store(8)
	a.stats.missed.Store(9)
	a.stats.dropped.Store(10)
	a.stats.durations[11].Store(12)
	got := readSelf(t, a)
	f := func(name string, want uint64) {
		t.Helper()
		if v := got[name]; len(v) != 1 || v[0] != want {
			t.Errorf("%s is %d, want %d", name, v, want)
		}
	}
	f("rezolus_source_read_duration other", 5)
	f("rezolus_source_errors other", 6)
	f("rezolus_lost_events other", 7)
	f("rezolus_ticks", 8)
	f("rezolus_ticks_missed", 9)
	f("rezolus_ticks_dropped", 10)
	f("rezolus_memory_usage_kernel", 4096)
	f("rezolus_bpf_run_count sys_enter syscall", 23)
	f("rezolus_bpf_run_time sys_enter syscall", 2300)
	if h := got["rezolus_tick_duration"]; len(h) != tickPower.Buckets() || h[11] != 12 {
		t.Errorf("tick durations are %d", h)
	}
	programs[0].Program = "sys_exit" // as many, but another
	if _, ok := readSelf(t, a)["rezolus_bpf_run_count sys_exit syscall"]; !ok {
		t.Error("a program has the name of the one before")
	}
	programs = nil // not measured any more
	for name := range readSelf(t, a) {
		if strings.HasPrefix(name, "rezolus_bpf") {
			t.Errorf("%s is published, and nobody measures it", name)
		}
	}
}

// The words getrusage gives lie between two readings of it around.
func TestSelfAgreesWithTheKernel(t *testing.T) {
	a := New(Options{Run: &metric.Run{}})
	defer a.stop()
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		t.Fatal(err)
	}
	got := readSelf(t, a)
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		t.Fatal(err)
	}
	f := func(name string, of func(*unix.Rusage) int64) {
		t.Helper()
		if v := got[name]; len(v) != 1 || int64(v[0]) < of(&before) || int64(v[0]) > of(&after) {
			t.Errorf("%s is %d, want %d to %d", name, v, of(&before), of(&after))
		}
	}
	f("rezolus_cpu_usage user", func(u *unix.Rusage) int64 { return u.Utime.Nano() })
	f("rezolus_cpu_usage system", func(u *unix.Rusage) int64 { return u.Stime.Nano() })
	f("rezolus_memory_page_reclaims", func(u *unix.Rusage) int64 { return u.Minflt })
	f("rezolus_memory_page_faults", func(u *unix.Rusage) int64 { return u.Majflt })
	f("rezolus_blockio_operations read", func(u *unix.Rusage) int64 { return u.Inblock })
	f("rezolus_blockio_operations write", func(u *unix.Rusage) int64 { return u.Oublock })
	f("rezolus_context_switch voluntary", func(u *unix.Rusage) int64 { return u.Nvcsw })
	f("rezolus_context_switch involuntary", func(u *unix.Rusage) int64 { return u.Nivcsw })
}

// The resident set is the one of now: it falls when memory is given back,
// unlike the maximum that getrusage keeps.
func TestResidentIsTheMemoryOfNow(t *testing.T) {
	a := New(Options{Run: &metric.Run{}})
	defer a.stop()
	const size = 64 << 20
	resident := func() uint64 { return readSelf(t, a)["rezolus_memory_usage_resident_set_size"][0] }
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	with := resident()
	if err := unix.Munmap(memory); err != nil {
		t.Fatal(err)
	}
	if without := resident(); with < size || without > with-size/2 {
		t.Errorf("%d bytes are resident with 64 MiB in use, %d after they were given back", with, without)
	}
}

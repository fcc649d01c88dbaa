// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// TestRealHotplug takes CPU 1 away and gives it back, once between reads and
// once unseen. It does that to a virtual machine only.
func TestRealHotplug(t *testing.T) {
	const file = "/sys/devices/system/cpu/cpu1/online"
	if os.Getenv("REZOLUS_VM") == "" {
		t.Skip("it would take a CPU from everything else on this machine")
	}
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	w := newWorker(t)
	groups := &told{}
	groups.set(host.Cgroup{ID: 1, Path: "/"}, host.Cgroup{ID: 2, Path: w.path})
	byCPU, byGroup := opens(t, "cpu_software", nil), opens(t, "cpu_software_cgroup", groups)
	set := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if text, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(text)) != "1" {
			set("1")
		}
	})
	var f, g metric.Frame
	const here, minors = "perf_page_faults 1 minor", "cgroup_perf_page_faults minor "
	before := shown(t, byCPU, &f)
	shown(t, byGroup, &g)
	start, groupStart := startOf(&f, "1"), g.Schema.Series[0].Start

	set("0")
	if got := shown(t, byCPU, &f); got["perf_page_faults 0 minor"] < before["perf_page_faults 0 minor"] || startOf(&f, "1") != 0 {
		t.Errorf("CPU 1 is offline and there is %v", got)
	}
	shown(t, byGroup, &g)
	set("1")
	got := shown(t, byCPU, &f)
	if _, there := got[here]; !there || startOf(&f, "1") <= start {
		t.Errorf("CPU 1 is back and there is %v since %d", got, startOf(&f, "1"))
	}
	counted := shown(t, byGroup, &g)
	faultsOn(t, 1)
	if now := shown(t, byCPU, &f); now[here] < got[here]+minorFaults {
		t.Errorf("%d faults on CPU 1 after %d", now[here], got[here])
	}
	// The worker ends on CPU 1: the group's counters there are new.
	minor, _, _ := w.work()
	now := shown(t, byGroup, &g)
	if n := now[minors+w.path] - counted[minors+w.path]; n < minorFaults || n > minor+64 {
		t.Errorf("the group has %d faults, want %d", n, minor)
	}
	if n := now["cgroup_perf_task_clock "+w.path] - counted["cgroup_perf_task_clock "+w.path]; n < uint64(burn) {
		t.Errorf("the group ran for %v, want %v", time.Duration(n), burn)
	}
	if g.Schema.Series[0].Start != groupStart {
		t.Error("the group's counters began anew")
	}

	// Unseen: both reads find CPU 1 online.
	got = shown(t, byCPU, &f)
	start = startOf(&f, "1")
	set("0")
	set("1")
	shown(t, byCPU, &f) // the last of the old counters: their time went on until CPU 1 went
	passes()
	shown(t, byCPU, &f) // theirs stands still now
	faultsOn(t, 1)
	if now := shown(t, byCPU, &f); now[here] < minorFaults || startOf(&f, "1") <= start {
		t.Errorf("%d faults on CPU 1 since %d, before it was %d since %d", now[here], startOf(&f, "1"), got[here], start)
	}
}

// startOf is when the counters of a CPU began; 0: there are none.
func startOf(f *metric.Frame, cpu string) int64 {
	for _, s := range f.Schema.Series {
		if id, _ := s.Label("id"); id == cpu {
			return s.Start
		}
	}
	return 0
}

// faultsOn touches fresh pages on a CPU.
func faultsOn(t testing.TB, cpu int) {
	t.Helper()
	size := os.Getpagesize()
	pages, err := unix.Mmap(-1, 0, minorFaults*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(pages)
	if err := unix.Madvise(pages, unix.MADV_NOHUGEPAGE); err != nil {
		t.Fatal(err)
	}
	err = pinned(t, cpu, func() error {
		for i := range minorFaults {
			pages[i*size] = 1
		}
		runtime.KeepAlive(pages)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

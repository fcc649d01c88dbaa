// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// grouped is a source of control groups on a fake kernel.
type grouped struct {
	*Cgroups
	f     *fake
	t     *testing.T
	told  *told
	frame metric.Frame
}

func newGrouped(t *testing.T, cpus string, max int, paths ...string) *grouped {
	t.Helper()
	g := &grouped{f: newFake(cpus), t: t, told: &told{}}
	dir := t.TempDir()
	members := []host.Cgroup{{ID: 1, Path: "/"}}
	for i, p := range paths {
		if err := os.MkdirAll(filepath.Join(dir, p), 0o755); err != nil {
			t.Fatal(err)
		}
		members = append(members, host.Cgroup{ID: uint64(i) + 2, Path: p})
	}
	g.told.set(members...)
	var err error
	if g.Cgroups, err = openCgroups("cpu_perf_cgroup", g.f, sets[0].byCgroup(sets[0].groups), true, g.told, dir, max); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, g.Cgroups, g.f) })
	return g
}

// counts says what a group (-1: the machine) counted on a CPU.
func (g *grouped) counts(shown, cpu int, time, cycles, instructions uint64) {
	cgroup := -1
	if shown >= 0 {
		cgroup = g.shown[shown].dir
	}
	g.f.sayOf(cpu, cgroup, 0, time, time, two(cycles, instructions))
}

func (g *grouped) read() map[string]uint64 {
	g.t.Helper()
	return shown(g.t, g.Cgroups, &g.frame)
}

const exact = "perf_multiplexed cgroup_cpu_"

func TestGroupsAndOtherAddUpToTheMachine(t *testing.T) {
	g := newGrouped(t, "0-1", 2, "/a", "/a/below", "/b", "/c")
	g.counts(0, 0, 10, 3, 30)
	g.counts(0, 1, 10, 4, 40)
	g.counts(1, 0, 10, 5, 50)
	g.counts(1, 1, 0, 0, 0) // no task of it was there: that is zero, not unknown
	g.counts(-1, 0, 100, 100, 1000)
	g.counts(-1, 1, 100, 200, 2000)
	want := map[string]uint64{"cgroup_cpu_cycles /a": 7, "cgroup_cpu_instructions /a": 70,
		"cgroup_cpu_cycles /b": 5, "cgroup_cpu_instructions /b": 50,
		"cgroup_cpu_cycles other": 288, "cgroup_cpu_instructions other": 2880, exact + "cycles": 0, exact + "instructions": 0}
	expect(t, g.read(), want)
	for _, o := range g.f.fds {
		if o.cpu < 0 {
			t.Errorf("opened %+v, want one for each CPU", o)
		}
	}
	// What is read later than the groups may be ahead, but never falls.
	g.counts(0, 0, 20, 53, 530)
	g.counts(-1, 0, 110, 140, 1400)
	want["cgroup_cpu_cycles /a"], want["cgroup_cpu_instructions /a"] = 57, 570
	expect(t, g.read(), want)
	g.counts(-1, 0, 120, 155, 1550)
	want["cgroup_cpu_cycles other"], want["cgroup_cpu_instructions other"] = 355-57-5, 3550-570-50
	expect(t, g.read(), want)
}

func TestGroupsComeAndGo(t *testing.T) {
	g := newGrouped(t, "0", 1, "/a", "/b")
	g.counts(0, 0, 10, 10, 10)
	g.counts(-1, 0, 10, 100, 100)
	if got := g.read(); got["cgroup_cpu_cycles /a"] != 10 || got["cgroup_cpu_cycles other"] != 90 {
		t.Fatalf("there is %v", got)
	}
	// /a counts 7 more and goes; /b takes its place. The 7 are not of others.
	g.counts(0, 0, 20, 17, 17)
	g.counts(-1, 0, 20, 150, 150)
	g.told.set(host.Cgroup{ID: 1, Path: "/"}, host.Cgroup{ID: 3, Path: "/b"})
	got := g.read()
	if _, there := got["cgroup_cpu_cycles /a"]; there || got["cgroup_cpu_cycles /b"] != 0 || got["cgroup_cpu_cycles other"] != 90+50-7 {
		t.Errorf("there is %v", got)
	}
	if len(g.f.fds) != 4 {
		t.Errorf("%d counters are open, want 4", len(g.f.fds))
	}
	schema := g.frame.Schema
	g.told.generation++ // a group below one that is shown
	if g.read(); g.frame.Schema != schema {
		t.Error("another schema for the same groups")
	}
}

func TestGroupsKeepCountingWhenACPUGoes(t *testing.T) {
	g := newGrouped(t, "0-1", 0, "/a")
	g.counts(0, 0, 10, 10, 10)
	g.counts(0, 1, 10, 20, 20)
	g.counts(-1, 0, 10, 100, 100)
	g.counts(-1, 1, 10, 200, 200)
	g.read()
	start := g.frame.Schema.Series[0].Start
	// CPU 1 counts on until it goes.
	g.counts(0, 1, 15, 25, 25)
	g.counts(-1, 1, 15, 260, 260)
	g.f.leave(1, "0")
	if got := g.read(); got["cgroup_cpu_cycles /a"] != 35 || got["cgroup_cpu_cycles other"] != 360-35 {
		t.Errorf("there is %v", got)
	}
	g.f.cpus = "0-1"
	g.counts(0, 1, 1, 1, 1)
	g.counts(-1, 1, 1, 2, 2)
	if got := g.read(); got["cgroup_cpu_cycles /a"] != 36 || got["cgroup_cpu_cycles other"] != 362-36 {
		t.Errorf("there is %v", got)
	}
	if g.frame.Schema.Series[0].Start != start || len(g.f.fds) != 8 {
		t.Errorf("%d counters, start %d of %d", len(g.f.fds), g.frame.Schema.Series[0].Start, start)
	}
}

// TestGroupsBeginAnewWhenTheMachineDoes: the counters of groups cannot tell
// that their CPU was away between two reads, those of the machine can.
func TestGroupsBeginAnewWhenTheMachineDoes(t *testing.T) {
	g := newGrouped(t, "0", 0, "/a")
	g.counts(0, 0, 10, 10, 10)
	g.counts(-1, 0, 10, 100, 100)
	g.read()
	g.f.frozen = true
	g.read() // its last sign of life
	passes()
	if got := g.read(); len(got) != 2 {
		t.Errorf("there is %v, want nothing that counted", got)
	}
	g.counts(0, 0, 5, 2, 2)
	g.counts(-1, 0, 5, 7, 7)
	if got := g.read(); got["cgroup_cpu_cycles /a"] != 2 || got["cgroup_cpu_cycles other"] != 5 {
		t.Errorf("there is %v", got)
	}
}

func TestGroupThatIsNotInTheHierarchyIsTriedAgain(t *testing.T) {
	g := newGrouped(t, "0", 0, "/a")
	g.counts(0, 0, 10, 1, 1)
	g.counts(-1, 0, 10, 2, 2)
	g.told.set(append(g.told.members, host.Cgroup{ID: 9, Path: "/late"})...)
	if got := g.read(); len(got) != 6 || g.retry == 0 {
		t.Fatalf("there is %v, tried again at %d", got, g.retry)
	}
	if err := os.Mkdir(g.mount+"/late", 0o755); err != nil {
		t.Fatal(err)
	}
	g.retry = 1
	if got := g.read(); len(got) != 8 || g.retry != 0 {
		t.Errorf("then there is %v, tried again at %d", got, g.retry)
	}
}

// TestGroupsWithoutTheController: the kernel says ENOENT of a group without
// perf_event as it does of an event that the processor has not.
func TestGroupsWithoutTheController(t *testing.T) {
	f := newFake("0")
	f.refuse = func(o opened) error {
		if o.cgroup >= 0 {
			return unix.ENOENT
		}
		return nil
	}
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/a", 0o755); err != nil {
		t.Fatal(err)
	}
	groups := &told{}
	groups.set(host.Cgroup{ID: 2, Path: "/a"})
	_, err := openCgroups("x", f, sets[0].byCgroup(sets[0].groups), true, groups, dir, 0)
	if !errors.Is(err, source.ErrUnsupported) || !strings.Contains(err.Error(), "cgroup.subtree_control") || len(f.fds) != 0 {
		t.Errorf("error %v, want what to do; %d counters are open", err, len(f.fds))
	}
	// A group that comes later gets its own as soon as it can.
	g := newGrouped(t, "0", 0, "/a")
	g.f.refuse = f.refuse
	g.counts(-1, 0, 10, 1, 1)
	if err := os.Mkdir(g.mount+"/b", 0o755); err != nil {
		t.Fatal(err)
	}
	g.told.set(append(g.told.members, host.Cgroup{ID: 9, Path: "/b"})...)
	if got := g.read(); len(got) != 6 || g.shown[1].cells[0].retry == 0 {
		t.Errorf("there is %v", got)
	}
	g.f.refuse, g.shown[1].cells[0].retry = nil, 1
	if got := g.read(); len(got) != 8 {
		t.Errorf("then there is %v", got)
	}
}

func TestCgroupsWithoutCounters(t *testing.T) {
	f := newFake("0")
	f.refuse = func(opened) error { return unix.ENOENT }
	_, err := openCgroups("x", f, sets[0].byCgroup(sets[0].groups), true, &told{}, t.TempDir(), 0)
	if !errors.Is(err, source.ErrUnsupported) {
		t.Errorf("error %v, want that it is unsupported", err)
	}
	for _, s := range Samplers(nil, "", false, 0) {
		if s.Off {
			if _, err := s.Open(); !errors.Is(err, source.ErrUnsupported) {
				t.Errorf("%s without groups: error %v", s.Name, err)
			}
		}
	}
}

func TestHierarchyOfPerfEvents(t *testing.T) {
	v1 := "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /sys/fs/cgroup/net,perf_event cgroup rw,relatime,net_cls,perf_event 0 0\n"
	if dir := perfMount(v1); dir != "/sys/fs/cgroup/net,perf_event" {
		t.Errorf("it is at %q", dir)
	}
	if dir := perfMount("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n\ncgroup\n"); dir != "" {
		t.Errorf("it is at %q, and there is none of v1", dir)
	}
	if dir, err := perfHierarchy("/somewhere", false); dir != "/somewhere" || err != nil {
		t.Errorf("the unified one is at %q, %v", dir, err)
	}
}

func FuzzPerfMount(f *testing.F) {
	f.Add("cgroup /sys/fs/cgroup/perf_event cgroup rw,perf_event 0 0\n")
	f.Fuzz(func(t *testing.T, mounts string) {
		if dir := perfMount(mounts); dir != "" && !strings.Contains(mounts, dir) {
			t.Errorf("%q is no mount of %q", dir, mounts)
		}
	})
}

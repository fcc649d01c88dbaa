// SPDX-License-Identifier: Apache-2.0

package cgroupfs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// told is a Groups that a test changes.
type told struct {
	generation uint64
	members    []host.Cgroup
}

func (g *told) Generation() uint64     { return g.generation }
func (g *told) Members() []host.Cgroup { return g.members }

func (g *told) set(members ...host.Cgroup) {
	g.generation++
	g.members = members
}

// stat is a cpu.stat as 6.12 has it.
const stat = "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnice_usec 0\nnr_periods 0\n"

func put(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func closing(t testing.TB, c *CPU) *CPU {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// read is what one frame says, by name and labels.
func read(t testing.TB, c *CPU, f *metric.Frame) map[string]uint64 {
	t.Helper()
	if err := c.Read(f); err != nil {
		t.Fatal(err)
	}
	if f.Begin > f.End || len(f.Values) != f.Schema.Words {
		t.Fatalf("frame from %d to %d with %d of %d words", f.Begin, f.End, len(f.Values), f.Schema.Words)
	}
	m := map[string]uint64{}
	for _, s := range f.Schema.Series {
		m[strings.Join(append([]string{s.Desc.Name}, s.Values...), " ")] = f.Values[s.Off]
	}
	return m
}

func starts(f *metric.Frame) map[string]int64 {
	m := map[string]int64{}
	for _, s := range f.Schema.Series {
		if s.Desc == cpuUsage {
			m[s.Values[0]] = s.Start
		}
	}
	return m
}

func TestUnified(t *testing.T) {
	root := t.TempDir()
	put(t, root, "cpu.stat", stat)
	put(t, root+"/a", "cpu.stat", strings.Replace(stat, "user_usec 20", "user_usec 7", 1))
	groups := &told{}
	groups.set(host.Cgroup{ID: 1, Path: "/"}, host.Cgroup{ID: 2, Path: "/a", Born: 77})
	c := closing(t, NewCPU(groups, root, false, 0))
	var f metric.Frame
	got := read(t, c, &f)
	for key, want := range map[string]uint64{
		"cgroup_cpu_usage / user": 20_000, "cgroup_cpu_usage / system": 10_000,
		"cgroup_cpu_usage /a user": 7_000, "cgroup_cpu_usage /a system": 10_000, "cgroup_cpu_usage_unread": 0,
	} {
		if value, ok := got[key]; value != want || !ok {
			t.Errorf("%s = %d, %v; want %d", key, value, ok, want)
		}
	}
	if s := starts(&f); len(got) != 5 || s["/"] != host.BootTime() || s["/a"] != 77 {
		t.Errorf("%d series that start at %v", len(got), s)
	}
}

func TestV1(t *testing.T) {
	root := t.TempDir()
	put(t, root+"/a", "cpuacct.usage_user", "123456789\n")
	put(t, root+"/a", "cpuacct.usage_sys", "5\n")
	groups := &told{}
	groups.set(host.Cgroup{ID: 2, Path: "/a"}, host.Cgroup{ID: 3, Path: "/only-in-cpu"})
	got := read(t, closing(t, NewCPU(groups, root, true, 0)), &metric.Frame{})
	if len(got) != 3 || got["cgroup_cpu_usage /a user"] != 123456789 || got["cgroup_cpu_usage /a system"] != 5 || got["cgroup_cpu_usage_unread"] != 0 {
		t.Errorf("read %v", got)
	}
}

func TestMembership(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		put(t, filepath.Join(root, name), "cpu.stat", stat)
	}
	a, b, c := host.Cgroup{ID: 1, Path: "/a"}, host.Cgroup{ID: 2, Path: "/b", Born: 5}, host.Cgroup{ID: 3, Path: "/c", Born: 6}
	groups := &told{}
	groups.set(a, b)
	cpu := closing(t, NewCPU(groups, root, false, 0))
	var f metric.Frame
	read(t, cpu, &f)
	first := f.Schema
	read(t, cpu, &f)
	if f.Schema != first {
		t.Error("another schema for the same members")
	}
	groups.set(a, b)
	read(t, cpu, &f)
	if f.Schema != first {
		t.Error("another schema after a birth and a death that were not read")
	}
	kept := cpu.open[0]
	groups.set(a, c)
	read(t, cpu, &f)
	if s := starts(&f); len(s) != 2 || s["/c"] != 6 || s["/a"] != first.Series[0].Start || cpu.open[0] != kept {
		t.Errorf("after a death and a birth: %v", s)
	}
	groups.set(a, host.Cgroup{ID: 9, Path: "/c", Born: 8}) // another one of the same name
	read(t, cpu, &f)
	if s := starts(&f); s["/c"] != 8 {
		t.Errorf("a new group of an old name starts at %d", s["/c"])
	}
}

func TestLimit(t *testing.T) {
	root := t.TempDir()
	var all []host.Cgroup
	for i, name := range []string{"/a", "/b", "/c", "/d", "/e"} {
		put(t, root+name, "cpu.stat", stat)
		all = append(all, host.Cgroup{ID: uint64(i + 1), Path: name})
	}
	groups := &told{}
	groups.set(all[2:]...)
	c := closing(t, NewCPU(groups, root, false, 2))
	var f metric.Frame
	names := func(want uint64) (names []string) {
		t.Helper()
		if got := read(t, c, &f)["cgroup_cpu_usage_unread"]; got != want {
			t.Errorf("%d unread, want %d", got, want)
		}
		for name := range starts(&f) {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	if got := names(1); !slices.Equal(got, []string{"/c", "/d"}) {
		t.Errorf("read %q", got)
	}
	groups.set(all...) // those that are read stay, whatever comes before them
	if got := names(3); !slices.Equal(got, []string{"/c", "/d"}) {
		t.Errorf("read %q", got)
	}
	groups.set(all[0], all[2], all[4])
	if got := names(1); !slices.Equal(got, []string{"/a", "/c"}) {
		t.Errorf("read %q", got)
	}
}

// TestFilesThatComeLater is v1 with controllers apart, where a group is made
// in one hierarchy after the other.
func TestFilesThatComeLater(t *testing.T) {
	root := t.TempDir()
	groups := &told{}
	groups.set(host.Cgroup{ID: 1, Path: "/a"})
	c := closing(t, NewCPU(groups, root, false, 0))
	var f metric.Frame
	if got := read(t, c, &f); len(got) != 1 {
		t.Fatalf("read %v of nothing", got)
	}
	put(t, root+"/a", "cpu.stat", stat)
	none := f.Schema
	if read(t, c, &f); f.Schema != none {
		t.Fatal("looked again at once")
	}
	c.retry = host.Mono()
	if got := read(t, c, &f); got["cgroup_cpu_usage /a user"] != 20_000 {
		t.Errorf("read %v", got)
	}
	if c.retry != 0 {
		t.Error("it goes on looking")
	}
}

func TestUnknownFormIsAnError(t *testing.T) {
	root := t.TempDir()
	put(t, root, "cpu.stat", "usage_usec 5\n")
	groups := &told{}
	groups.set(host.Cgroup{ID: 1, Path: "/"})
	if err := closing(t, NewCPU(groups, root, false, 0)).Read(&metric.Frame{}); err == nil || !strings.Contains(err.Error(), "cpu.stat") {
		t.Errorf("error %v, want one that names the file", err)
	}
}

func TestParse(t *testing.T) {
	f := func(text string, user, system uint64, ok bool) {
		t.Helper()
		var times [2]uint64
		if got := parseStat([]byte(text), times[:]); got != ok || ok && times != [2]uint64{user, system} {
			t.Errorf("%q is %v, %v", text, times, got)
		}
	}
	f(stat, 20_000, 10_000, true)
	f("system_usec 3\nuser_usec 2", 2000, 3000, true)
	f("", 0, 0, false)
	f("user_usec 2\n", 0, 0, false)
	f("user_usec x\nsystem_usec 3\n", 0, 0, false)
	f("user_usec \nsystem_usec 3\n", 0, 0, false)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(stat))
	f.Add([]byte("user_usec 1\nuser_usec 2"))
	f.Fuzz(func(t *testing.T, b []byte) {
		times := [2]uint64{}
		if parseStat(b, times[:]) && times[0]%8 != 0 { // 1000 is 8 x 125, also when it overflows
			t.Errorf("%q is %v", b, times)
		}
	})
}

func BenchmarkRead100(b *testing.B) {
	root := b.TempDir()
	groups := &told{}
	var all []host.Cgroup
	for i := range 100 {
		g := host.Cgroup{ID: uint64(i + 1), Path: "/" + time.Duration(i).String()}
		put(b, root+g.Path, "cpu.stat", stat)
		all = append(all, g)
	}
	groups.set(all...)
	c := closing(b, NewCPU(groups, root, false, 0))
	var f metric.Frame
	for b.Loop() {
		if err := c.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}

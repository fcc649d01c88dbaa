// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"rezolus/internal/metric"
)

func testHost() Host {
	started := time.Now()
	n := runtime.NumCPU()
	h := Host{Possible: n, Mono: func() int64 { return int64(time.Since(started)) }, Wall: func() int64 { return time.Now().UnixNano() }, KernelBTF: true}
	for cpu := range n {
		h.Online = append(h.Online, cpu)
	}
	return h
}

func parseFile(t testing.TB, name string) *Object {
	t.Helper()
	f, err := os.Open("testdata/" + name + ".bpf.o")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o, err := Parse(name, f)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func newCgroups(t testing.TB, slots int, objects ...*Object) *Slots {
	t.Helper()
	c, err := NewSlots(testHost(), cgroups(slots), objects...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func cgroups(slots int) Domain {
	return Domain{Name: "cgroup", Slots: slots, Bytes: 1 << 20, Constants: map[string]any{"rz_cgroup_v1": v1()}}
}

// v1 tells whether the cpu controller is mounted as v1, as on hybrid hosts.
func v1() bool {
	text, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[2] == "cgroup" && slices.Contains(strings.Split(f[3], ","), "cpu") {
			return true
		}
	}
	return false
}

func load(t testing.TB, name string, o Options) *Probe {
	t.Helper()
	if o.Host.Mono == nil {
		o.Host = testHost()
	}
	p, err := parseFile(t, name).Load(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// rename renames a thread that is called renamed n times.
func rename(t testing.TB, n int) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range n + 1 {
		name := "renamed"
		if i == n {
			name = "as before"
		}
		if err := os.WriteFile("/proc/thread-self/comm", []byte(name), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// values reads a source: the sum of each series' words by name and labels.
func values(t testing.TB, s interface{ Read(*metric.Frame) error }) (map[string]uint64, *metric.Frame) {
	t.Helper()
	var f metric.Frame
	if err := s.Read(&f); err != nil {
		t.Fatal(err)
	}
	m := map[string]uint64{}
	for _, e := range f.Schema.Series {
		var n uint64
		for _, w := range f.Values[e.Off : e.Off+e.Desc.Words()] {
			n += w
		}
		m[e.Desc.Name+" "+strings.Join(e.Values, ",")] += n
	}
	return m, &f
}

func TestEveryRungCounts(t *testing.T) {
	for hook, host := range map[string]func(*Host){
		"tp_btf/task_rename": func(*Host) {},
		"raw_tp/task_rename": func(h *Host) { h.KernelBTF = false },
	} {
		h := testHost()
		host(&h)
		cgroups := newCgroups(t, 4)
		p := load(t, "rename", Options{Host: h, Slots: []*Slots{cgroups}})
		if s := p.Status()[0]; s.State != Healthy || s.Programs[0].Hook != hook {
			t.Fatalf("%s: %+v", hook, s)
		}
		rename(t, 23)
		got, f := values(t, p.Source())
		var perCPU uint64
		for k, v := range got {
			if strings.HasPrefix(k, "task_renames ") {
				perCPU += v
			}
		}
		if perCPU != 23 || got["task_renames_by y,r,yes"] != perCPU || got["task_renames_by x,p,yes"] != 0 {
			t.Errorf("%s: %d renames, by label %v; want 23", hook, perCPU, got)
		}
		if got["task_rename_size "] != perCPU || f.Lost != perCPU {
			t.Errorf("%s: %d in the histogram, %d lost; want %d", hook, got["task_rename_size "], f.Lost, perCPU)
		}
		inCgroups, _ := values(t, cgroups)
		if inCgroups["cgroup_task_renames other"] != perCPU {
			t.Errorf("%s: cgroups are %v, want %d in other", hook, inCgroups, perCPU)
		}
		for _, e := range f.Schema.Series {
			if e.Desc.Name == "task_rename_size" && (e.Desc.Kind != metric.Histogram || e.Desc.Unit != metric.Bytes || f.Values[e.Off+e.Desc.Power.Index(100)] != perCPU) {
				t.Errorf("%s: histogram %+v", hook, e.Desc)
			}
		}
	}
}

// TestTypesFromAFile is a kernel without BTF of its own, whose BTF is in a file.
func TestTypesFromAFile(t *testing.T) {
	h := testHost()
	h.KernelBTF = false
	var err error
	if h.BTF, err = ReadTypes("/sys/kernel/btf/vmlinux"); err != nil {
		t.Fatal(err)
	}
	p := load(t, "rename", Options{Host: h, Slots: []*Slots{newCgroups(t, 4)}})
	rename(t, 23)
	if got, _ := values(t, p.Source()); got["task_renames_by y,r,yes"] < 23 {
		t.Errorf("counted %v of 23", got)
	}
	if _, err := ReadTypes("testdata/rename.bpf.c"); err == nil {
		t.Error("a text is taken for BTF")
	}
}

func TestADisabledSamplerIsAbsent(t *testing.T) {
	p := load(t, "rename", Options{Slots: []*Slots{newCgroups(t, 4)}, Enabled: func(s string) bool { return s != "rename_more" }})
	rename(t, 3)
	got, f := values(t, p.Source())
	for k := range got {
		if strings.HasPrefix(k, "task_rename_size") || strings.HasPrefix(k, "task_renames_lost") {
			t.Errorf("%s is published and its sampler is off", k)
		}
	}
	if len(got) == 0 || f.Lost != 0 {
		t.Errorf("%d series, %d lost", len(got), f.Lost)
	}
	for _, s := range p.Status() {
		if want := map[string]State{"rename": Healthy, "rename_more": Disabled}[s.Name]; s.State != want {
			t.Errorf("%s is %s, want %s", s.Name, s.State, want)
		}
	}
	off := load(t, "rename", Options{Slots: []*Slots{newCgroups(t, 4)}, Enabled: func(string) bool { return false }})
	if off.Source() != nil || len(off.hooks) != 0 {
		t.Error("a probe with all samplers off has a source or programs")
	}
}

// TestHooksThatAKernelLacks: functions cannot be traced on every kernel, and
// one tracepoint, one argument and one helper exist on none.
func TestHooksThatAKernelLacks(t *testing.T) {
	p := load(t, "rungs", Options{})
	states := map[string]SamplerStatus{}
	for _, s := range p.Status() {
		states[s.Name] = s
	}
	if s := states["nowhere"]; s.State != Unsupported || !strings.Contains(s.Reason, "raw_tp/no_such_tracepoint") {
		t.Errorf("a tracepoint that no kernel has: %+v", s)
	}
	for name, want := range map[string]string{
		"no_argument": "fewer arguments than the program reads", "no_helper": "does not have the helper",
	} {
		if s := states[name]; s.State != Unsupported || strings.Count(s.Reason, want) != len(s.Programs[0].Tried) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	for name, series := range map[string]string{"function": "function_calls ", "only_tp": "tracepoint_renames ", "nowhere": "never_counted "} {
		published := false
		if p.Source() != nil {
			rename(t, 23)
			got, _ := values(t, p.Source())
			_, published = got[series]
			if published && got[series] < 23 {
				t.Errorf("%s counts %d of 23", name, got[series])
			}
		}
		if published != (states[name].State == Healthy) {
			t.Errorf("%s is %s, and its metric is published: %v", name, states[name].State, published)
		}
		if states[name].State != Healthy && states[name].Reason == "" {
			t.Errorf("%s is %s without a reason", name, states[name].State)
		}
		t.Logf("%s: %s %v %s", name, states[name].State, states[name].Programs, states[name].Reason)
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	cgroups := newCgroups(t, 4)
	p := load(t, "rename", Options{Slots: []*Slots{cgroups}})
	var f, g metric.Frame
	both := func() {
		if err := errors.Join(p.Source().Read(&f), cgroups.Read(&g)); err != nil {
			t.Fatal(err)
		}
	}
	both()
	if n := testing.AllocsPerRun(1, func() {
		for range 100 {
			both()
		}
	}); n != 0 {
		t.Errorf("%v allocations in 100 reads", n)
	}
}

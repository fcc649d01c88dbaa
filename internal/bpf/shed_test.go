// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/probes"
)

func stateOf(p *Probe, sampler string) State {
	for _, s := range p.Status() {
		if s.Name == sampler {
			return s.State
		}
	}
	return ""
}

func builtIn(t *testing.T, name string) *Object {
	t.Helper()
	elf, err := probes.Objects.ReadFile(name + "/" + name + ".bpf.o")
	if err != nil {
		t.Fatal(err)
	}
	o, err := Parse(name, bytes.NewReader(elf))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func shed(t *testing.T, p *Probe, samplers ...string) {
	t.Helper()
	if err := p.Shed(samplers); err != nil {
		t.Fatal(err)
	}
}

// total is the sum of the series whose name begins so; -1: there are none.
func total(got map[string]uint64, prefix string) int64 {
	n := int64(-1)
	for k, v := range got {
		if strings.HasPrefix(k, prefix) {
			n = max(n, 0) + int64(v)
		}
	}
	return n
}

// Two samplers share the hook of this probe.
func TestASamplerThatIsShedEndsAndBeginsAnew(t *testing.T) {
	cgroups := newCgroups(t, 4)
	p := load(t, "rename", Options{Slots: []*Slots{cgroups}})
	counts := func() (by, sizes, cgroup int64, lost uint64) {
		own, f := values(t, p.Source())
		things, _ := values(t, cgroups)
		return total(own, "task_renames_by y,r"), total(own, "task_rename_size"), total(things, "cgroup_task_renames"), f.Lost
	}
	is := func(what string, got, want int64) {
		t.Helper()
		if got != want {
			t.Errorf("%s is %d, want %d", what, got, want)
		}
	}
	rename(t, 23)
	shed(t, p, "rename_more")
	rename(t, 31)
	by, sizes, cgroup, lost := counts()
	is("the sampler that stays", by, 54)
	is("its cgroup", cgroup, 54)
	is("the sampler that is shed", sizes, -1)
	if lost != 0 || stateOf(p, "rename_more") != Shed || stateOf(p, "rename") != Healthy {
		t.Errorf("%d lost; shed is %s, the other %s", lost, stateOf(p, "rename_more"), stateOf(p, "rename"))
	}

	returned := time.Now().UnixNano()
	shed(t, p)
	rename(t, 37)
	by, sizes, _, _ = counts()
	is("the sampler that stayed", by, 91)
	is("the sampler that came back", sizes, 37)
	_, f := values(t, p.Source())
	for _, s := range f.Schema.Series {
		if since := s.Start >= returned; since != (s.Desc.Sampler == "rename_more") {
			t.Errorf("%s began after the return: %v", s.Desc.Name, since)
		}
	}

	shed(t, p, "rename", "rename_more", "no_such_sampler")
	if c := p.Costs(nil); len(c) != 0 || p.Status()[0].Programs[0].State != Shed {
		t.Errorf("with both shed, attached are %+v", c)
	}
	rename(t, 41)
	if by, sizes, cgroup, _ = counts(); by != -1 || sizes != -1 || cgroup != -1 {
		t.Errorf("with both shed, published are %d, %d, %d", by, sizes, cgroup)
	}
	shed(t, p, "rename_more")
	rename(t, 43)
	by, sizes, cgroup, _ = counts()
	is("the sampler that came back alone", by, 43)
	is("its cgroup", cgroup, 43)
	is("the other", sizes, -1)
	if c := p.Costs(nil); len(c) != 1 || strings.Join(c[0].Samplers, " ") != "rename" {
		t.Errorf("attached are %+v", c)
	}
}

// Costs go on where a program was replaced.
func TestCostsNeverFall(t *testing.T) {
	p := load(t, "rename", Options{Slots: []*Slots{newCgroups(t, 4)}})
	stats, err := Measure()
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	rename(t, 23)
	before := p.Costs(nil)[0]
	shed(t, p, "rename_more")
	shed(t, p)
	rename(t, 29)
	after := p.Costs(nil)[0]
	if before.Runs < 23 || after.Runs < before.Runs+29 || after.RunNs <= before.RunNs {
		t.Errorf("cost was %+v, and is %+v after 29 runs more", before, after)
	}
}

// A call that began before its sampler was shed, and ends after it came back,
// is not taken for one that lasted all the time.
func TestWhatReturnsRemembersNothing(t *testing.T) {
	o := builtIn(t, "task")
	cgroups := newCgroups(t, 4, o)
	p, err := o.Load(Options{Host: testHost(), Slots: []*Slots{cgroups}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()

	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	var blocked sync.WaitGroup
	blocked.Go(func() { // in a read, from before to after
		var b [1]byte
		_, _ = unix.Read(pipe[0], b[:])
	})
	time.Sleep(50 * time.Millisecond) // until it is; else there is less to find
	samplers := []string{"scheduler_runqueue", "syscall_counts", "syscall_latency", "cpu_migrations"}
	for _, s := range p.Status() {
		if slices.Contains(samplers, s.Name) && s.State != Healthy {
			t.Fatalf("before anything is shed, sampler %s is %s: %s", s.Name, s.State, s.Reason)
		}
	}
	shed(t, p, samplers...)
	time.Sleep(500 * time.Millisecond)
	back := time.Now()
	shed(t, p)
	unix.Close(pipe[1])
	blocked.Wait()

	// What the scheduler itself remembers may be older.
	for _, name := range []string{"syscall_latency", "scheduler_offcpu"} {
		n := uint64(0)
		for n == 0 && time.Since(back) < 10*time.Second {
			var longest uint64
			n, longest = samples(t, p, name)
			if most := uint64(time.Since(back)); longest > most {
				t.Fatalf("%s has a time of %v, %v after it came back", name, time.Duration(longest), time.Duration(most))
			}
			time.Sleep(time.Millisecond)
		}
		if n == 0 {
			t.Errorf("%s counts nothing since it came back", name)
		}
	}
}

// samples are how many a histogram of a probe has, and the least that the
// longest can be.
func samples(t *testing.T, p *Probe, name string) (n, longest uint64) {
	t.Helper()
	_, f := values(t, p.Source())
	for _, s := range f.Schema.Series {
		if s.Desc.Name != name {
			continue
		}
		for i, words := range f.Values[s.Off : s.Off+s.Desc.Words()] {
			if n += words; words > 0 {
				low, _ := s.Desc.Power.Bounds(i)
				longest = max(longest, low)
			}
		}
	}
	return n, longest
}

//go:noinline
func calledHere(n int) int { return n*n + 1 }

// The programs of functions are attached again as they were.
func TestFunctionsAreShed(t *testing.T) {
	o := builtIn(t, "usercall")
	slots, err := NewFunctionSlots(testHost(), 1, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range slots {
		defer s.Close()
	}
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.Load(Options{Host: testHost(), Slots: slots, Functions: []Function{
		{Library: "test", Name: "called_here", File: file, Symbol: "rezolus/internal/bpf.calledHere"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	calls := func(n int) int64 {
		for i := range n {
			calledHere(i)
		}
		got, _ := values(t, slots[0])
		return total(got, "usercall ")
	}
	for _, f := range []struct {
		shed []string
		n    int
		want int64
	}{{nil, 23, 23}, {[]string{"usercall"}, 31, -1}, {nil, 37, 37}, {[]string{"usercall"}, 1, -1}, {nil, 41, 41}} {
		shed(t, p, f.shed...)
		if got := calls(f.n); got != f.want {
			t.Errorf("with %q shed, %d calls are %d, want %d; the sampler is %s", f.shed, f.n, got, f.want, stateOf(p, "usercall"))
		}
	}
}

func BenchmarkShed(b *testing.B) {
	c, err := NewSlots(testHost(), cgroups(4))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	p := load(b, "rename", Options{Slots: []*Slots{c}})
	for b.Loop() {
		if err := p.Shed([]string{"rename_more"}); err != nil {
			b.Fatal(err)
		}
		if err := p.Shed(nil); err != nil {
			b.Fatal(err)
		}
	}
}

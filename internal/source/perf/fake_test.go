// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// opened is a counter that was asked for.
type opened struct {
	attr                unix.PerfEventAttr
	cgroup, cpu, leader int
}

// spot is where a fake group counts: by the leader's event.
type spot struct {
	cpu, cgroup int
	config      uint64
}

// says is what a fake group says: times in microseconds and counts by event.
type says struct {
	enabled, running uint64
	counts           map[uint64]uint64
	err              error
	end              bool // end of file: a pinned group that was pushed out
	apart            bool // each counter stands by itself, as when its CPU is offline
}

// fake is a kernel that follows a script.
type fake struct {
	cpus   string
	refuse func(opened) error // nil: nothing is refused
	says   map[spot]says
	fds    map[int]opened
	next   int
	opens  int
	reads  uint64
	// frozen has time stand still for all groups between two scripts.
	frozen bool
}

func newFake(cpus string) *fake {
	return &fake{cpus: cpus, says: map[spot]says{}, fds: map[int]opened{}, next: 100}
}

func (f *fake) open(attr *unix.PerfEventAttr, cgroup, cpu, leader int) (int, error) {
	o := opened{*attr, cgroup, cpu, leader}
	f.opens++
	if f.refuse != nil {
		if err := f.refuse(o); err != nil {
			return -1, err
		}
	}
	f.next++
	f.fds[f.next] = o
	return f.next, nil
}

func (f *fake) enable(int) error { return nil }
func (f *fake) release() error   { return nil }

func (f *fake) close(fd int) error {
	delete(f.fds, fd)
	return nil
}

func (f *fake) online() ([]byte, error) { return []byte(f.cpus + "\n"), nil }

func (f *fake) read(fd int, b []byte) (int, error) {
	o, ok := f.fds[fd]
	leader := o
	if o.leader >= 0 {
		leader = f.fds[o.leader]
	}
	s := f.says[spot{o.cpu, o.cgroup, leader.attr.Config}]
	if !ok || o.leader >= 0 && !s.apart {
		return 0, unix.EBADF
	}
	if s.err != nil || s.end {
		return 0, s.err
	}
	words := []uint64{0, 1000 * s.enabled, 1000 * s.running}
	if f.reads++; !f.frozen && s.enabled == s.running && s.enabled > 0 {
		words[1], words[2] = words[1]+f.reads, words[2]+f.reads
	}
	members := []int{fd}
	for other, m := range f.fds {
		if m.leader == fd && !s.apart {
			members = append(members, other)
		}
	}
	slices.Sort(members) // descriptors ascend in the order of opening
	for _, m := range members {
		words = append(words, s.counts[f.fds[m].attr.Config])
	}
	words[0] = uint64(len(members))
	for i, w := range words {
		binary.NativeEndian.PutUint64(b[8*i:], w)
	}
	return 8 * len(words), nil
}

// say sets what the group led by config says on a CPU.
func (f *fake) say(cpu int, config, enabled, running uint64, counts map[uint64]uint64) {
	f.sayOf(cpu, -1, config, enabled, running, counts)
}

func (f *fake) sayOf(cpu, cgroup int, config, enabled, running uint64, counts map[uint64]uint64) {
	f.says[spot{cpu, cgroup, config}] = says{enabled: enabled, running: running, counts: counts}
}

// leave takes a CPU offline as the kernel does.
func (f *fake) leave(cpu int, online string) {
	f.cpus = online
	for at, s := range f.says {
		if at.cpu == cpu {
			s.apart = true
			f.says[at] = s
		}
	}
}

// reader is what both sources are.
type reader interface {
	Read(*metric.Frame) error
	Close() error
}

// shown is what a read says by name and labels. Floats are in millionths.
func shown(t testing.TB, r reader, f *metric.Frame) map[string]uint64 {
	t.Helper()
	if err := r.Read(f); err != nil {
		t.Fatal(err)
	}
	return values(f)
}

func values(f *metric.Frame) map[string]uint64 {
	m := map[string]uint64{}
	for _, s := range f.Schema.Series {
		key := strings.Join(append([]string{s.Desc.Name}, s.Values...), " ")
		m[key] = f.Values[s.Off]
		if s.Desc.Float {
			m[key] = uint64(s.Desc.Value(f.Values[s.Off])*1e6 + 0.5)
		}
	}
	return m
}

// expect compares all that is shown.
func expect(t *testing.T, got, want map[string]uint64) {
	t.Helper()
	for key, value := range want {
		if v, there := got[key]; !there || v != value {
			t.Errorf("%s is %d (%v), want %d", key, v, there, value)
		}
	}
	for key, value := range got {
		if _, there := want[key]; !there {
			t.Errorf("%s is %d, and should not be there", key, value)
		}
	}
}

// told is a fixed list of groups.
type told struct {
	generation uint64
	members    []host.Cgroup
}

func (g *told) Generation() uint64     { return g.generation }
func (g *told) Members() []host.Cgroup { return g.members }

func (g *told) set(members ...host.Cgroup) {
	g.members = members
	g.generation++
}

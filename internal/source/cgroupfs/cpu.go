// SPDX-License-Identifier: Apache-2.0

// Package cgroupfs reads what the kernel counts for each control group in the
// cgroup file system. It reads the groups that it is told of (host.Cgroups)
// and keeps their files open; it finds no groups by itself.
package cgroupfs

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

var (
	cpuUsage = &metric.Desc{Name: "cgroup_cpu_usage", Help: "CPU time of the tasks of a cgroup and of those below it",
		Unit: metric.Nanoseconds, Kind: metric.Counter, Keys: []string{"name", "state"}, Sampler: "cpu_usage"}
	unread = &metric.Desc{Name: "cgroup_cpu_usage_unread", Help: "cgroups whose CPU time is not read, for the limit or for want of open files",
		Kind: metric.Gauge, Sampler: "cpu_usage"}
)

// cpuStates are the values of the label state, in the order of a group's words.
var cpuStates = [...]string{"user", "system"}

// CPUDescs describe the metrics of CPU.
func CPUDescs() []*metric.Desc { return []*metric.Desc{cpuUsage, unread} }

// Groups is what a source must know of the control groups. Generation changes
// with Members.
type Groups interface {
	Generation() uint64
	Members() []host.Cgroup // sorted by path
}

// CPU is the source of the CPU time of control groups, in user and in kernel
// mode. The kernel sums a group with all below it, so adding up nested groups
// counts twice.
//
// In the unified hierarchy it is user_usec and system_usec of cpu.stat
// (Documentation/admin-guide/cgroup-v2.rst): exact in sum, split as the
// scheduler's tick found it. In v1 it is cpuacct.usage_user and
// cpuacct.usage_sys (Documentation/admin-guide/cgroup-v1/cpuacct.rst), which
// are counted by the tick alone: right on average.
type CPU struct {
	groups Groups
	mount  string
	files  []string // names of the files of one group
	limit  int
	again  time.Duration // between attempts at files that are not there

	generation uint64
	open       []*group // in the order of the schema
	unread     int      // groups that are there and have no place in open
	retry      int64    // when to look again for files that were not there, by host.Mono; 0: none are missing
	schema     *metric.Schema
	buf        [4096]byte
}

// group is a control group with its open files.
type group struct {
	host.Cgroup
	files [2]int // descriptors, as many as a group has
}

// NewCPU returns the source for groups below mount: Hierarchy.CPUAcct of a
// host. At most limit of them are read (0: 1,024), each with a file that stays
// open, in v1 with two.
func NewCPU(groups Groups, mount string, v1 bool, limit int) *CPU {
	c := &CPU{groups: groups, mount: mount, files: []string{"cpu.stat"}, limit: cmp.Or(limit, 1024), again: time.Second}
	if v1 {
		c.files = []string{"cpuacct.usage_user", "cpuacct.usage_sys"}
	}
	return c
}

// Name is "cgroupfs".
func (c *CPU) Name() string { return "cgroupfs" }

// Read fills f, without allocating while the same groups are there.
func (c *CPU) Read(f *metric.Frame) error {
	generation := c.groups.Generation()
	if generation != c.generation || c.schema == nil || c.retry != 0 && host.Mono() >= c.retry {
		if err := c.reopen(); err != nil {
			return err
		}
		c.generation = generation
	}
	for {
		f.Resize(c.schema.Words)
		f.Begin, f.Lost = host.Mono(), 0
		at, err := c.readAll(f.Values)
		f.End = host.Mono()
		if err == nil {
			f.Schema = c.schema
			return nil
		}
		if !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("read CPU time of cgroup %s: %w", c.open[at].Path, err)
		}
		// The group is gone; the tracker will say so in a moment.
		if err := c.end(at); err != nil {
			return err
		}
	}
}

// readAll fills the words. On an error it says at which group.
func (c *CPU) readAll(words []uint64) (at int, err error) {
	for i, g := range c.open {
		if err := c.read(g, words[i*len(cpuStates):][:len(cpuStates)]); err != nil {
			return i, err
		}
	}
	words[len(c.open)*len(cpuStates)] = uint64(c.unread)
	return 0, nil
}

// read sets times, by state, in nanoseconds.
func (c *CPU) read(g *group, times []uint64) error {
	for i := range c.files {
		n, err := unix.Pread(g.files[i], c.buf[:], 0)
		if err != nil {
			return err
		}
		var ok bool
		if len(c.files) == 1 {
			ok = parseStat(c.buf[:n], times)
		} else {
			times[i], ok = number(c.buf[:n])
		}
		if !ok {
			return fmt.Errorf("%s is not as the kernel documents it: %q", c.files[i], c.buf[:n])
		}
	}
	return nil
}

// reopen brings the open files in line with the groups there are. Groups that
// are read stay; others get what room is left, by path.
func (c *CPU) reopen() error {
	known := map[uint64]*group{}
	for _, g := range c.open {
		known[g.ID] = g
	}
	members := c.groups.Members()
	room := c.limit
	for _, m := range members {
		if known[m.ID] != nil {
			room--
		}
	}
	c.open, c.unread, c.retry = make([]*group, 0, len(c.open)), 0, 0
	changed := c.schema == nil
	for _, m := range members {
		g := known[m.ID]
		delete(known, m.ID)
		if g == nil {
			if g = c.admit(m, room); g == nil {
				continue
			}
			room--
			changed = true
		}
		c.open = append(c.open, g)
	}
	for _, g := range known {
		c.close(g)
		changed = true
	}
	if !changed {
		return nil
	}
	return c.rebuild()
}

// admit opens the files of m, or is nil and notes why not.
func (c *CPU) admit(m host.Cgroup, room int) *group {
	if room <= 0 {
		c.unread++
		return nil
	}
	g := &group{Cgroup: m, files: [2]int{-1, -1}}
	for i, name := range c.files {
		fd, err := unix.Open(filepath.Join(c.mount, m.Path, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			c.close(g)
			// In v1 cpuacct may be another hierarchy, in which the group
			// is not there, or not yet.
			if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
				c.unread++
			}
			c.retry = host.Mono() + int64(c.again)
			return nil
		}
		g.files[i] = fd
	}
	return g
}

// end stops reading a group.
func (c *CPU) end(at int) error {
	c.close(c.open[at])
	c.open = append(c.open[:at], c.open[at+1:]...)
	c.retry = host.Mono() + int64(c.again)
	return c.rebuild()
}

func (c *CPU) rebuild() error {
	series := make([]metric.Series, 0, len(c.open)*len(cpuStates)+1)
	for _, g := range c.open {
		// The kernel counts from the group's birth, and for one whose birth
		// nobody saw not from before the machine started.
		start := cmp.Or(g.Born, host.BootTime())
		for _, state := range cpuStates {
			series = append(series, metric.Series{Desc: cpuUsage, Values: []string{g.Path, state}, Start: start})
		}
	}
	series = append(series, metric.Series{Desc: unread})
	schema, err := metric.NewSchema(c.Name(), series)
	c.schema = schema
	return err
}

func (c *CPU) close(g *group) {
	for _, fd := range g.files[:len(c.files)] {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Close closes the files.
func (c *CPU) Close() error {
	for _, g := range c.open {
		c.close(g)
	}
	c.open, c.schema = nil, nil
	return nil
}

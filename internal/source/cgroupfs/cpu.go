// SPDX-License-Identifier: Apache-2.0

// Package cgroupfs reads what the kernel counts for each control group in the
// cgroup file system. It follows the groups of a host.Cgroups and keeps their
// files open; it finds no groups by itself.
package cgroupfs

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

var (
	cpuUsage = &metric.Desc{Name: "cgroup_cpu_usage", Help: "CPU time of the tasks of a cgroup and of those below it",
		Unit: metric.Nanoseconds, Kind: metric.Counter, Keys: []string{"name", "state"}, Sampler: "cpu_usage"}
	unread = &metric.Desc{Name: "cgroup_cpu_usage_unread", Help: "cgroups whose CPU time is not read because of the limit",
		Kind: metric.Gauge, Sampler: "cpu_usage"}
)

// Groups is what a source must know of the control groups.
type Groups interface {
	Generation() uint64
	Members() []host.Cgroup
}

// CPU is the source of the CPU time of control groups, in user and in kernel
// mode: cpu.stat of the unified hierarchy
// (Documentation/admin-guide/cgroup-v2.rst), cpuacct.usage_user and
// cpuacct.usage_sys of v1. The kernel sums a group with all below it.
type CPU struct {
	groups     Groups
	mount      string
	v1         bool
	limit      int
	generation uint64
	open       []*group // in the order of the schema
	left       int      // groups beyond the limit
	schema     *metric.Schema
	buf        [4096]byte
}

// group is a control group with its open files: cpu.stat, or the two of v1.
type group struct {
	host.Cgroup
	files [2]int // -1: not open
}

// NewCPU returns the source for the groups below mount; at most limit of them
// are read, each with an open file.
func NewCPU(groups Groups, mount string, v1 bool, limit int) *CPU {
	return &CPU{groups: groups, mount: mount, v1: v1, limit: limit}
}

// Name is "cgroupfs".
func (c *CPU) Name() string { return "cgroupfs" }

// Read fills f, without allocating while the same groups are there.
func (c *CPU) Read(f *metric.Frame) error {
	if generation := c.groups.Generation(); generation != c.generation || c.schema == nil {
		if err := c.reopen(); err != nil {
			return err
		}
		c.generation = generation
	}
	f.Resize(c.schema.Words)
	f.Begin, f.Lost = host.Mono(), 0
	for i, g := range c.open {
		if err := c.read(g, f.Values[2*i:2*i+2]); err != nil {
			// It is gone, and the tracker will say so; until then its
			// series end, for there is no value.
			c.schema = nil
			return fmt.Errorf("read CPU time of cgroup %s: %w", g.Path, err)
		}
	}
	if c.left > 0 {
		f.Values[2*len(c.open)] = uint64(c.left)
	}
	f.End = host.Mono()
	f.Schema = c.schema
	return nil
}

// read sets user and system to the group's times in nanoseconds.
func (c *CPU) read(g *group, times []uint64) error {
	for i := range times {
		if g.files[i] < 0 {
			continue
		}
		n, err := unix.Pread(g.files[i], c.buf[:], 0)
		if err != nil {
			return err
		}
		var ok bool
		if c.v1 {
			times[i], ok = number(c.buf[:n])
		} else {
			ok = parseStat(c.buf[:n], times)
		}
		if !ok {
			return errors.New("unknown form")
		}
	}
	return nil
}

// parseStat takes user_usec and system_usec out of a cpu.stat.
func parseStat(text []byte, times []uint64) bool {
	found := 0
	for len(text) > 0 && found < 2 {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
		for i, key := range [...]string{"user_usec ", "system_usec "} {
			if value, is := bytes.CutPrefix(line, []byte(key)); is {
				usec, ok := number(value)
				if !ok {
					return false
				}
				times[i] = usec * 1000
				found++
			}
		}
	}
	return found == 2
}

// number is the decimal number at the front of b.
func number(b []byte) (n uint64, ok bool) {
	for i, d := range b {
		if d < '0' || d > '9' {
			return n, i > 0
		}
		n = n*10 + uint64(d-'0')
	}
	return n, len(b) > 0
}

// reopen brings the open files in line with the groups there are.
func (c *CPU) reopen() error {
	kept := map[uint64]*group{}
	for _, g := range c.open {
		kept[g.ID] = g
	}
	c.open = c.open[:0:0]
	c.left = 0
	for _, m := range c.groups.Members() {
		g := kept[m.ID]
		delete(kept, m.ID)
		switch {
		case g != nil:
		case len(c.open) >= c.limit:
			c.left++
			continue
		default:
			g = c.openGroup(m)
		}
		if g != nil {
			c.open = append(c.open, g)
		}
	}
	for _, g := range kept {
		g.close()
	}
	var series []metric.Series
	for _, g := range c.open {
		for _, state := range [...]string{"user", "system"} {
			series = append(series, metric.Series{Desc: cpuUsage, Values: []string{g.Path, state}, Start: g.start()})
		}
	}
	if c.left > 0 {
		series = append(series, metric.Series{Desc: unread, Start: host.Wall()})
	}
	schema, err := metric.NewSchema(c.Name(), series)
	c.schema = schema
	return err
}

// openGroup is nil for a group without the files: one that just died, or the
// root of a unified hierarchy before Linux 5.12.
func (c *CPU) openGroup(m host.Cgroup) *group {
	g := &group{Cgroup: m, files: [2]int{-1, -1}}
	names := []string{"cpu.stat"}
	if c.v1 {
		names = []string{"cpuacct.usage_user", "cpuacct.usage_sys"}
	}
	for i, name := range names {
		fd, err := unix.Open(filepath.Join(c.mount, m.Path, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			g.close()
			return nil
		}
		g.files[i] = fd
	}
	return g
}

// start is when the kernel began to count for the group: at its birth, and
// where nobody saw that, not before the machine started.
func (g *group) start() int64 {
	if g.Born != 0 {
		return g.Born
	}
	return host.BootTime()
}

func (g *group) close() {
	for _, fd := range g.files {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Close closes the files.
func (c *CPU) Close() error {
	for _, g := range c.open {
		g.close()
	}
	c.open = nil
	return nil
}

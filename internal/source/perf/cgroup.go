// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// other is the label value of all that is not shown by itself.
const other = "other"

// Cgroups is the counters of a sampler by control group, of those right below
// the root. The kernel counts a group with all below it, so those are disjoint,
// and what the machine counted beyond them is "other".
type Cgroups struct {
	name    string
	k       kernel
	groups  []group
	members Groups
	mount   string
	max     int

	cpus       cpus
	places     []place
	generation uint64
	retry      int64 // when to look again for directories that were not there, by host.Mono; 0: none are missing
	shown      []*member
	machine    []*rest // by group
	cells      []*cell // all of the above, the machine's last
	shares     shares
	schema     *metric.Schema
	buf        []byte
}

// member is a control group that is shown.
type member struct {
	host.Cgroup
	dir   int // its directory, open
	cells []*cell
}

// rest is a group of events on the whole machine, and what of it is of no
// group that is shown.
type rest struct {
	*cell
	start  int64    // of the cell, when other was zero
	other  []uint64 // by event; never falls
	behind []int64  // what other must still gain; below zero where groups were read later than the machine
}

// perfHierarchy is the mount of the hierarchy that perf events know: of v1's
// perf_event, or else the unified one.
func perfHierarchy(mount string, v1 bool) (string, error) {
	if !v1 {
		return mount, nil
	}
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	if dir := perfMount(string(text)); dir != "" {
		return dir, nil
	}
	if unified := host.CgroupMode().Unified; unified != "" {
		return unified, nil
	}
	return "", source.Unsupported("no cgroup hierarchy with perf_event is mounted; mount -t cgroup -o perf_event cgroup /sys/fs/cgroup/perf_event")
}

// perfMount is where /proc/self/mounts has v1's perf_event controller (proc(5)).
func perfMount(mounts string) string {
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) >= 4 && f[2] == "cgroup" && slices.Contains(strings.Split(f[3], ","), "perf_event") {
			return f[1]
		}
	}
	return ""
}

// openCgroups opens the counters of the machine and of the groups there are.
func openCgroups(name string, k kernel, groups []group, shared bool, members Groups, mount string, max int) (*Cgroups, error) {
	c := &Cgroups{name: name, k: k, groups: groups, members: members, mount: mount, max: cmp.Or(max, 16), shares: shares{on: shared}}
	for i := range groups {
		n := len(groups[i].events)
		c.machine = append(c.machine, &rest{cell: newCell(&groups[i], other, nil, -1), other: make([]uint64, n), behind: make([]int64, n)})
		c.cells = append(c.cells, c.machine[i].cell)
	}
	c.buf = roomFor(c.cells)
	err := c.follow()
	if err == nil && !slices.ContainsFunc(c.machine, func(r *rest) bool { return r.state() != closed }) {
		err = whyClosed(c.cells)
	}
	if err == nil && len(c.shown) > 0 && !slices.ContainsFunc(c.shown, func(m *member) bool { return m.counts() }) {
		err = source.Unsupported("groups have no perf_event controller; switch any controller on in %s/cgroup.subtree_control (%w)",
			mount, c.shown[0].cells[0].err)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// counts tells that the group has open counters.
func (m *member) counts() bool {
	return slices.ContainsFunc(m.cells, func(c *cell) bool { return c.state() != closed })
}

// Name is the name of the sampler.
func (c *Cgroups) Name() string { return c.name }

// Read fills f, without allocating while the same groups are there.
func (c *Cgroups) Read(f *metric.Frame) error {
	if err := c.follow(); err != nil {
		return err
	}
	f.Begin = host.Mono()
	for _, cell := range c.cells {
		cell.read(c.k, c.buf)
	}
	f.End = host.Mono()
	c.account()
	if settle(c.cells) || c.schema == nil {
		if err := c.rebuild(); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(c.cells, func(c *cell) bool { return c.said != closed }) {
		return whyClosed(c.cells)
	}
	f.Schema, f.Lost = c.schema, 0
	f.Resize(c.schema.Words)
	words := f.Values[:0]
	for _, m := range c.shown {
		for _, cell := range m.cells {
			words = cell.fill(words, cell.totals)
		}
	}
	for _, r := range c.machine {
		words = r.fill(words, r.other)
	}
	c.shares.fill(words, c.cells)
	return nil
}

// account takes over what the last read of every cell brought.
func (c *Cgroups) account() {
	for i, r := range c.machine {
		r.add(c.k, i, c.shown)
	}
}

// add takes over what the machine gained beyond the groups shown.
func (r *rest) add(k kernel, group int, shown []*member) {
	if r.cell.start != r.start {
		// Counters of the machine that were lost may have been lost for the
		// groups too, where only those of the machine can tell (part.read).
		for _, m := range shown {
			if r.start != 0 {
				m.cells[group].reopen(k)
			}
		}
		r.start = r.cell.start
		clear(r.other)
		clear(r.behind)
	}
	for i, n := range r.gained {
		r.behind[i] += int64(n)
		for _, m := range shown {
			r.behind[i] -= int64(m.cells[group].gained[i])
		}
		if r.behind[i] > 0 {
			r.other[i] += uint64(r.behind[i])
			r.behind[i] = 0
		}
	}
}

// follow brings the counters in line with the CPUs and the groups there are.
func (c *Cgroups) follow() error {
	changed, err := c.cpus.changed(c.k)
	if err != nil {
		return err
	}
	if changed {
		c.places = nil
		for _, t := range perCPU(sysfs, c.cpus.list, nil) {
			c.places = append(c.places, t.places...)
		}
		for _, cell := range c.cells {
			cell.move(c.k, c.places, c.buf)
		}
		c.account()
		c.schema = nil
	}
	retry(c.cells, c.k)
	generation := c.members.Generation()
	if c.shown == nil || generation != c.generation || c.retry != 0 && host.Mono() >= c.retry {
		c.generation = generation
		c.admit(c.members.Members())
	}
	// An event that the machine has and a group has not is for want of the
	// controller (ENOENT), which may come.
	for _, m := range c.shown {
		for i, cell := range m.cells {
			if cell.err != nil && cell.retry == 0 && c.machine[i].state() != closed {
				cell.retry = host.Mono() + again
			}
		}
	}
	return nil
}

// admit shows the groups there are: those that were shown stay, others get
// what room is left, by path.
func (c *Cgroups) admit(all []host.Cgroup) {
	known := map[uint64]*member{}
	for _, m := range c.shown {
		known[m.ID] = m
	}
	room := c.max
	for _, g := range all {
		if known[g.ID] != nil {
			room--
		}
	}
	shown := make([]*member, 0, len(c.shown)+1)
	c.retry = 0
	for _, g := range all {
		if strings.LastIndexByte(g.Path, '/') != 0 || g.Path == "/" {
			continue
		}
		m := known[g.ID]
		delete(known, g.ID)
		if m == nil && room > 0 {
			if m = c.open(g); m != nil {
				room--
			}
		}
		if m != nil {
			shown = append(shown, m)
		}
	}
	for _, m := range known {
		c.end(m)
	}
	if c.shown != nil && slices.Equal(shown, c.shown) {
		return
	}
	c.shown, c.cells, c.schema = shown, nil, nil
	for _, m := range shown {
		c.cells = append(c.cells, m.cells...)
	}
	for _, r := range c.machine {
		c.cells = append(c.cells, r.cell)
	}
}

// open opens the counters of a group. In v1 it may not be in the hierarchy of
// perf_event, or not yet.
func (c *Cgroups) open(g host.Cgroup) *member {
	dir, err := unix.Open(filepath.Join(c.mount, g.Path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		c.retry = host.Mono() + again
		return nil
	}
	m := &member{Cgroup: g, dir: dir}
	for i := range c.groups {
		cell := newCell(&c.groups[i], g.Path, c.places, dir)
		cell.open(c.k)
		m.cells = append(m.cells, cell)
	}
	return m
}

// end stops showing a group. What it still counted is not of others.
func (c *Cgroups) end(m *member) {
	for i, cell := range m.cells {
		cell.read(c.k, c.buf)
		for e, n := range cell.gained {
			c.machine[i].behind[e] -= int64(n)
		}
		cell.close(c.k)
	}
	unix.Close(m.dir)
}

func (c *Cgroups) rebuild() error {
	var series []metric.Series
	for _, cell := range c.cells { // the machine's own are "other"
		series = cell.describe(series)
	}
	series = c.shares.describe(series, c.cells)
	schema, err := metric.NewSchema(c.name, series)
	c.schema = schema
	if err != nil {
		return fmt.Errorf("describe %s: %w", c.name, err)
	}
	return nil
}

// Close closes the counters.
func (c *Cgroups) Close() error {
	for _, cell := range c.cells {
		cell.close(c.k)
	}
	for _, m := range c.shown {
		unix.Close(m.dir)
	}
	c.cells, c.shown, c.schema = nil, nil, nil
	return c.k.release()
}

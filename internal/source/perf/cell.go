// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"slices"
	"time"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// cell is a group of events as it is published at one member (a CPU, an L3
// cache, a control group): the sum of its parts.
type cell struct {
	group  *group
	member string
	places []place
	cgroup int // as kernel.open has it

	parts    []*part // nil: closed
	have     []bool  // by event: each part counts it
	totals   []uint64
	start    int64 // when totals were zero
	flexible bool  // a pinned group was pushed out and now takes turns
	said     state // of the schema
	err      error // why it is closed
	retry    int64 // when it may be opened again, by host.Mono; 0: not before the CPUs change

	// What the last read brought.
	gained   []uint64
	on, runs uint64
}

// state is what there is to say about a cell.
type state int

const (
	closed   state = iota
	silent         // it never ran
	counting       //
)

// again is the time between attempts to open what failed.
const again = int64(time.Second)

func newCell(g *group, member string, places []place, cgroup int) *cell {
	n := len(g.events)
	return &cell{group: g, member: member, places: places, cgroup: cgroup,
		have: make([]bool, n), totals: make([]uint64, n), gained: make([]uint64, n)}
}

// open opens all parts, or none: a sum that lacks some would be wrong.
func (c *cell) open(k kernel) {
	clear(c.totals)
	clear(c.gained)
	c.on, c.runs, c.err, c.retry, c.start = 0, 0, nil, 0, host.Wall()
	for _, at := range c.places {
		if !c.add(k, at) {
			return
		}
	}
	c.agree()
}

// add opens a part more.
func (c *cell) add(k kernel, at place) bool {
	p, err := openPart(k, c.group, at, c.cgroup, c.group.pinned && !c.flexible)
	if err != nil {
		c.fail(k, err)
		return false
	}
	c.parts = append(c.parts, p)
	return true
}

// agree finds the events that all parts count.
func (c *cell) agree() {
	for i := range c.have {
		c.have[i] = !slices.ContainsFunc(c.parts, func(p *part) bool { return p.fds[i] < 0 })
	}
}

// move follows the CPUs: what was counted on those that went stays, and is what
// this brings, as if it were a read.
func (c *cell) move(k kernel, places []place, buf []byte) {
	clear(c.gained)
	if slices.Equal(c.places, places) {
		return
	}
	before := c.places
	c.places = places
	if c.state() == closed {
		c.open(k)
		return
	}
	c.parts = slices.DeleteFunc(c.parts, func(p *part) bool {
		gone := !slices.Contains(places, p.place)
		if gone {
			if err := p.read(k, buf, host.Mono()); err == nil || err == errStopped {
				c.take(p)
			}
			p.close(k)
		}
		return gone
	})
	for _, at := range places {
		if !slices.Contains(before, at) && !c.add(k, at) {
			return
		}
	}
	c.agree()
}

// fail closes the cell. What the processor lacks it will lack later too.
func (c *cell) fail(k kernel, err error) {
	c.close(k)
	if c.err = err; !errors.Is(err, source.ErrUnsupported) {
		c.retry = host.Mono() + again
	}
}

// read adds what was counted since the read before. A cell that failed, or
// whose CPU was away meanwhile, counts from zero again.
func (c *cell) read(k kernel, buf []byte) {
	now := host.Mono()
	clear(c.gained)
	c.on, c.runs = 0, 0
	for _, p := range c.parts {
		switch err := p.read(k, buf, now); {
		case err == nil:
		case err == errPushedOut && c.group.pinned && !c.flexible:
			c.flexible = true
			c.reopen(k)
			return
		case err == errStopped:
			c.reopen(k)
			return
		default:
			c.fail(k, err)
			clear(c.gained)
			return
		}
		c.take(p)
	}
}

// take adds what the read of a part brought.
func (c *cell) take(p *part) {
	c.on, c.runs = c.on+p.gainedOn, c.runs+p.gainedRuns
	for i, n := range p.gained {
		c.gained[i] += n
		c.totals[i] += n
	}
}

func (c *cell) reopen(k kernel) {
	c.close(k)
	c.open(k)
}

func (c *cell) state() state {
	if len(c.parts) == 0 {
		return closed
	}
	for _, p := range c.parts {
		if !p.known() {
			return silent
		}
	}
	return counting
}

// counts tells that the cell has open counters of a metric.
func (c *cell) counts(d *metric.Desc) bool {
	for i := range c.group.events {
		if c.group.events[i].desc == d && c.have[i] {
			return len(c.parts) > 0
		}
	}
	return false
}

func (c *cell) close(k kernel) {
	for _, p := range c.parts {
		p.close(k)
	}
	c.parts = nil
}

// describe appends the cell's series, if it counts.
func (c *cell) describe(series []metric.Series) []metric.Series {
	if c.said != counting {
		return series
	}
	for i := range c.group.events {
		if c.have[i] {
			e := &c.group.events[i]
			series = append(series, metric.Series{Desc: e.desc, Values: e.values(c.member), Start: c.start})
		}
	}
	return series
}

// fill appends the words of those series.
func (c *cell) fill(words []uint64, totals []uint64) []uint64 {
	if c.said != counting {
		return words
	}
	for i, n := range totals {
		if c.have[i] {
			words = append(words, n)
		}
	}
	return words
}

// settle tells whether the schema must be made anew for the cells.
func settle(cells []*cell) (changed bool) {
	for _, c := range cells {
		if now := c.state(); now != c.said {
			c.said, changed = now, true
		}
	}
	return changed
}

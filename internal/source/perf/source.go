// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// target is a member and where its events are counted.
type target struct {
	member string
	places []place
	groups []group
}

// cpus follows which CPUs are online.
type cpus struct {
	text []byte
	list []int
}

// changed reads them again.
func (c *cpus) changed(k kernel) (bool, error) {
	text, err := k.online()
	if err != nil || c.text != nil && bytes.Equal(text, c.text) {
		return false, err
	}
	list, err := host.ParseCPUs(strings.TrimSpace(string(text)))
	if err != nil {
		return false, fmt.Errorf("read CPUs that are online: %w", err)
	}
	c.text, c.list = bytes.Clone(text), list
	return true, nil
}

// Source is the counters of a sampler by place. Its counters begin when they
// are opened, at zero, and anew when a CPU comes back online.
type Source struct {
	name    string
	k       kernel
	targets func(online []int) ([]target, error)

	cpus   cpus
	cells  []*cell
	shares shares
	schema *metric.Schema
	buf    []byte
}

// openSource opens all that is there; shared counters may be multiplexed.
func openSource(name string, k kernel, shared bool, targets func([]int) ([]target, error)) (*Source, error) {
	s := &Source{name: name, k: k, targets: targets, shares: shares{on: shared}}
	err := s.follow()
	if err == nil && !slices.ContainsFunc(s.cells, func(c *cell) bool { return c.state() != closed }) {
		err = whyClosed(s.cells)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// whyClosed is the error of cells that are all closed: one that can be helped
// before what the machine lacks.
func whyClosed(cells []*cell) error {
	var why error
	for _, c := range cells {
		if c.err != nil && (why == nil || c.retry != 0) {
			why = c.err
		}
	}
	if why == nil {
		return errors.New("open perf events: no CPU is online")
	}
	return why
}

// Name is the name of the sampler.
func (s *Source) Name() string { return s.name }

// Read fills f, without allocating while the same counters run.
func (s *Source) Read(f *metric.Frame) error {
	if err := s.follow(); err != nil {
		return err
	}
	f.Begin = host.Mono()
	for _, c := range s.cells {
		c.read(s.k, s.buf)
	}
	f.End = host.Mono()
	if settle(s.cells) || s.schema == nil {
		if err := s.rebuild(); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(s.cells, func(c *cell) bool { return c.said != closed }) {
		return whyClosed(s.cells)
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	words := f.Values[:0]
	for _, c := range s.cells {
		words = c.fill(words, c.totals)
	}
	s.shares.fill(words, s.cells)
	return nil
}

// follow opens what came online, closes what went, and tries again what
// failed.
func (s *Source) follow() error {
	changed, err := s.cpus.changed(s.k)
	if err != nil {
		return err
	}
	if changed {
		targets, err := s.targets(s.cpus.list)
		if err != nil {
			return err
		}
		s.move(targets)
	}
	retry(s.cells, s.k)
	return nil
}

// retry opens what failed a while ago.
func retry(cells []*cell, k kernel) {
	for _, c := range cells {
		if c.retry != 0 && host.Mono() >= c.retry {
			c.open(k)
		}
	}
}

// move goes over to targets. What stays where it is goes on counting.
func (s *Source) move(targets []target) {
	before := s.cells
	s.cells = nil
	for _, t := range targets {
		for i := range t.groups {
			same := func(c *cell) bool {
				return c != nil && c.member == t.member && slices.Equal(c.places, t.places) && c.state() != closed &&
					slices.Equal(c.group.events, t.groups[i].events)
			}
			if at := slices.IndexFunc(before, same); at >= 0 {
				s.cells = append(s.cells, before[at])
				before[at] = nil
				continue
			}
			c := newCell(&t.groups[i], t.member, t.places, -1)
			c.open(s.k)
			s.cells = append(s.cells, c)
		}
	}
	for _, c := range before {
		if c != nil {
			c.close(s.k)
		}
	}
	s.schema = nil
	s.buf = roomFor(s.cells)
}

// roomFor is the memory for a read of any of cells.
func roomFor(cells []*cell) []byte {
	most := 0
	for _, c := range cells {
		most = max(most, len(c.group.events))
	}
	return make([]byte, 8*(3+most))
}

func (s *Source) rebuild() error {
	var series []metric.Series
	for _, c := range s.cells {
		series = c.describe(series)
	}
	series = s.shares.describe(series, s.cells)
	schema, err := metric.NewSchema(s.name, series)
	s.schema = schema
	return err
}

// Close closes the counters.
func (s *Source) Close() error {
	for _, c := range s.cells {
		c.close(s.k)
	}
	s.cells, s.schema = nil, nil
	return s.k.release()
}

// shares are the series of perf_multiplexed.
type shares struct {
	on    bool
	descs []*metric.Desc // those that are published
}

// describe appends a series for each metric that cells count.
func (m *shares) describe(series []metric.Series, cells []*cell) []metric.Series {
	m.descs = m.descs[:0]
	if !m.on {
		return series
	}
	for _, c := range cells {
		for i := range c.group.events {
			d := c.group.events[i].desc
			if !slices.Contains(m.descs, d) && c.counts(d) {
				m.descs = append(m.descs, d)
				series = append(series, metric.Series{Desc: multiplexed, Values: []string{d.Name}})
			}
		}
	}
	return series
}

// fill appends their words.
func (m *shares) fill(words []uint64, cells []*cell) {
	for _, d := range m.descs {
		var on, runs uint64
		for _, c := range cells {
			if c.counts(d) {
				on, runs = on+c.on, runs+c.runs
			}
		}
		share := 0.0
		if on > runs {
			share = 1 - float64(runs)/float64(on)
		}
		words = append(words, math.Float64bits(share))
	}
}

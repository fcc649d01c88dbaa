// SPDX-License-Identifier: Apache-2.0

package hindsight

import (
	"rezolus/internal/metric"
)

// Sampler is the switch of the metrics of the rings.
const Sampler = "hindsight"

// figure is a metric of a ring. open says that only an open ring has it.
type figure struct {
	desc *metric.Desc
	open bool
	of   func(*Status) uint64
}

func desc(kind metric.Kind, name, help string, unit metric.Unit) *metric.Desc {
	return &metric.Desc{Name: name, Help: help, Unit: unit, Kind: kind, Keys: []string{"ring"}, Sampler: Sampler}
}

var figures = []figure{
	{desc(metric.Counter, "hindsight_ticks", "ticks the ring kept", metric.None), false, func(s *Status) uint64 { return s.Ticks }},
	{desc(metric.Counter, "hindsight_ticks_lost", "ticks the ring could not keep", metric.None), false, func(s *Status) uint64 { return s.Lost }},
	{desc(metric.Counter, "hindsight_errors", "times the ring began to fail", metric.None), false, func(s *Status) uint64 { return s.Errors }},
	{desc(metric.Counter, "hindsight_segments_dropped", "files of the ring that went to keep its limits", metric.None), true, func(s *Status) uint64 { return s.Dropped }},
	{desc(metric.Gauge, "hindsight_segments", "files of the ring", metric.None), true, func(s *Status) uint64 { return uint64(s.Segments) }},
	{desc(metric.Gauge, "hindsight_size", "bytes the ring takes", metric.Bytes), true, func(s *Status) uint64 { return uint64(s.Bytes) }},
	{desc(metric.Gauge, "hindsight_retained", "time from the ring's oldest tick to its newest", metric.Nanoseconds), true,
		func(s *Status) uint64 { return uint64(max(0, s.Newest-s.Oldest)) }},
	{desc(metric.Gauge, "hindsight_free", "bytes free on the ring's file system", metric.Bytes), true, func(s *Status) uint64 { return uint64(s.Free) }},
}

// Descs describe the metrics of rings.
func Descs() []*metric.Desc {
	var all []*metric.Desc
	for _, f := range figures {
		all = append(all, f.desc)
	}
	return all
}

// Source is the rings as a source of metrics. It implements agent.Source.
type Source struct {
	keepers []*Keeper
	mono    func() int64
	started int64 // Unix nanoseconds
	schema  *metric.Schema
	status  Status // scratch
	shown   []bool // keepers of the schema that are open
}

// NewSource returns the source of the keepers' metrics.
func NewSource(mono func() int64, started int64, keepers ...*Keeper) *Source {
	return &Source{keepers: keepers, mono: mono, started: started, shown: make([]bool, len(keepers))}
}

// Name is "hindsight".
func (s *Source) Name() string { return Sampler }

// Read implements agent.Source.
func (s *Source) Read(f *metric.Frame) error {
	f.Begin = s.mono()
	changed := s.schema == nil
	for i, k := range s.keepers {
		open := k.state.Load() != nil
		changed = changed || open != s.shown[i]
		s.shown[i] = open
	}
	if changed {
		if err := s.rebuild(); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	w := f.Values[:0]
	for i, k := range s.keepers {
		s.status = k.Status()
		for j := range figures {
			if !figures[j].open || s.shown[i] {
				w = append(w, figures[j].of(&s.status))
			}
		}
	}
	f.End = s.mono()
	return nil
}

func (s *Source) rebuild() error {
	var series []metric.Series
	for i, k := range s.keepers {
		for _, f := range figures {
			if !f.open || s.shown[i] {
				series = append(series, metric.Series{Desc: f.desc, Values: []string{k.o.Name}, Start: s.started})
			}
		}
	}
	schema, err := metric.NewSchema(s.Name(), series)
	s.schema = schema
	return err
}

// Close implements agent.Source.
func (s *Source) Close() error { return nil }

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// weaving makes ticks of several hosts into ticks of one recording: those of
// the same moment become one.
type weaving struct {
	w       *store.Writer
	strands []*strand
	events  []store.Event
	run     *metric.Run
	tick    metric.Snapshot
	ticks   uint64
}

// strand is a host within a weaving.
type strand struct {
	*member
	label   string
	next    func() (*metric.Snapshot, error, bool)
	head    *metric.Snapshot // nil: no more
	seq     uint64           // of the tick before
	run     *metric.Run
	sources map[string]*relabelled
}

// relabelled is what became of a source's schema.
type relabelled struct{ of, schema *metric.Schema }

// weave writes a recording of all members.
func weave(ctx context.Context, out string, all []*member, label string) (store.Copied, error) {
	v := &weaving{run: &metric.Run{Version: version, Started: all[0].info.First}}
	meta, id, interval := map[string]string{}, sha256.New(), all[0].info.Interval
	var hosts []string
	for _, m := range all {
		for k, val := range runsMetadata(m.info) {
			meta[m.name+"."+k] = val
		}
		for _, r := range m.info.Runs {
			id.Write(r.Run.ID[:])
		}
		hosts, interval = append(hosts, m.name), min(interval, m.info.Interval)
		v.marks(m)
		next, stop := iter.Pull2(m.ticks(ctx))
		defer stop()
		v.strands = append(v.strands, &strand{member: m, label: label, next: next, sources: map[string]*relabelled{}})
	}
	v.run.Host = strings.Join(hosts, ",")
	copy(v.run.ID[:], id.Sum(nil))
	slices.SortStableFunc(v.events, func(a, b store.Event) int { return cmp.Compare(a.Time, b.Time) })
	var err error
	v.w, err = store.Create(osFS, out, store.WriterOptions{Sync: -1, EncoderOptions: store.EncoderOptions{Interval: interval, Meta: meta}})
	if err != nil {
		return store.Copied{}, err
	}
	if err := v.all(); err != nil {
		return store.Copied{}, errors.Join(err, v.w.Abandon())
	}
	err = v.w.Close()
	return store.Copied{Ticks: v.ticks, Bytes: v.w.Size()}, err
}

// marks takes the events of a member, and its gaps as events.
func (v *weaving) marks(m *member) {
	for _, e := range m.info.Events {
		v.events = append(v.events, store.Event{Time: e.Time, Text: m.name + ": " + e.Text})
	}
	for _, g := range m.info.Gaps {
		v.events = append(v.events, store.Event{Time: g.From, Text: fmt.Sprintf("%s: gap, %s: %s", m.name, count(g.Ticks), g.Reason)})
	}
}

// ticks are all of a recording.
func (m *member) ticks(ctx context.Context) iter.Seq2[*metric.Snapshot, error] {
	return func(yield func(*metric.Snapshot, error) bool) {
		enough := errors.New("enough")
		err := m.Each(ctx, math.MinInt64, math.MaxInt64, func(s *metric.Snapshot) error {
			if !yield(s, nil) {
				return enough
			}
			return nil
		})
		if err != nil && !errors.Is(err, enough) {
			yield(nil, err)
		}
	}
}

func (v *weaving) all() error {
	for _, s := range v.strands {
		if err := s.advance(); err != nil {
			return err
		}
	}
	for {
		at, some := int64(0), false
		for _, s := range v.strands {
			if s.head != nil && (!some || s.head.Wall < at) {
				at, some = s.head.Wall, true
			}
		}
		if !some {
			return v.until(math.MaxInt64)
		}
		if err := v.until(at); err != nil {
			return err
		}
		if err := v.at(at); err != nil {
			return err
		}
	}
}

// until writes the events up to a moment.
func (v *weaving) until(at int64) error {
	for len(v.events) > 0 && v.events[0].Time <= at {
		if err := v.w.WriteEvent(v.events[0]); err != nil {
			return err
		}
		v.events = v.events[1:]
	}
	return nil
}

// at writes the ticks of a moment as one.
func (v *weaving) at(wall int64) error {
	v.ticks++
	// The hosts' monotonic clocks have nothing in common: all are put on the
	// time of day.
	t := metric.Snapshot{Run: v.run, Seq: v.ticks, Wall: wall, Mono: wall - v.run.Started, Frames: v.tick.Frames[:0]}
	var used []*strand
	for _, s := range v.strands {
		if s.head == nil || s.head.Wall != wall {
			continue
		}
		used = append(used, s)
		t.Missed += s.missed()
		t.Interval = max(t.Interval, s.head.Interval)
		for _, f := range s.head.Frames {
			schema, err := s.relabel(f.Schema)
			if err != nil {
				return err
			}
			f.Schema, f.Begin, f.End = schema, f.Begin-s.head.Mono+t.Mono, f.End-s.head.Mono+t.Mono
			t.Frames = append(t.Frames, f)
		}
	}
	v.tick = t
	if err := v.w.Put(&t); err != nil {
		return err
	}
	for _, s := range used {
		if err := s.advance(); err != nil {
			return err
		}
	}
	return nil
}

// advance takes the next tick.
func (s *strand) advance() error {
	if s.head != nil {
		s.seq, s.run = s.head.Seq, s.head.Run
	}
	var err error
	s.head, err, _ = s.next()
	return err
}

// missed is how many ticks of the host are missing before the present one.
func (s *strand) missed() uint64 {
	n := s.head.Missed
	if s.run != nil && s.run.ID == s.head.Run.ID && s.head.Seq > s.seq+1 {
		n += s.head.Seq - s.seq - 1
	}
	return n
}

// relabel is a schema of the host whose series say so.
func (s *strand) relabel(schema *metric.Schema) (*metric.Schema, error) {
	have := s.sources[schema.Source]
	if have != nil && (have.of == schema || have.of.Hash == schema.Hash) {
		return have.schema, nil
	}
	descs := map[*metric.Desc]*metric.Desc{}
	series := make([]metric.Series, len(schema.Series))
	for i, e := range schema.Series {
		d := descs[e.Desc]
		if d == nil {
			c := *e.Desc
			at, has := slices.BinarySearch(c.Keys, s.label)
			if c.Keys = slices.Clone(c.Keys); !has {
				c.Keys = slices.Insert(c.Keys, at, s.label)
			}
			d = &c
			descs[e.Desc] = d
		}
		at, _ := slices.BinarySearch(d.Keys, s.label)
		values := slices.Clone(e.Values)
		if len(values) == len(d.Keys) { // it had one already, which is finer
			values[at] = s.name + "/" + values[at]
		} else {
			values = slices.Insert(values, at, s.name)
		}
		series[i] = metric.Series{Desc: d, Values: values, Start: e.Start}
	}
	made, err := metric.NewSchema(s.name+"/"+schema.Source, series)
	if err != nil {
		return nil, fmt.Errorf("label %s of %s: %w", s.label, s.path, err)
	}
	s.sources[schema.Source] = &relabelled{schema, made}
	return made, nil
}

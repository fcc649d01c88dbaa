// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"fmt"

	"rezolus/internal/metric"
)

// factCursor is how far the entries of a kind of fact are used.
type factCursor int

// The kinds of facts that are used row by row.
const (
	factStarts = iota
	factRuns
	factIntervals
	factClock
	factGaps
	factLost
	factKinds
)

// due yields the entries of a kind that hold from the present row on.
func due[T any](r *Reader, kind int, all []T, row func(*T) int64, use func(*T)) {
	at := int(r.next[kind])
	for ; at < len(all) && row(&all[at]) <= r.at; at++ {
		use(&all[at])
	}
	r.next[kind] = factCursor(at)
}

// fill makes the tick of the present row.
func (r *Reader) fill() error {
	s := &r.tick
	for _, l := range r.lanes {
		l.turn()
	}
	if !r.time.there {
		return fmt.Errorf("%w: row %d has no time", ErrDamaged, r.at)
	}
	s.Wall = int64(r.time.words[0]) * r.time.scale
	s.Seq++
	s.Missed = 0
	if r.facts == nil {
		s.Mono = s.Wall - s.Run.Started
	} else {
		r.useFacts()
	}
	n := 0
	for _, o := range r.origins {
		if err := r.member(o); err != nil {
			return err
		}
		if o.schema != nil {
			n++
		}
	}
	s.Grow(n)
	n = 0
	for _, o := range r.origins {
		if o.schema != nil {
			r.frame(&s.Frames[n], o)
			n++
		}
	}
	r.last = s.Wall
	return nil
}

// useFacts takes from the facts what changes with the present row.
func (r *Reader) useFacts() {
	s, f := &r.tick, r.facts
	due(r, factRuns, f.Runs, func(e *runFacts) int64 { return e.Row }, func(e *runFacts) {
		s.Run = e.run()
	})
	pair := func(e *[2]int64) int64 { return e[0] }
	due(r, factIntervals, f.Intervals, pair, func(e *[2]int64) { s.Interval = e[1] })
	due(r, factClock, f.Clock, pair, func(e *[2]int64) { r.clock = e[1] })
	due(r, factGaps, f.Gaps, func(e *gapFacts) int64 { return e.Row }, func(e *gapFacts) {
		// Rows may have been passed over since.
		if s.Seq = e.Seq + uint64(r.at-e.Row); r.at == e.Row {
			s.Missed = e.Missed
		}
	})
	due(r, factLost, f.Lost, func(e *lostFacts) int64 { return e.Row }, func(e *lostFacts) {
		for _, o := range r.origins {
			if o.name == e.Source {
				o.lost = e.Lost
			}
		}
	})
	due(r, factStarts, f.Starts, func(e *startFacts) int64 { return e.Row }, func(e *startFacts) {
		e.Columns.each(func(i int) {
			if in := r.byColumn[i]; in != nil {
				in.start, in.member = e.Start, false // so that there is a new schema
			}
		})
	})
	s.Mono = s.Wall + r.clock
}

// member makes a new schema of a source if not the same are there as in the row before, or if one began to
// count anew. The schema is nil when none is there.
func (r *Reader) member(o *lineup) error {
	changed, n := false, 0
	for _, in := range o.columns {
		if in.there {
			n++
			if in.fell && r.facts == nil && in.desc.Kind != metric.Gauge {
				// It was zero at some time since the row before.
				in.start, changed = r.last, true
			}
		}
		if in.there != in.member {
			in.member, changed = in.there, true
		}
	}
	if n == 0 {
		o.schema = nil
		for _, in := range o.columns {
			in.member = false
		}
		return nil
	}
	if !changed && o.schema != nil {
		return nil
	}
	series := make([]metric.Series, 0, n)
	for _, in := range o.columns {
		if in.member {
			series = append(series, metric.Series{Desc: in.desc, Values: in.values, Start: in.start})
		}
	}
	schema, err := metric.NewSchema(o.name, series)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	o.schema = schema
	return nil
}

func (r *Reader) frame(f *metric.Frame, o *lineup) {
	s := &r.tick
	f.Schema, f.Lost, f.Begin, f.End = o.schema, o.lost, s.Mono, s.Mono
	if d := r.duration; d != nil && d.there {
		f.End += int64(d.words[0])
	}
	if o.begin != nil && o.width != nil && o.begin.there && o.width.there {
		f.Begin = s.Mono + int64(o.begin.words[0])
		f.End = f.Begin + int64(o.width.words[0])
	}
	f.Resize(o.schema.Words)
	at := 0
	for _, in := range o.columns {
		if !in.member {
			continue
		}
		words := f.Values[at : at+in.desc.Words()]
		clear(words[copy(words, in.words):])
		at += len(words)
	}
}

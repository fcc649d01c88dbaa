// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"rezolus/internal/metric"
)

// life is when a series of a file of ours was there: rows from which on it
// counts from a moment, and rows at which its source came without it.
type life struct {
	starts [][2]int64 // row, Unix nanoseconds
	ends   []int64
}

// live takes the lives out of the facts.
func (f *File) live() {
	if f.facts == nil {
		return
	}
	f.lives = map[int]*life{}
	of := func(column int) *life {
		if f.lives[column] == nil {
			f.lives[column] = &life{}
		}
		return f.lives[column]
	}
	for _, s := range f.facts.Starts {
		s.Columns.each(func(i int) { of(i).starts = append(of(i).starts, [2]int64{s.Row, s.Start}) })
	}
	for _, e := range f.facts.Ends {
		e.Columns.each(func(i int) { of(i).ends = append(of(i).ends, e.Row) })
	}
}

// times finds out which times each row group has: from its statistics, or by
// reading them.
func (f *File) times() error {
	groups := f.footer.groups
	row := int64(0)
	for i := range groups {
		g := &groups[i]
		f.firsts = append(f.firsts, row)
		row += g.rows
		var at *chunkAt
		err := f.footer.chunks(f.r, g, func(leaf int, c *chunkAt) bool {
			if leaf == f.time.leaf.leaf {
				at = c
			}
			return at != nil
		})
		if err != nil {
			return err
		}
		if at != nil && len(at.min) == 8 && len(at.max) == 8 {
			g.min = int64(binary.LittleEndian.Uint64(at.min)) * f.time.scale
			g.max = int64(binary.LittleEndian.Uint64(at.max)) * f.time.scale
			continue
		}
		var b block
		if err := f.readTimes(i, &b); err != nil {
			return err
		}
		g.min, g.max = math.MaxInt64, math.MinInt64
		for _, w := range b.words {
			t := int64(w) * f.time.scale
			g.min, g.max = min(g.min, t), max(g.max, t)
		}
	}
	if row != f.footer.rows {
		return fmt.Errorf("%w: %d rows in its row groups, %d in all", ErrDamaged, row, f.footer.rows)
	}
	f.earliest = make([]int64, len(groups)+1)
	f.earliest[len(groups)] = math.MaxInt64
	for i := len(groups) - 1; i >= 0; i-- {
		f.earliest[i] = min(groups[i].min, f.earliest[i+1])
	}
	return f.bound()
}

// Bounds implements query.Reader. Ticks that a clock that was set back hides
// do not count.
func (f *File) Bounds() (first, last int64) { return f.first, f.last }

// bound finds the first and the last tick that show. Which is the last one of
// a row group is known when its times are read: of few, mostly of one.
func (f *File) bound() error {
	groups := f.footer.groups
	if f.footer.rows == 0 {
		return nil
	}
	latest, exact := make([]int64, len(groups)), make([]bool, len(groups))
	for i, g := range groups {
		if latest[i] = math.MinInt64; g.rows > 0 {
			latest[i] = min(g.max, f.earliest[i+1]-1)
		}
	}
	for {
		at := 0
		for i := range latest {
			if latest[i] > latest[at] {
				at = i
			}
		}
		if exact[at] {
			f.first, f.last = f.earliest[0], latest[at]
			return nil
		}
		var times block
		if err := f.readTimes(at, &times); err != nil {
			return err
		}
		exact[at], latest[at] = true, math.MinInt64
		earliest := f.earliest[at+1]
		for _, w := range slices.Backward(times.words) {
			if t := int64(w) * f.time.scale; t < earliest {
				earliest, latest[at] = t, max(latest[at], t)
			}
		}
	}
}

// readTimes reads the times of a row group.
func (f *File) readTimes(group int, out *block) error {
	g := &f.footer.groups[group]
	var at *chunkAt
	err := f.footer.chunks(f.r, g, func(leaf int, c *chunkAt) bool {
		if leaf == f.time.leaf.leaf {
			at = c
		}
		return at != nil
	})
	if err != nil {
		return err
	}
	return (&decoder{}).try(f, f.time, at, int(g.rows), out)
}

// Series implements query.Reader. In a file of others every series is taken
// to be there all the time.
func (f *File) Series(from, to int64, yield func(*metric.Series) bool) error {
	first, last := f.rows(from, to)
	for _, o := range f.origins {
		for _, in := range o.columns {
			s := metric.Series{Desc: in.desc, Values: in.values}
			if l := f.lives[in.number]; l != nil && len(l.starts) > 0 {
				begin := l.starts[len(l.starts)-1]
				s.Start = begin[1]
				if n := len(l.ends); l.starts[0][0] >= last || n > 0 && l.ends[n-1] > begin[0] && l.ends[n-1] <= first {
					continue
				}
			}
			if first < last && !yield(&s) {
				return nil
			}
		}
	}
	return nil
}

// rows are the rows of the row groups that have times within [from, to]: from
// the first of them until before the second result.
func (f *File) rows(from, to int64) (first, last int64) {
	first = math.MaxInt64
	for i, g := range f.footer.groups {
		if g.max >= from && g.min <= to {
			first, last = min(first, f.firsts[i]), f.firsts[i]+g.rows
		}
	}
	return first, last
}

// Run is a life of an agent that a file has ticks of.
type Run = metric.Run

// Runs are the runs that the file has, in its order.
func (f *File) Runs() (all []Run) {
	if f.facts == nil || len(f.facts.Runs) == 0 {
		return []Run{f.run}
	}
	for i := range f.facts.Runs {
		all = append(all, *f.facts.Runs[i].run())
	}
	return all
}

func (e *runFacts) run() *metric.Run {
	r := &metric.Run{Started: e.Started, Host: e.Host, Kernel: e.Kernel, Arch: e.Arch, Version: e.Version}
	copy(r.ID[:], e.ID)
	copy(r.Boot[:], e.Boot)
	return r
}

// Interval is the one asked for at the last tick, in nanoseconds.
func (f *File) Interval() int64 { return f.intervalAt(math.MaxInt64) }

func (f *File) intervalAt(row int64) int64 {
	at := f.interval
	if f.facts != nil {
		for _, e := range f.facts.Intervals {
			if e[0] <= row {
				at = e[1]
			}
		}
	}
	return at
}

// breaks are the rows before which all series end: where another run of the
// agent begins, or behind a gap. The last is behind the end.
func (f *File) breaks() (rows []int64) {
	if f.facts != nil {
		for i, r := range f.facts.Runs {
			if i > 0 && !bytes.Equal(r.ID, f.facts.Runs[i-1].ID) {
				rows = append(rows, r.Row)
			}
		}
		for _, b := range f.facts.Breaks {
			rows = append(rows, b.Row)
		}
	}
	return append(rows, f.footer.rows)
}

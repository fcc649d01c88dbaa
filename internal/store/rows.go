// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"

	"rezolus/internal/metric"
)

// maxSteps bounds what the columns of a segment may come to as rows.
const maxSteps = 1 << 24

// rowReader turns a segment back into the snapshots it was made of.
type rowReader struct {
	run     *metric.Run
	ticks   [tickColumns][]uint64
	sources []rowSource
	now     []uint64 // every life's words
	row     int      // the next
	until   int      // the one behind the last
	snap    metric.Snapshot

	changes changeLog
	steps   []track // of each row; a step's place is its word in now
	buf     []byte
	bad     error // why series are missing; told behind the last tick
}

// rowStep is a step of a column.
type rowStep struct {
	row, word int
	by        uint64
}

// rowSource is a source of a rowReader.
type rowSource struct {
	*segmentSource
	dict       *metric.Schema
	base       int // of its first life's words in now
	windows    [3][]uint64
	frame, use int     // the next
	lives      []int32 // of the present use
	schema     *metric.Schema
	plain      bool // the schema is the dictionary
	values     []uint64
	scratch    []uint64
	lost       []bool // lives whose columns cannot be read; nil: none
}

// rows reads the ticks within [from, to], Unix nanoseconds. A column that
// cannot be read is left out, as if its series had not been there; what is
// left is exact.
func (g *segmentAt) rows(run *metric.Run, from, to int64) (*rowReader, error) {
	r, err := newSegmentReader(g)
	if err != nil {
		return nil, err
	}
	defer r.close()
	out := &rowReader{run: run}
	for i := range out.ticks {
		if out.ticks[i], err = r.tickValues(i); err != nil {
			return nil, err
		}
	}
	walls := out.ticks[tickWall]
	for out.until = len(walls); out.until > 0 && int64(walls[out.until-1]) > to; out.until-- {
	}
	for out.row < out.until && int64(walls[out.row]) < from {
		out.row++
	}
	if err := r.open(blockWindows, 3*len(r.d.sources)); err != nil {
		return nil, err
	}
	words := 0
	for i := range r.d.sources {
		s := rowSource{segmentSource: &r.d.sources[i], base: words}
		for j := range s.windows {
			if s.windows[j], err = readWord(r.columns[3*i+j], s.frames, nil); err != nil {
				return nil, err
			}
		}
		if s.dict, err = r.dictionary(s.segmentSource); err != nil {
			return nil, err
		}
		if words += s.dict.Words; words > maxWords {
			return nil, fmt.Errorf("%w: more than %d words", ErrCorrupt, maxWords)
		}
		out.sources = append(out.sources, s)
	}
	out.now = make([]uint64, words)
	if err := out.load(r); err != nil {
		return nil, err
	}
	return out, out.skip()
}

// load reads the columns and puts their steps into the order of rows. What
// comes before the second of the rows is what the words are at first.
func (r *rowReader) load(in *segmentReader) error {
	r.steps = make([]track, in.d.ticks)
	var column []rowStep
	step := func(row, word int, d uint64) { column = append(column, rowStep{row, word, d}) }
	total := 0
	for i := range r.sources {
		s := &r.sources[i]
		from, until := s.spans()
		for j := range s.dict.Series {
			column = column[:0]
			err := s.column(in, j, from[j], until[j]-from[j], step)
			if damaged(err) {
				if r.bad = err; s.lost == nil {
					s.lost = make([]bool, s.series)
				}
				s.lost[j] = true
				continue
			}
			if total += len(column); err == nil && total > maxSteps {
				err = fmt.Errorf("%w: more than %d steps in a segment", ErrCorrupt, maxSteps)
			}
			if err != nil {
				return err
			}
			for k := range column {
				switch c := &column[k]; {
				case c.row <= r.row:
					r.now[c.word] += c.by
				case c.row < r.until:
					r.changes.add(&r.steps[c.row], c.word, 0, 1, c.by)
				}
			}
		}
	}
	return nil
}

// skip passes over the frames before the first row.
func (r *rowReader) skip() error {
	for i := range r.sources {
		s := &r.sources[i]
		for ; s.frame < s.frames && s.segmentSource.row(s.frame) < r.row; s.frame++ {
			if s.use < len(s.uses) && s.uses[s.use].first == s.frame {
				s.use++
			}
		}
		if s.use > 0 {
			if err := s.change(s.uses[s.use-1].lives); err != nil {
				return err
			}
		}
	}
	return nil
}

// column gives the steps of a life's words, which has n frames from the
// source's first on.
func (s *rowSource) column(in *segmentReader, life, first, n int, step func(row, w int, d uint64)) error {
	e := &s.dict.Series[life]
	b, err := in.column(s.segmentSource.column + life)
	if err != nil {
		return err
	}
	base := s.base + e.Off
	if e.Desc.Kind.Buckets() {
		return readBuckets(b, e.Desc.Words(), n, func(index, i int, d uint64) { step(s.segmentSource.row(first+i), base+index, d) })
	}
	if s.scratch, err = readWord(b, n, s.scratch[:0]); err != nil {
		return err
	}
	before := uint64(0)
	for i, v := range s.scratch {
		if v != before {
			step(s.segmentSource.row(first+i), base, v-before)
			before = v
		}
	}
	return nil
}

// next is the next tick, valid until the call after; nil at the end, with an
// error if series are missing in all of them.
func (r *rowReader) next() (*metric.Snapshot, error) {
	if r.row >= r.until {
		return nil, r.bad
	}
	r.buf = r.changes.read(&r.steps[r.row], r.buf)
	eachChange(r.buf, 1, func(word, _ int, d uint64) { r.now[word] += d })
	frames := r.snap.Frames[:0]
	end := int64(r.ticks[tickMono][r.row])
	for i := range r.sources {
		s := &r.sources[i]
		if s.frame >= s.frames || s.segmentSource.row(s.frame) != r.row {
			continue
		}
		f, err := s.next(r.now, end)
		if err != nil {
			return nil, err
		}
		end = f.End
		frames = append(frames, f)
	}
	r.snap = metric.Snapshot{Run: r.run, Seq: r.ticks[tickSeq][r.row], Wall: int64(r.ticks[tickWall][r.row]),
		Mono: int64(r.ticks[tickMono][r.row]), Interval: int64(r.ticks[tickInterval][r.row]),
		Missed: r.ticks[tickMissed][r.row], Frames: frames}
	r.row++
	return &r.snap, nil
}

// next is the source's next frame. end is where the frame before it ended.
func (s *rowSource) next(now []uint64, end int64) (metric.Frame, error) {
	if s.use < len(s.uses) && s.uses[s.use].first == s.frame {
		if err := s.change(s.uses[s.use].lives); err != nil {
			return metric.Frame{}, err
		}
		s.use++
	}
	f := metric.Frame{Schema: s.schema, Values: now[s.base:][:s.dict.Words]}
	f.Begin = end + int64(unzigzag(s.windows[0][s.frame]))
	f.End = f.Begin + int64(unzigzag(s.windows[1][s.frame]))
	f.Lost = s.windows[2][s.frame]
	if !s.plain {
		s.values = s.values[:0]
		for _, l := range s.lives {
			e := &s.dict.Series[l]
			s.values = append(s.values, now[s.base+e.Off:][:e.Desc.Words()]...)
		}
		f.Values = s.values
	}
	s.frame++
	return f, nil
}

// change makes the schema of a use.
func (s *rowSource) change(lives []int32) error {
	if s.lost != nil {
		lives = slices.DeleteFunc(slices.Clone(lives), func(l int32) bool { return s.lost[l] })
	}
	s.lives, s.plain = lives, len(lives) == s.series
	for i, l := range lives {
		s.plain = s.plain && int(l) == i
	}
	if s.plain {
		s.schema = s.dict
		return nil
	}
	series := make([]metric.Series, len(lives))
	for i, l := range lives {
		series[i] = s.dict.Series[l]
	}
	schema, err := metric.NewSchema(s.dict.Source, series)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	s.schema = schema
	return nil
}

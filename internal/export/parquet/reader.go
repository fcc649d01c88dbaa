// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"rezolus/internal/metric"
)

// Reader reads the ticks of a file, row group by row group. It is not safe
// for concurrent use.
type Reader struct {
	*File
	from, to int64
	origins  []*lineup
	byColumn map[int]*lane
	time     *lane
	duration *lane
	cells    uint64

	group, row, rows int   // the open row group is the one before; the next row, and how many it has
	at               int64 // the number of the next row in the file
	tick             metric.Snapshot
	next             [factKinds]factCursor
	clock            int64
	last             int64 // time of the row before; 0 at the beginning
	decoders         []*decoder
	blocks           []block // what each of them decodes into
	lanes            []*lane // that are read
}

// lineup is a source as it is read.
type lineup struct {
	name         string
	columns      []*lane
	begin, width *lane
	schema       *metric.Schema
	lost         uint64
}

// Ticks reads the ticks within [from, to], Unix nanoseconds, both inclusive,
// in the file's order, with the series that are wanted; nil wants all.
func (f *File) Ticks(from, to int64, want func(*metric.Series) bool) *Reader {
	r := &Reader{File: f, from: from, to: to, byColumn: map[int]*lane{}}
	r.tick.Interval = f.interval
	run := f.run
	r.tick.Run = &run
	open := func(in *input) *lane {
		if in == nil {
			return nil
		}
		l := newLane(in)
		r.lanes = append(r.lanes, l)
		return l
	}
	r.time = open(f.time)
	r.duration = open(f.duration)
	for _, o := range f.origins {
		of := &lineup{name: o.name}
		for _, in := range o.columns {
			if want == nil || want(&metric.Series{Desc: in.desc, Values: in.values}) {
				l := open(in)
				of.columns = append(of.columns, l)
				r.byColumn[in.number] = l
			}
		}
		if len(of.columns) > 0 {
			of.begin, of.width = open(o.begin), open(o.width)
			r.origins = append(r.origins, of)
		}
	}
	for range runtime.GOMAXPROCS(0) {
		r.decoders = append(r.decoders, &decoder{})
	}
	r.blocks = make([]block, len(r.decoders))
	return r
}

// Report says what was not read so far.
func (r *Reader) Report() Report {
	out := r.File.Report()
	out.Cells = r.cells
	return out
}

// Next reads the next tick. It is overwritten by the one after it. At the
// end the error is io.EOF.
func (r *Reader) Next() (s *metric.Snapshot, err error) {
	defer guard(&err)
	for {
		for r.row >= r.rows {
			if r.group >= len(r.footer.groups) {
				return nil, io.EOF
			}
			g := &r.footer.groups[r.group]
			r.group++
			if g.max < r.from || g.min > r.to {
				r.skip(g.rows)
				continue
			}
			if err := r.load(g); err != nil {
				return nil, err
			}
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
		r.row++
		r.at++
		if r.tick.Wall >= r.from && r.tick.Wall <= r.to {
			return &r.tick, nil
		}
	}
}

// skip passes over rows, of which it is not known what they have.
func (r *Reader) skip(rows int64) {
	r.at += rows
	r.tick.Seq += uint64(rows)
	r.last = 0
	for _, l := range r.lanes {
		l.forget()
	}
}

// load decodes the columns of a row group, on all processors.
func (r *Reader) load(g *rowGroup) error {
	at := map[int]*chunkAt{}
	err := r.footer.chunks(r.r, g, func(leaf int, c *chunkAt) bool {
		at[leaf] = c
		return false
	})
	if err != nil {
		return err
	}
	var next atomic.Int64
	var bad atomic.Uint64
	var all sync.WaitGroup
	errs := make([]error, len(r.lanes))
	for i, d := range r.decoders {
		all.Go(func() {
			b := &r.blocks[i]
			for n := next.Add(1) - 1; n < int64(len(r.lanes)); n = next.Add(1) - 1 {
				l := r.lanes[n]
				b.was = l.was
				if errs[n] = d.try(r.File, l.input, at[l.leaf.leaf], int(g.rows), b); errs[n] == nil {
					l.take(b)
					bad.Add(b.bad)
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	r.cells += bad.Load()
	r.row, r.rows = 0, int(g.rows)
	return nil
}

// try is decode, of bytes that may let a library panic.
func (d *decoder) try(f *File, in *input, c *chunkAt, rows int, out *block) (err error) {
	defer guard(&err)
	if rows < 0 || rows > maxGroupRows {
		return fmt.Errorf("%w: a row group of %d rows; at most %d are read", ErrDamaged, rows, maxGroupRows)
	}
	return d.decode(f, in, c, rows, out)
}

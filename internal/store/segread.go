// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"sync"

	"rezolus/internal/metric"
)

// segmentAt is a segment of a file. What it needs is read when it is asked
// for.
type segmentAt struct {
	front segmentFront
	read  func(k *segmentBlock, buf []byte) (Record, []byte, error) // a block, in buf if it fits
	dict  func(metric.Hash) (*metric.Schema, error)
	body  func() (Record, error) // the directory's record
}

// unpackers are decompressors that wait to be used again.
var unpackers = sync.Pool{New: func() any { return new(unpacker) }}

// directory reads the directory.
func (g *segmentAt) directory() (*directory, error) {
	rec, err := g.body()
	if err != nil {
		return nil, err
	}
	u := unpackers.Get().(*unpacker)
	defer unpackers.Put(u)
	b, err := u.body(rec.flags&flagZstd != 0, g.front.size, rec.body)
	if err != nil {
		return nil, err
	}
	return parseDirectory(b, &g.front)
}

// segmentReader reads columns of one segment. One goroutine may use it.
type segmentReader struct {
	g       *segmentAt
	d       *directory
	u       *unpacker
	buf     []byte
	block   int      // that is unpacked; -1 for none
	columns [][]byte // of that block
}

func newSegmentReader(g *segmentAt) (*segmentReader, error) {
	d, err := g.directory()
	if err != nil {
		return nil, err
	}
	return &segmentReader{g: g, d: d, u: unpackers.Get().(*unpacker), block: -1}, nil
}

func (r *segmentReader) close() { unpackers.Put(r.u) }

// open unpacks a block of so many columns.
func (r *segmentReader) open(block, columns int) error {
	if block == r.block {
		return nil
	}
	r.block = -1
	rec, buf, err := r.g.read(&r.d.blocks[block], r.buf)
	if err != nil {
		return err
	}
	r.buf = buf
	f, err := parseBlock(rec)
	if err != nil {
		return err
	}
	if rec.Type != TypeBlock || f.chain != r.g.front.chain || f.n != r.g.front.n || f.index != uint64(block) {
		return fmt.Errorf("%w: a block of another segment", ErrCorrupt)
	}
	body, err := r.u.body(rec.flags&flagZstd != 0, f.size, rec.body)
	if err != nil {
		return err
	}
	r.columns = r.columns[:0]
	c := cursor{b: body}
	if block < blockColumns { // lengths before each column
		for range columns {
			r.columns = append(r.columns, c.bytes(c.uvarint()))
		}
	} else { // all lengths before all columns
		sizes := make([]uint64, columns)
		for i := range sizes {
			sizes[i] = c.uvarint()
		}
		for _, n := range sizes {
			r.columns = append(r.columns, c.bytes(n))
		}
	}
	if c.bad || len(c.b) > 0 {
		return fmt.Errorf("%w: a block of columns", ErrCorrupt)
	}
	r.block = block
	return nil
}

// column is the coded column of a life, valid until the next call.
func (r *segmentReader) column(number int) ([]byte, error) {
	i := r.d.block(number)
	k := &r.d.blocks[i]
	if number < k.first || number >= k.first+k.columns {
		return nil, fmt.Errorf("%w: a column is in no block", ErrCorrupt)
	}
	if err := r.open(i, k.columns); err != nil {
		return nil, err
	}
	return r.columns[number-k.first], nil
}

// What the block of ticks has, in this order.
const (
	tickWall = iota
	tickMono
	tickSeq
	tickInterval
	tickMissed
	tickColumns
)

// tickValues is one column of the block of ticks.
func (r *segmentReader) tickValues(which int) ([]uint64, error) {
	if err := r.open(blockTicks, tickColumns); err != nil {
		return nil, err
	}
	return readWord(r.columns[which], r.d.ticks, make([]uint64, 0, r.d.ticks))
}

// walls are the times of the ticks, which ascend.
func (r *segmentReader) walls() ([]int64, error) {
	v, err := r.tickValues(tickWall)
	if err != nil {
		return nil, err
	}
	t := make([]int64, len(v))
	for i := range v {
		t[i] = int64(v[i])
		if i > 0 && t[i] <= t[i-1] {
			return nil, fmt.Errorf("%w: times of a segment", ErrCorrupt)
		}
	}
	return t, nil
}

// dictionary is the schema of a source's lives.
func (r *segmentReader) dictionary(s *segmentSource) (*metric.Schema, error) {
	d, err := r.g.dict(s.dict)
	if err == nil && len(d.Series) != s.series {
		err = fmt.Errorf("%w: a dictionary has %d series, want %d", ErrCorrupt, len(d.Series), s.series)
	}
	return d, err
}

// part is what a segment has of the wanted series, decoded.
type part struct {
	sources []partSource
	err     error // what could not be read of it
}

// partSource is a source of a part.
type partSource struct {
	name  string
	times []int64 // of its frames
	lives []partLife
}

// partLife is the samples of one column: those at times[from:].
type partLife struct {
	col   *column
	desc  *metric.Desc
	start int64
	from  int
	until int
	lost  bool // it is there, but cannot be read
	word  []uint64
	step  []metric.Step
	end   []int
}

// decode reads what a selection wants of the ticks from..to.
func (g *segmentAt) decode(from, to int64, pick func(*metric.Schema) []wanted) (p part) {
	r, err := newSegmentReader(g)
	if err != nil {
		return part{err: err}
	}
	defer r.close()
	var walls []int64
	for i := range r.d.sources {
		s := &r.d.sources[i]
		d, err := r.dictionary(s)
		if err != nil {
			p.err = err
			continue
		}
		picks := pick(d)
		if walls == nil {
			if walls, err = r.walls(); err != nil {
				return part{err: err}
			}
		}
		// A frame without any of what is wanted may end what was before it.
		out, err := r.source(s, picks, walls, from, to)
		if err != nil {
			p.err = err
		}
		if len(out.times) > 0 {
			out.name = d.Source
			p.sources = append(p.sources, out)
		}
	}
	return p
}

// source reads the wanted lives of a source.
func (r *segmentReader) source(s *segmentSource, picks []wanted, walls []int64, from, to int64) (out partSource, bad error) {
	lo, hi := 0, s.frames
	for lo < hi && walls[s.row(lo)] < from {
		lo++
	}
	for hi > lo && walls[s.row(hi-1)] > to {
		hi--
	}
	if lo == hi {
		return out, nil
	}
	if s.rows == nil {
		out.times = walls[lo:hi]
	} else {
		for i := lo; i < hi; i++ {
			out.times = append(out.times, walls[s.row(i)])
		}
	}
	if len(picks) == 0 {
		return out, nil
	}
	begins, ends := s.spans()
	for _, w := range picks {
		l := partLife{col: w.col, start: w.series.Start, desc: w.series.Desc, from: max(begins[w.number], lo), until: min(ends[w.number], hi)}
		if l.from >= l.until {
			continue
		}
		b, err := r.column(s.column + w.number)
		if err == nil {
			err = l.read(b, w.series.Desc, begins[w.number], ends[w.number])
		}
		if err != nil {
			bad, l.lost = err, true
		}
		l.from, l.until = l.from-lo, l.until-lo
		out.lives = append(out.lives, l)
	}
	return out, bad
}

// read decodes the samples from..until of a life whose frames are begin..end.
func (l *partLife) read(b []byte, d *metric.Desc, begin, end int) error {
	if !d.Kind.Buckets() {
		words, err := readWord(b, end-begin, make([]uint64, 0, end-begin))
		if err == nil {
			l.word = words[l.from-begin : l.until-begin]
		}
		return err
	}
	return l.readSteps(b, d, l.from-begin, l.until-begin, end-begin)
}

// readSteps brings the steps of a histogram's buckets into the order of time.
// What came before the first sample is that sample's.
func (l *partLife) readSteps(b []byte, d *metric.Desc, from, until, n int) error {
	type at struct {
		sample, bucket int32
		by             uint64
	}
	var all []at
	counts := make([]int, until-from+1)
	first := make([]uint64, d.Words())
	err := readBuckets(b, d.Words(), n, func(index, i int, by uint64) {
		if i <= from {
			first[index] += by
		} else if i < until {
			all = append(all, at{int32(i - from), int32(index), by})
			counts[i-from+1]++
		}
	})
	if err != nil {
		return err
	}
	for i, v := range first {
		if v != 0 {
			all = append(all, at{0, int32(i), v})
			counts[1]++
		}
	}
	for i := range counts[1:] {
		counts[i+1] += counts[i]
	}
	l.step = make([]metric.Step, len(all))
	for _, s := range all {
		l.step[counts[s.sample]] = metric.Step{Bucket: s.bucket, Add: int64(s.by)}
		counts[s.sample]++
	}
	l.end = counts[:until-from]
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"rezolus/internal/metric"
)

// blockBytes is the size of a block before compression, from which on it is
// ended: what must be decompressed to read one column.
const blockBytes = 64 << 10

// sealing is a segment being written.
type sealing struct {
	c      *collector
	front  segmentFront
	dir    directory
	blocks []byte // the block records so far
	body   []byte // of the present block
	sizes  []byte // of its columns
	zstd   *packer
	of     gathered // scratch: the changes of a life
}

// reset begins another segment in the memory of the one before.
func (s *sealing) reset(c *collector, z *packer) {
	*s = sealing{c: c, zstd: z, dir: directory{ticks: len(c.rows), sources: s.dir.sources[:0], blocks: s.dir.blocks[:0]},
		blocks: s.blocks[:0], body: s.body[:0], sizes: s.sizes[:0], of: s.of}
}

// packer compresses bodies, one at a time.
type packer struct {
	zstd *zstd.Encoder
	buf  []byte
}

// pack is the body as it is stored, and whether that is compressed. It is
// valid until the next call.
func (p *packer) pack(body []byte) ([]byte, bool) {
	if len(body) < minCompress {
		return body, false
	}
	if p.zstd == nil {
		z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1),
			zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(512<<10))
		if err != nil {
			return body, false
		}
		p.zstd = z
	}
	if p.buf = p.zstd.EncodeAll(body, p.buf[:0]); len(p.buf) >= len(body) {
		return body, false
	}
	return p.buf, true
}

// record appends a record whose body is packed.
func (p *packer) record(dst []byte, typ Type, front func([]byte) []byte, body []byte) []byte {
	packed, small := p.pack(body)
	flags := byte(0)
	if small {
		flags = flagZstd
	}
	dst, at := beginRecord(dst)
	dst = front(dst)
	start := len(dst)
	dst = append(dst, packed...)
	finishRecord(dst, at, start, typ, flags)
	return dst
}

// seal makes a segment of the collector's ticks: what head appends, and its
// blocks. dict is called for each dictionary the segment needs, before
// its record is to stand. All are valid until the next call.
func (c *collector) seal(z *packer, dict func(*metric.Schema)) (*sealing, error) {
	s := &c.sealing
	s.reset(c, z)
	s.setFront()
	s.ticks()
	s.windows()
	for _, src := range c.sources {
		if len(src.frames) == 0 {
			continue
		}
		if err := s.source(src, dict); err != nil {
			return nil, err
		}
	}
	s.end(len(s.sizes) > 0)
	s.front.follow = uint64(len(s.blocks))
	return s, nil
}

// head appends the segment's record, behind which its blocks stand.
func (s *sealing) head(dst []byte) []byte {
	s.body = s.dir.append(s.body[:0])
	s.front.size = uint64(len(s.body))
	return s.zstd.record(dst, TypeSegment, s.front.append, s.body)
}

func (s *sealing) setFront() {
	rows := s.c.rows
	first, last := &rows[0], &rows[len(rows)-1]
	s.front = segmentFront{chain: first.chain, n: first.n, ticks: uint64(len(rows)), first: first.wall, last: last.wall,
		seq: first.seq, lastSeq: last.seq, interval: uint64(last.interval)}
	for _, r := range rows {
		s.front.missed += r.missed
	}
}

// values appends a column of plain values with its length before it.
func (s *sealing) values(n int, of func(i int) uint64) {
	first := of(0)
	st := steps{n: n - 1}
	for i, before := 1, first; i < n; i++ {
		v := of(i)
		if v != before {
			st.at, st.by = append(st.at, uint16(i-1)), append(st.by, v-before)
		}
		before = v
	}
	b := appendWord(nil, plainWord, first, &st)
	s.body = append(binary.AppendUvarint(s.body, uint64(len(b))), b...)
}

// plainWord describes the numbers of a segment that are not a metric's.
var plainWord = &metric.Desc{Kind: metric.Gauge}

// ticks writes the block of what a tick's front has.
func (s *sealing) ticks() {
	rows := s.c.rows
	for _, of := range []func(i int) uint64{
		func(i int) uint64 { return uint64(rows[i].wall) },
		func(i int) uint64 { return uint64(rows[i].mono) },
		func(i int) uint64 { return rows[i].seq },
		func(i int) uint64 { return uint64(rows[i].interval) },
		func(i int) uint64 { return rows[i].missed },
	} {
		s.values(len(rows), of)
	}
	s.end(true)
}

// windows writes the block of what a frame has besides its words. A source is
// read when the one before it is done: the time between the two is what is
// stored, as it varies least.
func (s *sealing) windows() {
	ends := make([]int64, len(s.c.rows))
	for i := range ends {
		ends[i] = s.c.rows[i].mono
	}
	for _, src := range s.c.sources {
		f := src.frames
		if len(f) == 0 {
			continue
		}
		s.values(len(f), func(i int) uint64 { return zigzag(uint64(f[i].begin - ends[f[i].row])) })
		s.values(len(f), func(i int) uint64 { return zigzag(uint64(f[i].end - f[i].begin)) })
		s.values(len(f), func(i int) uint64 { return f[i].lost })
		for i := range f {
			ends[f[i].row] = f[i].end
		}
	}
	s.end(true)
}

// source writes the columns of a source.
func (s *sealing) source(src *collected, dict func(*metric.Schema)) error {
	lives, uses := src.used()
	schema, err := src.dictionary(lives)
	if err != nil {
		return fmt.Errorf("seal a segment: %w", err)
	}
	dict(schema)
	d := segmentSource{dict: schema.Hash, frames: len(src.frames), series: len(lives), uses: uses}
	if d.frames < len(s.c.rows) {
		for _, f := range src.frames {
			d.rows = append(d.rows, f.row)
		}
	}
	s.dir.sources = append(s.dir.sources, d)
	most := 0
	for _, u := range uses {
		most = max(most, len(u.lives))
	}
	s.front.series += uint64(most)
	from, until := d.spans()
	for i, l := range lives {
		s.column(&src.lives[l], from[i], until[i]-from[i])
	}
	return nil
}

// column writes the column of a life with n values.
func (s *sealing) column(l *life, from, n int) {
	d := l.series.Desc
	words := d.Words()
	s.of.gather(&s.c.changes, &l.track, words, from+1)
	stepsOf := func(i int) steps { return s.of.of(i, n) }
	at := len(s.body)
	if d.Kind.Buckets() {
		s.body = appendBuckets(s.body, s.c.init[l.base:][:words], stepsOf)
	} else {
		st := stepsOf(0)
		s.body = appendWord(s.body, d, s.c.init[l.base], &st)
	}
	s.sizes = binary.AppendUvarint(s.sizes, uint64(len(s.body)-at))
	if k := s.dir.blocks; len(k) == 0 || k[len(k)-1].bytes != 0 {
		s.dir.blocks = append(k, segmentBlock{})
	}
	s.dir.blocks[len(s.dir.blocks)-1].columns++
	s.end(len(s.body) >= blockBytes)
}

// end ends the present block, if it is to be.
func (s *sealing) end(now bool) {
	if !now {
		return
	}
	if k := s.dir.blocks; len(k) == 0 || k[len(k)-1].bytes != 0 {
		s.dir.blocks = append(k, segmentBlock{})
	}
	k := &s.dir.blocks[len(s.dir.blocks)-1]
	s.sizes = append(s.sizes, s.body...)
	f := blockFront{chain: s.front.chain, n: s.front.n, index: uint64(len(s.dir.blocks) - 1), size: uint64(len(s.sizes))}
	before := len(s.blocks)
	s.blocks = s.zstd.record(s.blocks, TypeBlock, f.append, s.sizes)
	k.bytes = int64(len(s.blocks) - before)
	s.body, s.sizes = s.body[:0], s.sizes[:0]
}

// used are the lives that have a frame, and the uses in terms of those.
func (s *collected) used() (lives []int32, uses []schemaUse) {
	number := make([]int32, len(s.lives))
	for _, u := range s.uses {
		if u.first >= len(s.frames) {
			break // in force, but without a frame yet
		}
		use := schemaUse{first: u.first, lives: make([]int32, len(u.lives))}
		for i, l := range u.lives {
			if number[l] == 0 {
				lives = append(lives, l)
				number[l] = int32(len(lives))
			}
			use.lives[i] = number[l] - 1
		}
		uses = append(uses, use)
	}
	return lives, uses
}

// dictionary is the schema of the given lives: the source's own, if there
// was but one.
func (s *collected) dictionary(lives []int32) (*metric.Schema, error) {
	if len(s.uses) == 1 && len(lives) == len(s.schema.Series) {
		return s.schema, nil
	}
	series := make([]metric.Series, len(lives))
	for i, l := range lives {
		series[i] = s.lives[l].series
	}
	return metric.NewSchema(s.name, series)
}

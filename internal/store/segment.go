// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"fmt"

	"rezolus/internal/metric"
)

// dictFront is the front of a dictionary record: a schema that segments name
// by its hash. Its body is the schema's encoding.
type dictFront struct {
	hash          metric.Hash
	words, series uint64
	size          uint64 // of the body before compression
	source        string
}

func (d *dictFront) append(b []byte) []byte {
	b = append(b, d.hash[:]...)
	b = binary.AppendUvarint(b, d.words)
	b = binary.AppendUvarint(b, d.series)
	b = binary.AppendUvarint(b, d.size)
	return appendString(b, d.source)
}

func parseDict(rec Record) (dictFront, error) {
	c := cursor{b: rec.front}
	d := dictFront{hash: c.id(), words: c.uvarint(), series: c.uvarint(), size: c.uvarint()}
	d.source = c.string()
	if d.words > maxWords || d.series > metric.MaxSeries || d.size > maxSchema {
		c.fail()
	}
	return d, finished(&c, rec)
}

// segmentFront is the front of a segment record: a run of ticks of one chain
// in columns. Its body is the directory of the blocks that follow it.
type segmentFront struct {
	chain        uint32
	n            uint64 // of the first tick in its chain
	ticks        uint64
	first, last  int64 // wall
	seq, lastSeq uint64
	missed       uint64 // of all ticks but the first, which has firstMissed
	firstMissed  uint64
	interval     uint64 // of the last tick
	series       uint64 // the most that lived at once
	follow       uint64 // bytes of the blocks
	size         uint64 // of the directory before compression
}

func (s *segmentFront) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, s.chain)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.first))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.last))
	for _, v := range []uint64{s.n, s.ticks, s.seq, s.lastSeq, s.missed, s.interval, s.series, s.follow, s.size} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func parseSegment(rec Record) (segmentFront, error) {
	c := cursor{b: rec.front}
	s := segmentFront{chain: c.u32(), first: int64(c.u64()), last: int64(c.u64())}
	for _, v := range []*uint64{&s.n, &s.ticks, &s.seq, &s.lastSeq, &s.missed, &s.interval, &s.series, &s.follow, &s.size} {
		*v = c.uvarint()
	}
	if s.ticks == 0 || s.ticks > maxTicks || s.first > s.last || s.size > maxBody || s.follow > 1<<40 || s.interval > 1<<62 ||
		s.series > maxWords || s.n > 1<<60 {
		c.fail()
	}
	return s, finished(&c, rec)
}

// blockFront is the front of a block record, which belongs to a segment.
type blockFront struct {
	chain uint32
	n     uint64 // of the segment
	index uint64 // among the segment's blocks
	size  uint64 // of the body before compression
}

func (k *blockFront) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, k.chain)
	b = binary.AppendUvarint(b, k.n)
	b = binary.AppendUvarint(b, k.index)
	return binary.AppendUvarint(b, k.size)
}

func parseBlock(rec Record) (blockFront, error) {
	c := cursor{b: rec.front}
	k := blockFront{chain: c.u32(), n: c.uvarint(), index: c.uvarint(), size: c.uvarint()}
	if k.size > maxBody {
		c.fail()
	}
	return k, finished(&c, rec)
}

// directory says where in a segment which column lies.
type directory struct {
	ticks   int
	sources []segmentSource
	blocks  []segmentBlock
}

// segmentSource is a source of a segment: which of the ticks have a frame of
// it, and which lives each frame has. Lives are series of the dictionary.
type segmentSource struct {
	dict   metric.Hash
	schema *metric.Schema // of that hash, where it was looked up
	rows   []uint16       // the ticks of its frames; nil: every one
	frames int
	series int // lives
	column int // of the first life, among all of the segment
	uses   []schemaUse
}

// row is the tick of a frame.
func (s *segmentSource) row(frame int) int {
	if s.rows == nil {
		return frame
	}
	return int(s.rows[frame])
}

// segmentBlock is a block: where it begins behind the directory, its length,
// and the columns it has. The first two have none.
type segmentBlock struct {
	off, bytes     int64
	first, columns int
}

// The blocks that stand before the columns'.
const (
	blockTicks   = 0
	blockWindows = 1
	blockColumns = 2
)

func (d *directory) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(d.sources)))
	for i := range d.sources {
		s := &d.sources[i]
		b = append(b, s.dict[:]...)
		b = binary.AppendUvarint(b, uint64(s.series))
		b = binary.AppendUvarint(b, uint64(s.frames))
		next := 0
		for _, r := range s.rows {
			b = binary.AppendUvarint(b, uint64(int(r)-next))
			next = int(r) + 1
		}
		b = binary.AppendUvarint(b, uint64(len(s.uses)))
		for _, u := range s.uses {
			b = appendUse(b, u)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(d.blocks)))
	for _, k := range d.blocks {
		b = binary.AppendUvarint(b, uint64(k.bytes))
		b = binary.AppendUvarint(b, uint64(k.columns))
	}
	return b
}

// appendUse appends where the use begins, and its lives as runs of ascending
// numbers.
func appendUse(b []byte, u schemaUse) []byte {
	b = binary.AppendUvarint(b, uint64(u.first))
	b = binary.AppendUvarint(b, uint64(len(u.lives)))
	next := int32(0)
	for i := 0; i < len(u.lives); {
		n := 1
		for i+n < len(u.lives) && u.lives[i+n] == u.lives[i]+int32(n) {
			n++
		}
		b = binary.AppendVarint(b, int64(u.lives[i]-next))
		b = binary.AppendUvarint(b, uint64(n))
		next = u.lives[i] + int32(n)
		i += n
	}
	return b
}

// parseDirectory is the other way round. What it returns can be relied on.
func parseDirectory(b []byte, f *segmentFront) (*directory, error) {
	d := &directory{ticks: int(f.ticks)}
	c := cursor{b: b}
	columns, lives := 0, 0
	n := c.uvarint()
	if n > maxSources {
		c.fail()
	}
	for ; n > 0 && !c.bad; n-- {
		d.sources = append(d.sources, parseSource(&c, d.ticks, &lives))
		s := &d.sources[len(d.sources)-1]
		s.column = columns
		columns += s.series
	}
	if columns > maxWords || columns*d.ticks > maxCells {
		c.fail()
	}
	n = c.uvarint()
	if n > uint64(columns)+blockColumns {
		c.fail()
	}
	off, first := int64(0), 0
	for ; n > 0 && !c.bad; n-- {
		k := segmentBlock{off: off, bytes: int64(c.uvarint()), first: first}
		count := c.uvarint()
		if k.bytes < recordHead || uint64(k.bytes) > f.follow-uint64(off) || count > uint64(columns-first) {
			c.fail()
			break
		}
		k.columns = int(count)
		off, first = off+k.bytes, first+k.columns
		d.blocks = append(d.blocks, k)
	}
	if c.bad || len(c.b) > 0 || first != columns || uint64(off) != f.follow || len(d.blocks) < blockColumns {
		return nil, fmt.Errorf("%w: directory of a segment", ErrCorrupt)
	}
	return d, nil
}

func parseSource(c *cursor, ticks int, lives *int) (s segmentSource) {
	s.dict = c.id()
	series, frames := c.uvarint(), c.uvarint()
	if series > maxWords || frames == 0 || frames > uint64(ticks) {
		c.fail()
		return s
	}
	s.series, s.frames = int(series), int(frames)
	if s.frames < ticks {
		s.rows = make([]uint16, s.frames)
		next := uint64(0)
		for i := range s.rows {
			if next += min(c.uvarint(), 1<<20); next >= uint64(ticks) {
				c.fail()
				return s
			}
			s.rows[i] = uint16(next)
			next++
		}
	}
	before := -1
	for n := c.uvarint(); n > 0 && !c.bad; n-- {
		u := parseUse(c, s.series, lives)
		if u.first <= before || u.first >= s.frames || before < 0 && u.first != 0 {
			c.fail()
			break
		}
		before = u.first
		s.uses = append(s.uses, u)
	}
	if len(s.uses) == 0 {
		c.fail()
	}
	return s
}

// maxLives bounds the lives of all uses of a segment together.
const maxLives = 1 << 23

func parseUse(c *cursor, series int, lives *int) (u schemaUse) {
	first, count := c.uvarint(), c.uvarint()
	if first > maxTicks || count > uint64(series) || *lives+int(count) > maxLives {
		c.fail()
		return u
	}
	*lives += int(count)
	u = schemaUse{int(first), make([]int32, 0, count)}
	next := int64(0)
	for uint64(len(u.lives)) < count {
		from, n := next+c.varint(), c.uvarint()
		if from < 0 || n == 0 || n > count-uint64(len(u.lives)) || from > int64(series)-int64(n) {
			c.fail()
			return u
		}
		for i := range int64(n) {
			u.lives = append(u.lives, int32(from+i))
		}
		next = from + int64(n)
	}
	return u
}

// spans gives the frames of each life: from and until. The lives of a source
// are in unbroken sequences of frames.
func (s *segmentSource) spans() (from, until []int) {
	from, until = make([]int, s.series), make([]int, s.series)
	for i, u := range s.uses {
		end := s.frames
		if i+1 < len(s.uses) {
			end = s.uses[i+1].first
		}
		for _, l := range u.lives {
			if until[l] == 0 {
				from[l] = u.first
			}
			until[l] = end
		}
	}
	return from, until
}

// block is the block that has a column.
func (d *directory) block(column int) int {
	lo, hi := blockColumns, len(d.blocks)-1
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if d.blocks[mid].first <= column {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

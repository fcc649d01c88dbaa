// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/delta"
)

// Encodings and codecs of Parquet (parquet-format, Encodings.md and
// Compression.md).
const (
	encodingPlain      = 0
	encodingDictionary = 2 // deprecated; the same as encodingRLEDict
	encodingRLE        = 3
	encodingDelta      = 5
	encodingRLEDict    = 8
	encodingSplit      = 9
	codecZstd          = 6
)

// A page of a scalar column ends after so many values, one of a histogram
// after so many bytes: enough that what repeats from row to row is found, few
// enough that a reader need not hold more than a few megabytes.
const (
	pageValues = 4096
	pageBytes  = 512 << 10
)

// level is a run of equal repetition or definition levels.
type level struct {
	level byte
	n     int
}

type levels []level

func (l *levels) add(v byte, n int) {
	if last := len(*l) - 1; last >= 0 && (*l)[last].level == v {
		(*l)[last].n += n
	} else if n > 0 {
		*l = append(*l, level{v, n})
	}
}

// append encodes the levels as RLE runs behind their length. No level here
// is above 255, so a level is one byte.
func (l levels) append(b []byte) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	for _, r := range l {
		b = binary.AppendUvarint(b, uint64(r.n)<<1)
		b = append(b, r.level)
	}
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// encoder makes the chunk of a column out of its rows. It has what that takes
// at a time.
type encoder struct {
	delta  delta.BinaryPackedEncoding
	zstd   *zstd.Encoder
	words  []uint64 // of the present row
	deltas []byte
	body   []byte
	packed []byte
	head   thrift

	def, rep levels  // of the open page
	ints     []int64 // its values, in delta encoding
	plain    []byte  // its values, in plain encoding
	entries  int     // its values, nulls and elements

	out   []byte // the chunk's pages so far
	chunk chunk  // what the footer says of it
	err   error
	done  chan struct{}
}

// encode makes the chunk of a column: out and chunk, or err. It overwrites
// those of the column before.
func (e *encoder) encode(r *rows) {
	e.out, e.chunk, e.err = e.out[:0], chunk{}, nil
	e.words = resize(e.words, len(r.last))
	clear(e.words)
	c := cursor{steps: r.steps, words: e.words}
	for len(c.steps) > 0 && e.err == nil {
		if nulls := c.next(); nulls > 0 {
			e.nulls(r.typ, nulls)
			continue
		}
		e.row(r.typ)
		if e.entries >= pageValues && r.typ != histogram || len(e.plain) >= pageBytes {
			e.finish(r.required, r.typ)
		}
	}
	if e.err == nil && e.entries > 0 {
		e.finish(r.required, r.typ)
	}
	e.chunk.size = int64(len(e.out))
}

func (e *encoder) nulls(typ physical, n int) {
	e.def.add(0, n)
	if typ == histogram {
		e.rep.add(0, n)
	}
	e.entries += n
}

// row adds the present row to the page.
func (e *encoder) row(typ physical) {
	switch typ {
	case histogram:
		e.rep.add(0, 1)
		e.rep.add(1, len(e.words)-1)
		e.def.add(2, len(e.words))
	default:
		e.def.add(1, 1)
	}
	e.entries += len(e.words)
	if typ != histogram && typ != float64s {
		e.ints = append(e.ints, int64(e.words[0]))
		return
	}
	at := len(e.plain)
	e.plain = slices.Grow(e.plain, 8*len(e.words))[:at+8*len(e.words)]
	for i, w := range e.words {
		binary.LittleEndian.PutUint64(e.plain[at+8*i:], w)
	}
}

// finish completes the open page.
func (e *encoder) finish(required bool, typ physical) {
	body := e.body[:0]
	if typ == histogram {
		body = e.rep.append(body)
	}
	if !required {
		body = e.def.append(body)
	}
	encoding := int32(encodingPlain)
	if len(e.ints) > 0 {
		encoding = encodingDelta
		if e.deltas, e.err = e.delta.EncodeInt64(e.deltas[:0], e.ints); e.err != nil {
			e.err = fmt.Errorf("encode a page: %w", e.err)
			return
		}
		body = append(body, e.deltas...)
	}
	body = append(body, e.plain...)
	e.page(body, encoding)
	e.def, e.rep, e.ints, e.plain, e.entries = e.def[:0], e.rep[:0], e.ints[:0], e.plain[:0], 0
}

// page appends a data page (version 1, which every reader knows) with its
// header and checksum.
func (e *encoder) page(body []byte, encoding int32) {
	e.body = body
	if e.zstd == nil {
		// Twice the window is held for good.
		if e.zstd, e.err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1),
			zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(pageBytes)); e.err != nil {
			e.err = fmt.Errorf("start zstd: %w", e.err)
			return
		}
	}
	e.packed = e.zstd.EncodeAll(body, e.packed[:0])
	h := thrift{b: e.head.b[:0]}
	h.i32(1, 0)
	h.i32(2, int32(min(len(body), math.MaxInt32)))
	h.i32(3, int32(len(e.packed)))
	h.i32(4, int32(crc32.ChecksumIEEE(e.packed)))
	h.begin(5)
	h.i32(1, int32(e.entries))
	h.i32(2, encoding)
	h.i32(3, encodingRLE)
	h.i32(4, encodingRLE)
	h.end()
	h.end()
	e.head.b = h.b
	e.out = append(append(e.out, h.b...), e.packed...)
	e.chunk.raw += int64(len(h.b) + len(body))
	e.chunk.values += int64(e.entries)
}

// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/delta"
)

// Encodings and codecs of Parquet (parquet-format, Encodings.md).
const (
	encodingPlain = 0
	encodingRLE   = 3
	encodingDelta = 5
	codecZstd     = 6
)

// A page of a scalar column ends after so many values, one of a histogram
// after so many bytes. Pages are what is held uncompressed, once a column:
// five thousand columns and a hundred histograms take about 35 MB.
const (
	pageValues = 512
	pageBytes  = 128 << 10
)

// levels are repetition or definition levels, as runs of equal ones.
type levels []struct {
	level byte
	n     int
}

func (l *levels) add(level byte, n int) {
	if last := len(*l) - 1; last >= 0 && (*l)[last].level == level {
		(*l)[last].n += n
	} else if n > 0 {
		*l = append(*l, struct {
			level byte
			n     int
		}{level, n})
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

// pages collects the pages of a column within a row group.
type pages struct {
	typ      physical
	required bool // no definition levels: a value in every row

	rows    int     // rows of the row group so far
	entries int     // entries of the open page: values, nulls, elements
	def     levels  // of the open page
	rep     levels  // of the open page; histograms only
	ints    []int64 // values of the open page, in delta encoding
	plain   []byte  // values of the open page, in plain encoding

	done   []byte // pages that are complete
	raw    int64  // their bytes before compression, with headers
	total  int64  // their entries
	values bool   // whether they have a value that is not null
}

// pad makes the rows before row null where nothing was put.
func (p *pages) pad(row int) {
	if n := row - p.rows; n > 0 {
		p.def.add(0, n)
		if p.typ == histogram {
			p.rep.add(0, n)
		}
		p.entries += n
		p.rows = row
	}
}

// word puts the value of the next row of a scalar column.
func (p *pages) word(e *encoder, word uint64) error {
	if p.ints == nil && p.typ != float64s {
		p.ints = make([]int64, 0, pageValues)
	}
	if p.typ == float64s {
		p.plain = binary.LittleEndian.AppendUint64(p.plain, word)
	} else {
		p.ints = append(p.ints, int64(word))
	}
	p.def.add(1, 1)
	p.rows++
	p.entries++
	if p.entries >= pageValues {
		return p.finish(e)
	}
	return nil
}

// buckets puts the value of the next row of a histogram.
func (p *pages) buckets(e *encoder, words []uint64) error {
	if p.plain == nil {
		p.plain = make([]byte, 0, pageBytes+8*len(words))
	}
	for _, w := range words {
		p.plain = binary.LittleEndian.AppendUint64(p.plain, w)
	}
	p.rep.add(0, 1)
	p.rep.add(1, len(words)-1)
	p.def.add(2, len(words))
	p.rows++
	p.entries += len(words)
	if len(p.plain) >= pageBytes {
		return p.finish(e)
	}
	return nil
}

// finish completes the open page, if there is one.
func (p *pages) finish(e *encoder) error {
	if p.entries == 0 {
		return nil
	}
	body := e.body[:0]
	if p.typ == histogram {
		body = p.rep.append(body)
	}
	if !p.required {
		body = p.def.append(body)
	}
	encoding := int32(encodingPlain)
	var err error
	if len(p.ints) > 0 {
		encoding = encodingDelta
		if e.ints, err = e.delta.EncodeInt64(e.ints[:0], p.ints); err != nil {
			return fmt.Errorf("encode a page: %w", err)
		}
		body = append(body, e.ints...)
	}
	body = append(body, p.plain...)
	e.body = body
	p.values = p.values || len(p.ints)+len(p.plain) > 0
	p.total += int64(p.entries)
	before := len(p.done)
	if p.done, err = e.page(p.done, body, p.entries, encoding); err != nil {
		return err
	}
	p.raw += int64(len(p.done) - before - len(e.packed) + len(body))
	p.entries = 0
	p.def, p.rep, p.ints, p.plain = p.def[:0], p.rep[:0], p.ints[:0], p.plain[:0]
	return nil
}

// next begins a row group. The memory of a column that had no value is given
// back: of the columns of a long recording most are of things that are gone.
func (p *pages) next() {
	fresh := pages{typ: p.typ, required: p.required}
	if p.values {
		fresh.def, fresh.rep, fresh.ints, fresh.plain = p.def[:0], p.rep[:0], p.ints[:0], p.plain[:0]
		fresh.done = p.done[:0]
	}
	*p = fresh
}

// encoder has what the encoding of one page needs at a time.
type encoder struct {
	delta  delta.BinaryPackedEncoding
	zstd   zstd.Codec
	ints   []byte
	body   []byte
	packed []byte
	head   thrift
}

// page appends a data page (version 1, which every reader knows) with its
// header and checksum.
func (e *encoder) page(dst, body []byte, entries int, encoding int32) ([]byte, error) {
	var err error
	if e.packed, err = e.zstd.Encode(e.packed, body); err != nil {
		return nil, fmt.Errorf("compress a page: %w", err)
	}
	h := thrift{b: e.head.b[:0]}
	h.i32(1, 0)
	h.i32(2, int32(min(len(body), math.MaxInt32)))
	h.i32(3, int32(len(e.packed)))
	h.i32(4, int32(crc32.ChecksumIEEE(e.packed)))
	h.begin(5)
	h.i32(1, int32(entries))
	h.i32(2, encoding)
	h.i32(3, encodingRLE)
	h.i32(4, encodingRLE)
	h.end()
	h.end()
	e.head.b = h.b
	return append(append(dst, h.b...), e.packed...), nil
}

// nullPage is a page of so many rows that are all null.
func (e *encoder) nullPage(typ physical, rows int) (page []byte, raw int, err error) {
	var l levels
	l.add(0, rows)
	body := e.body[:0]
	if typ == histogram {
		body = l.append(body)
	}
	e.body = l.append(body)
	page, err = e.page(nil, e.body, rows, encodingPlain)
	return page, len(page) - len(e.packed) + len(e.body), err
}

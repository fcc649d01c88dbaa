// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/parquet-go/parquet-go/encoding/delta"
)

// maxValues bounds the values of a page, nulls and elements included.
const maxValues = 1 << 25

// decoder reads the pages of chunks. It has what one takes at a time, and is
// not safe for concurrent use.
type decoder struct {
	decompressor
	raw        []byte // the chunk
	dictionary []byte // its values in plain encoding
	plain      []byte // values of the page, where they were not in plain encoding
	indices    []run
	deltas     []int64
	ints       delta.BinaryPackedEncoding
	page       page
}

// page is a data page of a chunk.
type page struct {
	entries  int // values, nulls and elements
	def, rep []run
	plain    []byte // the values that are not null, eight bytes each
}

// pageHead is a PageHeader of parquet.thrift.
type pageHead struct {
	kind       int64 // one of the types below
	size       int64 // decompressed, and as it is
	packed     int64
	crc        uint32
	checked    bool // whether there is a crc
	values     int64
	encoding   int64
	def, rep   int64 // of version 2: the bytes of levels, which are not compressed
	compressed bool
}

// Types of pages.
const (
	pageData       = 0
	pageDictionary = 2
	pageDataV2     = 3
)

func readPageHead(t *thriftReader) pageHead {
	h := pageHead{compressed: true}
	t.fields(func(id int, typ byte) bool {
		switch {
		case id == 1 && typ == thriftI32:
			h.kind = t.int()
		case id == 2 && typ == thriftI32:
			h.size = t.int()
		case id == 3 && typ == thriftI32:
			h.packed = t.int()
		case id == 4 && typ == thriftI32:
			h.crc, h.checked = uint32(t.int()), true
		case (id == 5 || id == 7 || id == 8) && typ == thriftStruct:
			h.data(t, id == 8)
		default:
			return false
		}
		return true
	})
	return h
}

// data reads the header of a kind of page.
func (h *pageHead) data(t *thriftReader, v2 bool) {
	t.fields(func(id int, typ byte) bool {
		switch {
		case id == 1 && typ == thriftI32:
			h.values = t.int()
		case id == 2 && typ == thriftI32 && !v2, id == 4 && typ == thriftI32 && v2:
			h.encoding = t.int()
		case id == 5 && typ == thriftI32 && v2:
			h.def = t.int()
		case id == 6 && typ == thriftI32 && v2:
			h.rep = t.int()
		case id == 7 && v2:
			h.compressed = typ == thriftTrue
		default:
			return false
		}
		return true
	})
}

var errPage = errors.New("a page that is not one")

// pages gives the data pages of a chunk of a column to f, one after the other.
func (d *decoder) pages(r io.ReaderAt, c *chunkAt, leaf *node, f func(*page) error) error {
	if c.size < 0 || c.offset < 0 {
		return errPage
	}
	d.raw = resize(d.raw, int(c.size))
	if n, err := r.ReadAt(d.raw, c.offset); n < len(d.raw) {
		return err
	}
	d.dictionary = d.dictionary[:0]
	t := &thriftReader{b: d.raw}
	for left := c.values; left > 0; {
		h := readPageHead(t)
		if t.bad || h.packed < 0 || h.packed > int64(len(t.b)-t.at) || h.size < 0 || h.size > maxPage || h.values < 0 || h.values > maxValues {
			return errPage
		}
		b := t.b[t.at : t.at+int(h.packed)]
		t.at += len(b)
		if h.checked && crc32.ChecksumIEEE(b) != h.crc {
			return errors.New("a page with a wrong checksum")
		}
		var err error
		switch h.kind {
		case pageDictionary:
			b, err = d.unpack(c, &h, b)
			if err == nil && int64(len(b)) < 8*h.values {
				err = errPage
			}
			if err == nil {
				d.dictionary = append(d.dictionary[:0], b[:8*h.values]...)
			}
		case pageData, pageDataV2:
			left -= h.values
			if err = d.data(c, leaf, &h, b); err == nil {
				err = f(&d.page)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unpack decompresses a page, but for the levels of version 2.
func (d *decoder) unpack(c *chunkAt, h *pageHead, b []byte) ([]byte, error) {
	codec, size := c.codec, h.size
	if h.kind == pageDataV2 {
		size -= h.def + h.rep
		if !h.compressed {
			codec = codecNone
		}
	}
	if size < 0 {
		return nil, errPage
	}
	if size == 0 && len(b) == 0 {
		return nil, nil
	}
	return d.decompressor.page(codec, b, int(size))
}

// data decodes a data page.
func (d *decoder) data(c *chunkAt, leaf *node, h *pageHead, b []byte) (err error) {
	p := &d.page
	p.entries = int(h.values)
	levels := func(dst []run, n int64, largest int) ([]run, error) {
		if largest == 0 {
			return append(dst[:0], run{0, int32(p.entries)}), nil
		}
		if n < 0 || n > int64(len(b)) {
			return dst, errPage
		}
		of := b[:n]
		b = b[n:]
		return appendRuns(dst[:0], of, levelWidth(largest), p.entries)
	}
	// Version 1 has the levels with the values, each behind its length.
	length := func(largest int) int64 {
		if largest == 0 || len(b) < 4 {
			return -1
		}
		n := binary.LittleEndian.Uint32(b)
		b = b[4:]
		return int64(n)
	}
	if h.kind == pageDataV2 {
		if p.rep, err = levels(p.rep, h.rep, leaf.rep); err == nil {
			p.def, err = levels(p.def, h.def, leaf.def)
		}
		if err == nil {
			b, err = d.unpack(c, h, b)
		}
	} else if b, err = d.unpack(c, h, b); err == nil {
		if p.rep, err = levels(p.rep, length(leaf.rep), leaf.rep); err == nil {
			p.def, err = levels(p.def, length(leaf.def), leaf.def)
		}
	}
	if err != nil {
		return err
	}
	n := 0
	for _, r := range p.def {
		if int(r.value) == leaf.def {
			n += int(r.n)
		}
	}
	p.plain, err = d.values(b, h.encoding, n)
	return err
}

// values decodes n values.
func (d *decoder) values(b []byte, encoding int64, n int) ([]byte, error) {
	if encoding == encodingPlain {
		if len(b) < 8*n {
			return nil, errPage
		}
		return b[:8*n], nil
	}
	d.plain = resize(d.plain, 8*n)
	switch encoding {
	case encodingDelta:
		return d.plain, d.deltaPacked(b, n)
	case encodingRLEDict, encodingDictionary:
		return d.plain, d.lookUp(b, n)
	case encodingSplit:
		if len(b) < 8*n {
			return nil, errPage
		}
		for i := range d.plain {
			d.plain[i] = b[i%8*n+i/8]
		}
		return d.plain, nil
	}
	return nil, fmt.Errorf("values in encoding %d, which is not read", encoding)
}

func (d *decoder) deltaPacked(b []byte, n int) (err error) {
	if n == 0 {
		return nil
	}
	// How many there are stands behind two other numbers; it is not trusted.
	head := thriftReader{b: b}
	head.uvarint()
	head.uvarint()
	if total := head.uvarint(); total != uint64(n) {
		return errPage
	}
	if d.deltas, err = d.ints.DecodeInt64(resize(d.deltas, n)[:0], b); err != nil {
		return err
	}
	for i, v := range d.deltas[:n] {
		binary.LittleEndian.PutUint64(d.plain[8*i:], uint64(v))
	}
	return nil
}

// lookUp decodes indices into the dictionary.
func (d *decoder) lookUp(b []byte, n int) (err error) {
	if n == 0 {
		return nil
	}
	if len(b) == 0 || b[0] > 32 {
		return errPage
	}
	if d.indices, err = appendRuns(d.indices[:0], b[1:], uint(b[0]), n); err != nil {
		return err
	}
	out := d.plain
	for _, r := range d.indices {
		at := 8 * int(r.value)
		if at+8 > len(d.dictionary) {
			return errPage
		}
		for range r.n {
			copy(out, d.dictionary[at:at+8])
			out = out[8:]
		}
	}
	return nil
}

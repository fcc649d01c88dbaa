// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// Close writes what is outstanding and the footer. It does not close what
// the Writer writes to.
func (w *Writer) Close() (Written, error) {
	if w.err == nil {
		w.err = w.close()
	}
	if w.err != nil {
		return Written{}, w.err
	}
	w.err = fmt.Errorf("write Parquet: the file is closed")
	return Written{Ticks: uint64(w.total), Columns: len(w.columns), Groups: len(w.groups),
		Bytes: w.out.n, Dropped: w.dropped}, nil
}

func (w *Writer) close() error {
	if err := w.flush(); err != nil {
		return err
	}
	for i := range w.groups {
		if err := w.needNulls(&w.groups[i]); err != nil {
			return err
		}
	}
	at := w.out.n
	if err := w.footer(); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	end := binary.LittleEndian.AppendUint32(nil, uint32(w.out.n-at))
	if _, err := w.out.Write(append(end, magic...)); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	return nil
}

// footer writes the file's metadata (parquet.thrift, FileMetaData) piece by
// piece: it may be larger than all that was held before.
func (w *Writer) footer() error {
	t := &thrift{}
	push := func(enough int) error {
		if len(t.b) < enough {
			return nil
		}
		_, err := w.out.Write(t.b)
		t.b = t.b[:0]
		return err
	}
	t.i32(1, 2)
	w.schema(t)
	t.i64(3, w.total)
	t.list(4, thriftStruct, len(w.groups))
	for i := range w.groups {
		if err := w.rowGroup(t, i, push); err != nil {
			return err
		}
	}
	meta := w.metadata()
	t.list(5, thriftStruct, len(meta))
	for _, k := range slices.Sorted(maps.Keys(meta)) {
		t.elem()
		t.string(1, k)
		t.string(2, meta[k])
		t.end()
	}
	t.string(6, "rezolus (Go)")
	t.list(7, thriftStruct, len(w.columns))
	for range w.columns { // TYPE_ORDER: minima and maxima are of the logical type
		t.elem()
		t.begin(1)
		t.end()
		t.end()
	}
	t.end()
	return push(0)
}

// Types, repetitions and converted types of parquet.thrift.
const (
	typeInt64       = 2
	typeDouble      = 5
	required        = 0
	optional        = 1
	repeated        = 2
	convertedList   = 3
	convertedMillis = 9
	convertedMicros = 10
	convertedUint   = 14
	convertedInt    = 18
	logicalList     = 3
	logicalTime     = 8
	logicalInteger  = 10
)

func (w *Writer) schema(t *thrift) {
	n := 1
	for _, c := range w.columns {
		if n++; c.typ == histogram {
			n += 2
		}
	}
	t.list(2, thriftStruct, n)
	t.elem()
	t.string(4, "schema")
	t.i32(5, int32(len(w.columns)))
	t.end()
	for _, c := range w.columns {
		repetition := int32(optional)
		if c.required {
			repetition = required
		}
		if c.typ != histogram {
			leaf(t, c.name, c.typ, repetition)
			continue
		}
		t.elem()
		t.i32(3, repetition)
		t.string(4, c.name)
		t.i32(5, 1)
		t.i32(6, convertedList)
		t.begin(10)
		t.begin(logicalList)
		t.end()
		t.end()
		t.end()
		t.elem()
		t.i32(3, repeated)
		t.string(4, "list")
		t.i32(5, 1)
		t.end()
		leaf(t, "element", uint64s, required)
	}
}

// leaf is the schema of a column of values.
func leaf(t *thrift, name string, typ physical, repetition int32) {
	t.elem()
	defer t.end()
	if typ == float64s {
		t.i32(1, typeDouble)
		t.i32(3, repetition)
		t.string(4, name)
		return
	}
	t.i32(1, typeInt64)
	t.i32(3, repetition)
	t.string(4, name)
	switch typ {
	case instants:
		t.begin(10)
		t.begin(logicalTime)
		t.yes(1)
		t.begin(2)
		t.begin(3) // nanoseconds
		t.end()
		t.end()
		t.end()
		t.end()
	case int64s, uint64s, histogram:
		converted, signed := int32(convertedInt), t.yes
		if typ != int64s {
			converted, signed = convertedUint, t.no
		}
		t.i32(6, converted)
		t.begin(10)
		t.begin(logicalInteger)
		t.i8(1, 64)
		signed(2)
		t.end()
		t.end()
	}
}

func (w *Writer) rowGroup(t *thrift, number int, push func(int) error) error {
	g := &w.groups[number]
	t.elem()
	t.list(1, thriftStruct, len(w.columns))
	raw, size := int64(0), int64(0)
	err := g.each(len(w.columns), func(i int, k *chunk) error {
		c := w.columns[i]
		delta := k != nil && c.typ != histogram && c.typ != float64s
		if k == nil {
			nulls := w.nulls[nullKey{c.typ == histogram, g.rows}]
			k = &nulls
		}
		raw, size = raw+k.raw, size+k.size
		columnChunk(t, c, k, g, delta, i == 0)
		return push(1 << 20)
	})
	if err != nil {
		return err
	}
	t.i64(2, raw)
	t.i64(3, int64(g.rows))
	t.i64(5, g.offset)
	t.i64(6, size)
	t.end()
	return nil
}

// columnChunk writes what is said of a chunk. One in delta encoding may have
// pages of nothing but nulls, which are plain.
func columnChunk(t *thrift, c *column, k *chunk, g *group, delta, times bool) {
	t.elem()
	t.i64(2, k.offset)
	t.begin(3)
	typ := int32(typeInt64)
	if c.typ == float64s {
		typ = typeDouble
	}
	t.i32(1, typ)
	encodings := []int64{encodingPlain, encodingRLE}
	if delta {
		encodings = append(encodings, encodingDelta)
	}
	t.list(2, thriftI32, len(encodings))
	for _, e := range encodings {
		t.b = binary.AppendVarint(t.b, e)
	}
	path := []string{c.name}
	if c.typ == histogram {
		path = append(path, "list", "element")
	}
	t.list(3, thriftBinary, len(path))
	for _, p := range path {
		t.text(p)
	}
	t.i32(4, codecZstd)
	t.i64(5, k.values)
	t.i64(6, k.raw)
	t.i64(7, k.size)
	t.i64(9, k.offset)
	if times { // so that readers skip the groups they do not need
		t.begin(12)
		t.i64(3, 0)
		t.string(5, string(binary.LittleEndian.AppendUint64(nil, uint64(g.max))))
		t.string(6, string(binary.LittleEndian.AppendUint64(nil, uint64(g.min))))
		t.end()
	}
	t.end()
	t.end()
}

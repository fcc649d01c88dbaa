// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
)

// arrowKey is the key under which Arrow's libraries keep their own schema in
// a Parquet file: the only place where columns have metadata. It is an
// encapsulated IPC message in base64
// (https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format).
const arrowKey = "ARROW:schema"

// Members of the unions and enums of Arrow's format/Schema.fbs and
// Message.fbs that are written here.
const (
	arrowV5        = 4
	arrowSchema    = 1
	arrowInt       = 2
	arrowFloat     = 3
	arrowTimestamp = 10
	arrowList      = 12
	arrowDouble    = 2
	arrowNano      = 3
)

// arrowField is a column as Arrow sees it.
type arrowField struct {
	name     string
	required bool
	typ      physical
	meta     map[string]string
}

// physical says how the values of a column are stored.
type physical uint8

const (
	uint64s   physical = iota // UInt64
	int64s                    // Int64
	float64s                  // Float64
	instants                  // Timestamp(Nanosecond, UTC)
	histogram                 // List<UInt64>
)

// encodeArrow encodes the schema of the columns, as the value of arrowKey.
func encodeArrow(fields []arrowField) string {
	f := flatbuffer{b: make([]byte, 4, 256*len(fields)+256)}
	root := f.place(0, slot{2, 4, 0}, slot{0, 2, arrowV5}, slot{1, 1, arrowSchema})
	schema := f.place(root[0], slot{1, 4, 0})
	vector := f.vector(schema[0], len(fields))
	for i := range fields {
		f.field(vector[i], &fields[i])
	}
	f.align(8)
	message := binary.LittleEndian.AppendUint32([]byte{0xff, 0xff, 0xff, 0xff}, uint32(len(f.b)))
	return base64.StdEncoding.EncodeToString(append(message, f.b...))
}

// place writes a table and lets the offset at from lead to it.
func (f *flatbuffer) place(from int, slots ...slot) []int {
	where := f.table(slots...)
	to := len(f.b) - 4
	if len(slots) > 0 {
		to = where[0] - 4
	}
	f.lead(from, to)
	return where
}

func (f *flatbuffer) field(from int, c *arrowField) {
	kind, nullable := uint32(arrowInt), uint32(1)
	switch c.typ {
	case float64s:
		kind = arrowFloat
	case instants:
		kind = arrowTimestamp
	case histogram:
		kind = arrowList
	}
	if c.required {
		nullable = 0
	}
	slots := []slot{{0, 4, 0}, {3, 4, 0}, {5, 4, 0}, {6, 4, 0}, {1, 1, nullable}, {2, 1, kind}}
	where := f.place(from, slots...)
	f.string(where[0], c.name)
	switch c.typ {
	case uint64s:
		f.place(where[1], slot{0, 4, 64})
	case int64s:
		f.place(where[1], slot{0, 4, 64}, slot{1, 1, 1})
	case float64s:
		f.place(where[1], slot{0, 2, arrowDouble})
	case instants:
		zone := f.place(where[1], slot{1, 4, 0}, slot{0, 2, arrowNano})
		f.string(zone[0], "UTC")
	case histogram:
		f.place(where[1])
	}
	if c.typ == histogram {
		child := f.vector(where[2], 1)
		f.field(child[0], &arrowField{name: "element", required: true, typ: uint64s})
	} else {
		f.vector(where[2], 0)
	}
	keys := slices.Sorted(maps.Keys(c.meta))
	pairs := f.vector(where[3], len(keys))
	for i, k := range keys {
		pair := f.place(pairs[i], slot{0, 4, 0}, slot{1, 4, 0})
		f.string(pair[0], k)
		f.string(pair[1], c.meta[k])
	}
}

// arrowColumn is what is read of a column of an Arrow schema.
type arrowColumn struct {
	name string
	meta map[string]string
}

// decodeArrow decodes the value of arrowKey. It is nil when the value is not
// an encoded schema: a file without one is a file all the same.
func decodeArrow(value string) []arrowColumn {
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
	if err != nil || len(b) < 8 {
		return nil
	}
	// Before version 1 of the format there was no continuation marker.
	if binary.LittleEndian.Uint32(b) == 0xffffffff {
		b = b[4:]
	}
	b = b[4:]
	root, ok := follow(b, 0)
	if !ok {
		return nil
	}
	schema, ok := fbTable{b, root}.table(2)
	if !ok || (fbTable{b, root}).byte(1) != arrowSchema {
		return nil
	}
	// A table is at least 12 bytes, so no honest schema has more of them than
	// this; a hostile one may let many vectors lead to the same tables.
	budget := len(b) / 12
	var all []arrowColumn
	schema.tables(1, func(t fbTable) {
		if budget--; budget < 0 {
			return
		}
		c := arrowColumn{name: t.string(0), meta: map[string]string{}}
		t.tables(6, func(kv fbTable) {
			if budget--; budget >= 0 {
				c.meta[kv.string(0)] = kv.string(1)
			}
		})
		all = append(all, c)
	})
	if budget < 0 {
		return nil
	}
	return all
}

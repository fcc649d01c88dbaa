// SPDX-License-Identifier: Apache-2.0

package parquet

import "encoding/binary"

// Types of the fields of Thrift's compact protocol, in which Parquet writes
// its headers and its footer
// (thrift/doc/specs/thrift-compact-protocol.md).
const (
	thriftTrue   = 1
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftBinary = 8
	thriftList   = 9
	thriftStruct = 12
)

// thrift appends structs in the compact protocol. Fields of a struct must be
// given in ascending order.
type thrift struct {
	b    []byte
	last [8]int8 // the last field of each struct that is open
	deep int
}

func (t *thrift) field(id int8, typ byte) {
	t.b = append(t.b, byte(id-t.last[t.deep])<<4|typ)
	t.last[t.deep] = id
}

func (t *thrift) i32(id int8, v int32) {
	t.field(id, thriftI32)
	t.b = binary.AppendVarint(t.b, int64(v))
}

func (t *thrift) i64(id int8, v int64) {
	t.field(id, thriftI64)
	t.b = binary.AppendVarint(t.b, v)
}

func (t *thrift) yes(id int8) { t.field(id, thriftTrue) }

// no is a false boolean: its value lies in its type.
func (t *thrift) no(id int8) { t.field(id, thriftTrue+1) }

func (t *thrift) i8(id int8, v byte) {
	t.field(id, 3)
	t.b = append(t.b, v)
}

func (t *thrift) string(id int8, s string) {
	t.field(id, thriftBinary)
	t.text(s)
}

// text is a string that is an element of a list.
func (t *thrift) text(s string) {
	t.b = binary.AppendUvarint(t.b, uint64(len(s)))
	t.b = append(t.b, s...)
}

func (t *thrift) list(id int8, elem byte, n int) {
	t.field(id, thriftList)
	if n < 15 {
		t.b = append(t.b, byte(n)<<4|elem)
		return
	}
	t.b = append(t.b, 0xf0|elem)
	t.b = binary.AppendUvarint(t.b, uint64(n))
}

// begin opens a struct that is a field.
func (t *thrift) begin(id int8) {
	t.field(id, thriftStruct)
	t.elem()
}

// elem opens a struct that is an element of a list.
func (t *thrift) elem() {
	t.deep++
	t.last[t.deep] = 0
}

// end closes a struct.
func (t *thrift) end() {
	t.b = append(t.b, 0)
	if t.deep > 0 {
		t.deep--
	}
}

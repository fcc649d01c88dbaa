// SPDX-License-Identifier: Apache-2.0

package parquet

import "encoding/binary"

// thriftReader reads the compact protocol. After the first failure bad is set
// and every value is zero.
type thriftReader struct {
	b    []byte
	at   int
	deep int
	bad  bool
}

// maxDepth bounds how deep structs and lists may be within each other.
const maxDepth = 32

func (t *thriftReader) fail() { t.at, t.bad = len(t.b), true }

func (t *thriftReader) byte() byte {
	if t.at >= len(t.b) {
		t.fail()
		return 0
	}
	t.at++
	return t.b[t.at-1]
}

func (t *thriftReader) uvarint() uint64 {
	v, n := binary.Uvarint(t.b[t.at:])
	if n <= 0 {
		t.fail()
		return 0
	}
	t.at += n
	return v
}

// int is an integer of any size above a byte.
func (t *thriftReader) int() int64 { return int64(unzigzag(t.uvarint())) }

// binary is a string, valid as long as what is read from.
func (t *thriftReader) binary() []byte {
	n := t.uvarint()
	if n > uint64(len(t.b)-t.at) {
		t.fail()
		return nil
	}
	t.at += int(n)
	return t.b[t.at-int(n) : t.at]
}

func (t *thriftReader) string() string { return string(t.binary()) }

// fields gives the fields of a struct, up to the end of it, to f, which reads
// the value or reports that it did not.
func (t *thriftReader) fields(f func(id int, typ byte) bool) {
	if t.deep++; t.deep > maxDepth {
		t.fail()
	}
	for id := int64(0); !t.bad; {
		h := t.byte()
		if h == 0 {
			break
		}
		if delta := int64(h >> 4); delta > 0 {
			id += delta
		} else {
			id = t.int()
		}
		if !t.bad && !f(int(id), h&15) {
			t.skip(h & 15)
		}
	}
	t.deep--
}

// list is the front of a list: how many elements follow, and of which type.
// No element takes less than a byte.
func (t *thriftReader) list() (n int, elem byte) {
	h := t.byte()
	n = int(h >> 4)
	if n == 15 {
		n = int(min(t.uvarint(), uint64(len(t.b))+1))
	}
	if n > len(t.b)-t.at {
		t.fail()
		return 0, 0
	}
	return n, h & 15
}

// skip passes over the value of a field.
func (t *thriftReader) skip(typ byte) {
	switch typ {
	case thriftTrue, thriftTrue + 1:
	case thriftI16, thriftI32, thriftI64:
		t.uvarint()
	case thriftBinary:
		t.binary()
	case thriftList, thriftList + 1:
		n, elem := t.list()
		if t.deep++; t.deep > maxDepth {
			t.fail()
		}
		for ; n > 0 && !t.bad; n-- {
			if elem <= thriftTrue+1 {
				t.byte()
				continue
			}
			t.skip(elem)
		}
		t.deep--
	case thriftStruct:
		t.fields(func(int, byte) bool { return false })
	case 3: // a byte
		t.byte()
	default: // maps and doubles, which Parquet's structs do not have
		t.fail()
	}
}

// SPDX-License-Identifier: Apache-2.0

package parquet

import "encoding/binary"

// flatbuffer builds a FlatBuffer (https://flatbuffers.dev/internals/) from
// the front: a table is written with room for its offsets, and what they
// lead to follows.
type flatbuffer struct{ b []byte }

// slot is a field of a table. One of size 4 that is an offset is patched by
// lead once its target is about to be written.
type slot struct {
	id, size int
	value    uint32
}

func (f *flatbuffer) align(n int) {
	for len(f.b)%n != 0 {
		f.b = append(f.b, 0)
	}
}

// table writes a table and returns where in the buffer each of its slots
// is. The slots must be in descending order of size.
func (f *flatbuffer) table(slots ...slot) []int {
	fields := 0
	for _, s := range slots {
		fields = max(fields, s.id+1)
	}
	vtable := 4 + 2*fields
	f.align(4)
	if vtable%4 != 0 {
		f.b = append(f.b, 0, 0) // so that the table, which follows, is aligned
	}
	start := len(f.b)
	f.b = append(f.b, make([]byte, vtable)...)
	at := len(f.b)
	f.b = binary.LittleEndian.AppendUint32(f.b, uint32(vtable))
	where := make([]int, len(slots))
	for i, s := range slots {
		where[i] = len(f.b)
		binary.LittleEndian.PutUint16(f.b[start+4+2*s.id:], uint16(len(f.b)-at))
		for k := range s.size {
			f.b = append(f.b, byte(s.value>>(8*k)))
		}
	}
	binary.LittleEndian.PutUint16(f.b[start:], uint16(vtable))
	binary.LittleEndian.PutUint16(f.b[start+2:], uint16(len(f.b)-at))
	return where
}

// lead lets the offset at a position lead to a table of which the position
// of the first slot, or its end, is not known yet: call it right after the
// table was written, with where the table begins.
func (f *flatbuffer) lead(from, to int) {
	binary.LittleEndian.PutUint32(f.b[from:], uint32(to-from))
}

// string writes a string and lets the offset at from lead to it.
func (f *flatbuffer) string(from int, s string) {
	f.align(4)
	f.lead(from, len(f.b))
	f.b = binary.LittleEndian.AppendUint32(f.b, uint32(len(s)))
	f.b = append(append(f.b, s...), 0)
}

// vector writes a vector of n offsets, lets the offset at from lead to it,
// and returns where the offsets are.
func (f *flatbuffer) vector(from, n int) []int {
	f.align(4)
	f.lead(from, len(f.b))
	f.b = binary.LittleEndian.AppendUint32(f.b, uint32(n))
	where := make([]int, n)
	for i := range where {
		where[i] = len(f.b)
		f.b = append(f.b, 0, 0, 0, 0)
	}
	return where
}

// fbTable reads a table of a FlatBuffer. Whatever leads outside the bytes
// reads as absent.
type fbTable struct {
	b  []byte
	at int
}

func u32At(b []byte, at int) (uint32, bool) {
	if at < 0 || at > len(b)-4 {
		return 0, false
	}
	return binary.LittleEndian.Uint32(b[at:]), true
}

func u16At(b []byte, at int) (int, bool) {
	if at < 0 || at > len(b)-2 {
		return 0, false
	}
	return int(binary.LittleEndian.Uint16(b[at:])), true
}

// follow is where the offset at a position leads to.
func follow(b []byte, at int) (int, bool) {
	off, ok := u32At(b, at)
	if !ok || off == 0 || int64(at)+int64(off) > int64(len(b))-4 {
		return 0, false
	}
	return at + int(off), true
}

// field is where a field of the table is.
func (t fbTable) field(id int) (int, bool) {
	back, ok := u32At(t.b, t.at)
	if !ok {
		return 0, false
	}
	vtable := t.at - int(int32(back))
	size, ok := u16At(t.b, vtable)
	if !ok || 4+2*id+2 > size {
		return 0, false
	}
	off, ok := u16At(t.b, vtable+4+2*id)
	if !ok || off == 0 {
		return 0, false
	}
	return t.at + off, true
}

func (t fbTable) byte(id int) byte {
	at, ok := t.field(id)
	if !ok || at < 0 || at >= len(t.b) {
		return 0
	}
	return t.b[at]
}

func (t fbTable) table(id int) (fbTable, bool) {
	at, ok := t.field(id)
	if ok {
		at, ok = follow(t.b, at)
	}
	return fbTable{t.b, at}, ok
}

func (t fbTable) string(id int) string {
	at, ok := t.field(id)
	if ok {
		at, ok = follow(t.b, at)
	}
	n, enough := u32At(t.b, at)
	if !ok || !enough || int64(n) > int64(len(t.b)-at-4) {
		return ""
	}
	return string(t.b[at+4 : at+4+int(n)])
}

// tables are the tables that a vector leads to.
func (t fbTable) tables(id int, yield func(fbTable)) {
	at, ok := t.field(id)
	if ok {
		at, ok = follow(t.b, at)
	}
	n, enough := u32At(t.b, at)
	if !ok || !enough || int64(n)*4 > int64(len(t.b)-at-4) {
		return
	}
	for i := range int(n) {
		if to, ok := follow(t.b, at+4+4*i); ok {
			yield(fbTable{t.b, to})
		}
	}
}

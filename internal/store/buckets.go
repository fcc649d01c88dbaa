// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"fmt"
)

// How the steps of a histogram's bucket are coded.
const (
	bucketConst  = iota // there are none
	bucketSparse        // like formSparse, and none is negative
	bucketSigned        // like formSparse
	bucketJoint         // together with others, sample by sample
)

// bucketTrial is the number of steps by which the coding of a histogram's
// column is chosen.
const bucketTrial = 256

// appendBuckets appends the column of a histogram: the buckets that were
// ever used with what they held at first, and their steps. stepsOf gives the
// steps of a bucket. Whether a tree is better depends on what came: where the
// events of a sample come in clumps, it is not.
func appendBuckets(dst []byte, first []uint64, stepsOf func(index int) steps) []byte {
	before := func(i int) steps { return stepsOf(i).before(bucketTrial) }
	at := len(dst)
	dst, ok := appendTreeColumn(dst, first, before)
	if !ok {
		return appendListed(dst, first, stepsOf)
	}
	tree := len(dst)
	dst = appendListed(dst, first, before)
	smaller, listed := tree-at <= len(dst)-tree, dst[tree:]
	switch {
	case stepsOf(0).n <= bucketTrial && smaller:
		return dst[:tree]
	case stepsOf(0).n <= bucketTrial:
		return append(dst[:at], listed...)
	case smaller:
		if dst, ok = appendTreeColumn(dst[:at], first, stepsOf); ok {
			return dst
		}
	}
	return appendListed(dst[:at], first, stepsOf)
}

// appendListed appends a column that lists the buckets with their codings: the
// steps of those that changed now and then, and of the ones that changed
// often.
func appendListed(dst []byte, first []uint64, stepsOf func(index int) steps) []byte {
	used := 0
	for i, v := range first {
		if v != 0 || len(stepsOf(i).at) > 0 {
			used++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(used))
	var w bitWriter
	var joint []steps
	c := bucketCoder()
	next := 0
	for i, v := range first {
		s := stepsOf(i)
		if v == 0 && len(s.at) == 0 {
			continue
		}
		form, unsigned := bucketConst, s.unsigned()
		switch {
		case len(s.at) == 0:
		case s.joint(unsigned):
			form, joint = bucketJoint, append(joint, s)
		default:
			if form = bucketSigned; unsigned {
				form = bucketSparse
			}
			c.writeSparse(&w, &s, 1, unsigned)
		}
		dst = binary.AppendUvarint(dst, uint64(i-next)<<2|uint64(form))
		dst = binary.AppendUvarint(dst, v)
		next = i + 1
	}
	bits := w.finish()
	dst = append(binary.AppendUvarint(dst, uint64(len(bits))), bits...)
	if len(joint) > 0 {
		dst = appendJoint(dst, joint[0].n, joint)
	}
	return dst
}

// bucketCoder is the state in which a histogram's column begins.
func bucketCoder() coder { return startAt(4, 1) }

// bucket is a bucket of a histogram's column, as it is listed.
type bucket struct{ index, form int }

// readBuckets calls f for every step of a histogram's column; what a bucket
// held at first is its step to value 0. The steps of one bucket come in
// order.
func readBuckets(b []byte, buckets, n int, f func(index, i int, d uint64)) error {
	c := cursor{b: b}
	used := c.uvarint()
	if used == uint64(buckets)+1 {
		return readTreeColumn(&c, buckets, n, f)
	}
	if used > uint64(buckets) {
		return errBuckets
	}
	all, joint := make([]bucket, used), make([]int, 0, used)
	next := uint64(0)
	for i := range all {
		head := c.uvarint()
		next += head >> 2
		if next >= uint64(buckets) {
			return errBuckets
		}
		all[i] = bucket{int(next), int(head & 3)}
		if all[i].form == bucketJoint {
			joint = append(joint, int(next))
		}
		if v := c.uvarint(); v != 0 {
			f(int(next), 0, v)
		}
		next++
	}
	r, state := bitReader{b: c.bytes(c.uvarint())}, bucketCoder()
	if c.bad {
		return errBuckets
	}
	for _, k := range all {
		if k.form == bucketSparse || k.form == bucketSigned {
			state.read(&r, formSparse, n-1, k.form == bucketSparse, func(i int, d uint64) { f(k.index, i+1, d) })
		}
	}
	if r.bad || len(joint) > 0 && !readJoint(c.b, n-1, len(joint), func(k, i int, d uint64) { f(joint[k], i+1, d) }) {
		return errBuckets
	}
	return nil
}

var errBuckets = fmt.Errorf("%w: buckets of a column", ErrCorrupt)

// appendTreeColumn appends a column whose buckets are coded in a tree, if they
// can be: if some change, and none falls. It begins with one more than the
// number of buckets. Else it appends nothing.
func appendTreeColumn(dst []byte, first []uint64, stepsOf func(index int) steps) ([]byte, bool) {
	used := 0
	var all []steps
	for i, v := range first {
		s := stepsOf(i)
		if !s.tree() {
			return dst, false
		}
		if len(s.at) > 0 {
			all = append(all, s)
		}
		if v != 0 || len(s.at) > 0 {
			used++
		}
	}
	if len(all) == 0 {
		return dst, false
	}
	dst = binary.AppendUvarint(dst, uint64(len(first)+1))
	dst = binary.AppendUvarint(dst, uint64(used))
	next := 0
	for i, v := range first {
		changes := uint64(min(len(stepsOf(i).at), 1))
		if v == 0 && changes == 0 {
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(i-next)<<1|changes)
		dst = binary.AppendUvarint(dst, v)
		next = i + 1
	}
	return appendTree(dst, all[0].n, all), true
}

// readTreeColumn reads what is behind the number that says that it is one.
func readTreeColumn(c *cursor, buckets, n int, f func(index, i int, d uint64)) error {
	used := c.uvarint()
	if used > uint64(buckets) {
		return errBuckets
	}
	var changing []int
	next := uint64(0)
	for range used {
		head := c.uvarint()
		if next += head >> 1; next >= uint64(buckets) {
			return errBuckets
		}
		if v := c.uvarint(); v != 0 {
			f(int(next), 0, v)
		}
		if head&1 != 0 {
			changing = append(changing, int(next))
		}
		next++
	}
	if c.bad || len(changing) == 0 || !readTree(c.b, n-1, len(changing), func(k, i int, d uint64) { f(changing[k], i+1, d) }) {
		return errBuckets
	}
	return nil
}

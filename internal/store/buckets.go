// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"fmt"
)

// bucket is one bucket of a histogram's column, as it is listed before the
// bits of its steps.
type bucket struct {
	index    int
	form     int // formConst, formSparse, formDelta or formSmooth
	unsigned bool
	first    uint64
}

// appendBuckets appends the column of a histogram: the buckets that were
// ever used with what they held at first, and then the steps of those that
// changed. stepsOf gives the steps of a bucket.
func appendBuckets(dst []byte, first []uint64, stepsOf func(index int) steps) []byte {
	used := 0
	for i, v := range first {
		if v != 0 || len(stepsOf(i).at) > 0 {
			used++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(used))
	var w bitWriter
	c := bucketCoder()
	next := 0
	for i, v := range first {
		s := stepsOf(i)
		if v == 0 && len(s.at) == 0 {
			continue
		}
		form, unsigned := formConst, s.unsigned()
		if len(s.at) > 0 {
			form = formSparse
			if s.dense() {
				form, _ = c.best(&s, 1, unsigned, formSparse, formDelta, formSmooth)
			}
			c.write(&w, form, &s, 1, unsigned)
		}
		head := uint64(i-next)<<3 | uint64(form)<<1
		if unsigned {
			head |= 1
		}
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, head), v)
		next = i + 1
	}
	return append(dst, w.finish()...)
}

// bucketCoder is the state in which a histogram's column begins.
func bucketCoder() coder { return startAt(4, 1) }

// readBuckets calls f for every step of a histogram's column, bucket by
// bucket; what a bucket held at first is its step to value 0.
func readBuckets(b []byte, buckets, n int, f func(index, i int, d uint64)) error {
	c := cursor{b: b}
	used := c.uvarint()
	if used > uint64(buckets) {
		return fmt.Errorf("%w: buckets of a column", ErrCorrupt)
	}
	all := make([]bucket, used)
	next := uint64(0)
	for i := range all {
		head := c.uvarint()
		next += head >> 3
		if next >= uint64(buckets) {
			return fmt.Errorf("%w: buckets of a column", ErrCorrupt)
		}
		all[i] = bucket{int(next), int(head >> 1 & 3), head&1 != 0, c.uvarint()}
		next++
	}
	r, state := bitReader{b: c.b, bad: c.bad}, bucketCoder()
	for _, k := range all {
		if k.first != 0 {
			f(k.index, 0, k.first)
		}
		if k.form != formConst {
			state.read(&r, k.form, n-1, k.unsigned, func(i int, d uint64) { f(k.index, i+1, d) })
		}
	}
	if r.bad {
		return fmt.Errorf("%w: buckets of a column", ErrCorrupt)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package store

import "math/bits"

// The buckets of a histogram that change often are coded together, sample by
// sample: when much happens in one, much happens in all. Each number is
// coded by how many were to be expected: the bucket's own mean of late, times
// how much more than expected the sample has brought in the buckets before.
//
// All is integer arithmetic, and the same on both sides.

const (
	jointScale = 64  // of means
	jointPrior = 128 // how much of an expectation a sample must bring to be believed
	classes    = 64  // of expectations: two an octave
	few        = 4   // numbers up to this are counted out
	manyClass  = 22  // from this class on a number is coded as its distance from what is expected: 16 and more
	maxJoint   = 1 << 32
)

// jointModel is what is known of a histogram so far.
type jointModel struct {
	mean  []uint64 // of each bucket, scaled
	some  [classes]prob
	more  [classes][few]prob
	class [classes][64]prob // of the logarithm of larger numbers
	sign  [classes]prob

	sum, due uint64 // of this sample: what it brought, and what was expected of that
}

func newJointModel(buckets int) *jointModel {
	m := &jointModel{mean: make([]uint64, buckets)}
	for i := range m.mean {
		m.mean[i] = jointScale / 4
	}
	for c := range classes {
		// The middle of what the class expects.
		l := uint64(1)
		if c >= 2 {
			l = (2 + uint64(c&1)) << (c / 2) / 4
		}
		m.some[c].one = ratio(l, l+jointScale)
		for j := range few {
			m.more[c][j].one = ratio(2*l, 2*l+jointScale*(2+uint64(j)))
		}
		for i := range m.class[c] {
			m.class[c][i].one = 1 << 15
		}
		m.sign[c].one = 1 << 15
	}
	return m
}

// ratio is a/b as a probability, not too sure of itself.
func ratio(a, b uint64) uint16 {
	return uint16(min(max(a<<16/b, 1<<10), 1<<16-1<<10))
}

// begin begins a sample.
func (m *jointModel) begin() { m.sum, m.due = 0, 0 }

// expect is what is expected of bucket i, scaled, and the class of that.
func (m *jointModel) expect(i int) (expected uint64, class int) {
	e := m.mean[i] * (m.sum*jointScale + jointPrior) / (m.due + jointPrior)
	n := bits.Len64(e)
	if n < 2 {
		return e, n
	}
	return e, min(2*n+int(e>>(n-2)&1), classes-1)
}

// take takes in what bucket i brought.
func (m *jointModel) take(i int, v uint64) {
	m.sum += min(v, 64)
	m.due += min(m.mean[i], 64*jointScale)
	m.mean[i] += uint64(int64(min(v, 1<<20)*jointScale-m.mean[i]) >> 3)
	if m.mean[i] == 0 {
		m.mean[i] = 1
	}
}

// number codes v, from 0, by its logarithm and its other bits.
func (m *jointModel) encodeNumber(e *rangeEncoder, class int, v uint64) {
	n := bits.Len64(v + 1)
	for i := 1; i < n; i++ {
		e.bit(&m.class[class][i], true)
	}
	e.bit(&m.class[class][n], false)
	e.plain(v+1, n-1)
}

func (m *jointModel) decodeNumber(d *rangeDecoder, class int) uint64 {
	n := 1
	for n < 63 && d.bit(&m.class[class][n]) {
		n++
	}
	return (1<<(n-1) | d.plain(n-1)) - 1
}

// encode codes what bucket i brought.
func (m *jointModel) encode(e *rangeEncoder, i int, v uint64) {
	expected, class := m.expect(i)
	defer m.take(i, v)
	if class >= manyClass {
		r := v - expected/jointScale
		e.bit(&m.sign[class], int64(r) < 0)
		if int64(r) < 0 {
			r = ^r
		}
		m.encodeNumber(e, class, r)
		return
	}
	e.bit(&m.some[class], v > 0)
	for j := range uint64(few) {
		if v == j {
			return
		}
		e.bit(&m.more[class][j], v > j+1)
	}
	if v > few {
		m.encodeNumber(e, class, v-few-1)
	}
}

// decode is the other way round.
func (m *jointModel) decode(d *rangeDecoder, i int) (v uint64) {
	expected, class := m.expect(i)
	if class >= manyClass {
		negative := d.bit(&m.sign[class])
		if v = m.decodeNumber(d, class); negative {
			v = ^v
		}
		v += expected / jointScale
	} else if d.bit(&m.some[class]) {
		v = 1
		for v <= few && d.bit(&m.more[class][v-1]) {
			v++
		}
		if v > few {
			v += m.decodeNumber(d, class)
		}
	}
	m.take(i, v)
	return v
}

// joint reports whether a bucket is to be coded with others: it changes in
// one sample of 8, and only grows.
func (s *steps) joint(unsigned bool) bool {
	if !unsigned || 8*len(s.at) < s.n || len(s.at) == 0 {
		return false
	}
	for _, d := range s.by {
		if d >= maxJoint {
			return false
		}
	}
	return true
}

// appendJoint appends the steps of buckets that are coded together.
func appendJoint(dst []byte, n int, all []steps) []byte {
	m, e := newJointModel(len(all)), newRangeEncoder(dst)
	next := make([]int, len(all))
	for i := range n {
		m.begin()
		for k := range all {
			v := uint64(0)
			if s := &all[k]; next[k] < len(s.at) && int(s.at[next[k]]) == i {
				v = s.by[next[k]]
				next[k]++
			}
			m.encode(&e, k, v)
		}
	}
	return e.finish()
}

// readJoint calls f for every step that is not zero, of the k-th bucket.
func readJoint(b []byte, n, buckets int, f func(k, i int, d uint64)) bool {
	m, d := newJointModel(buckets), newRangeDecoder(b)
	for i := range n {
		m.begin()
		for k := range buckets {
			if v := m.decode(&d, k); v != 0 {
				f(k, i, v)
			}
		}
		if d.bad() {
			return false
		}
	}
	return true
}

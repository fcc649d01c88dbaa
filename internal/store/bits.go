// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"math/bits"
)

// bitWriter appends bits to bytes, the lowest bit of each first. A dry one
// only counts them.
type bitWriter struct {
	b    []byte
	acc  uint64
	n    uint // bits in acc
	dry  bool
	size uint // bits counted, when dry
}

// put appends the low n bits of v, n up to 64.
func (w *bitWriter) put(v uint64, n uint) {
	if w.dry {
		w.size += n
		return
	}
	if n > 32 {
		w.put(v&(1<<32-1), 32)
		v, n = v>>32, n-32
	}
	w.acc |= v << w.n
	if w.n += n; w.n >= 32 {
		w.b = binary.LittleEndian.AppendUint32(w.b, uint32(w.acc))
		w.acc >>= 32
		w.n -= 32
	}
}

// finish fills the last byte with zeros and returns all bytes.
func (w *bitWriter) finish() []byte {
	for w.n > 0 {
		w.b = append(w.b, byte(w.acc))
		w.acc >>= 8
		w.n -= min(w.n, 8)
	}
	return w.b
}

// bitReader takes bits off the front of b. Once there are too few it is bad
// and gives zeros.
type bitReader struct {
	b   []byte
	acc uint64 // what is above n bits is the beginning of b, or zero
	n   uint
	bad bool
}

// fill makes 56 bits or more ready, as far as there are any.
func (r *bitReader) fill() {
	if len(r.b) >= 8 {
		r.acc |= binary.LittleEndian.Uint64(r.b) << r.n
		k := (63 - r.n) >> 3
		r.b = r.b[k:]
		r.n += k << 3
		return
	}
	for r.n <= 56 && len(r.b) > 0 {
		r.acc |= uint64(r.b[0]) << r.n
		r.b = r.b[1:]
		r.n += 8
	}
}

// drop takes n bits that were looked at.
func (r *bitReader) drop(n uint) {
	if n > r.n {
		*r = bitReader{bad: true}
		return
	}
	r.acc >>= n
	r.n -= n
}

// get takes n bits, n up to 64.
func (r *bitReader) get(n uint) uint64 {
	if n > 32 {
		low := r.get(32)
		return low | r.get(n-32)<<32
	}
	if r.n < n {
		r.fill()
	}
	v := r.acc & (1<<n - 1)
	r.drop(n)
	return v
}

// adapt is the state of an adaptive Rice code: 16 times the mean of the
// numbers it has coded lately. Numbers that are spread geometrically around
// a mean that drifts cost about 0.05 bits more than they must.
type adapt struct{ mean uint64 }

// escape is the number of ones after which a number stands in plain. It
// bounds what a number that is far off can cost.
const escape = 20

// k is the number of low bits that are written as they are: the mean times
// the natural logarithm of 2, rounded up to a power of two.
func (a *adapt) k() uint {
	return uint(bits.Len64((a.mean - a.mean>>2 - a.mean>>4) >> 4))
}

func (a *adapt) take(v uint64) { a.mean += min(v, 1<<56) - a.mean>>4 }

// rice appends v: v>>k ones, a zero, and the low k bits.
func (w *bitWriter) rice(a *adapt, v uint64) {
	k := a.k()
	a.take(v)
	q := v >> k
	switch {
	case q >= escape:
		n := uint(max(1, bits.Len64(v)))
		w.put(1<<escape-1, escape)
		w.put(uint64(n-1), 6)
		w.put(v, n)
	case w.dry:
		w.size += uint(q) + 1 + k
	default:
		w.put(1<<q-1, uint(q)+1)
		w.put(v&(1<<k-1), k)
	}
}

// rice takes a number.
func (r *bitReader) rice(a *adapt) uint64 {
	if r.n < escape+1 {
		r.fill()
	}
	k := a.k()
	q := uint(bits.TrailingZeros64(^r.acc))
	var v uint64
	if q < escape {
		r.drop(q + 1)
		v = uint64(q)<<k | r.get(k)
	} else {
		r.drop(escape)
		v = r.get(uint(r.get(6)) + 1)
	}
	a.take(v)
	return v
}

// zigzag maps small numbers of either sign to small ones without.
func zigzag(v uint64) uint64   { return v<<1 ^ uint64(int64(v)>>63) }
func unzigzag(v uint64) uint64 { return v>>1 ^ -(v & 1) }

// SPDX-License-Identifier: Apache-2.0

// Package hist is the H2 histogram: buckets that are linear within each
// power of two.
//
// A histogram of grouping power g counts every value below 2^(g+1) exactly
// and splits each octave above into 2^g equal buckets, so that a bucket is
// never wider than 2^-g of its lower bound. The whole of uint64 is covered
// by (65-g)*2^g buckets; nothing saturates and nothing is out of range.
//
// A histogram is a plain []uint64 of Buckets(g) words. The kernel side, in
// probes/include/hist.bpf.h, computes the same indices.
//
// Native histograms, of Prometheus, have no fixed set of buckets: Slot names
// theirs.
//
// This package knows only arithmetic: no names, no units, no time.
package hist

import (
	"errors"
	"math"
	"math/bits"
)

// Power is a grouping power: the base-2 logarithm of the number of buckets
// in an octave. The relative width of a bucket is at most 2^-Power.
type Power uint8

// The grouping powers a metric may choose; Default has buckets of 12.5 %.
const (
	MinPower Power = 2
	MaxPower Power = 7
	Default  Power = 3
)

// ErrPower is returned where a grouping power is out of range or two
// histograms do not fit each other.
var ErrPower = errors.New("histogram grouping power out of range")

// Valid reports whether p is a grouping power this package supports.
func (p Power) Valid() bool { return p >= MinPower && p <= MaxPower }

// Buckets is the number of buckets of a histogram: 252, 496, 976, 1920,
// 3776 and 7424 for the powers 2 to 7.
func (p Power) Buckets() int { return (65 - int(p)) << p }

// Index is the bucket that counts v.
func (p Power) Index(v uint64) int {
	if v < 2<<p {
		return int(v)
	}
	octave := bits.Len64(v) - 1
	shift := octave - int(p)
	return shift<<p + int(v>>shift)
}

// Bounds is the smallest and the largest value that bucket i counts.
// It panics when i is not a bucket.
func (p Power) Bounds(i int) (lo, hi uint64) {
	if i < 0 || i >= p.Buckets() {
		panic("hist: bucket out of range")
	}
	if i < 2<<p {
		return uint64(i), uint64(i)
	}
	shift := i>>p - 1
	lo = uint64(i-shift<<p) << shift
	return lo, lo + 1<<shift - 1
}

// Count is the number of values in the histogram.
func Count(buckets []uint64) uint64 {
	var n uint64
	for _, c := range buckets {
		n += c
	}
	return n
}

// SumBounds bounds the sum of all values from below and above. The true sum
// lies between the two; they are float64 because the sum of many uint64
// values is not a uint64.
func (p Power) SumBounds(buckets []uint64) (lo, hi float64) {
	for i, c := range buckets {
		if c != 0 {
			l, h := p.Bounds(i)
			lo += float64(c) * float64(l)
			hi += float64(c) * float64(h)
		}
	}
	return lo, hi
}

// Quantile is the bounds of the bucket that holds the q-quantile: the value
// of rank ceil(q*n), as the nearest-rank definition has it, q clamped to
// 0..1. ok is false when the histogram is empty or q is not a number.
func (p Power) Quantile(buckets []uint64, q float64) (lo, hi uint64, ok bool) {
	n := Count(buckets)
	if n == 0 || math.IsNaN(q) {
		return 0, 0, false
	}
	rank := rankOf(q, n)
	for i, c := range buckets {
		if c >= rank {
			lo, hi = p.Bounds(i)
			return lo, hi, true
		}
		rank -= c
	}
	panic("hist: unreachable: rank above count")
}

// rankOf is ceil(q*n) within 1..n. Above 2^53 a float64 product can round
// past n, hence the clamp.
func rankOf(q float64, n uint64) uint64 {
	if q <= 0 {
		return 1
	}
	if q >= 1 {
		return n
	}
	return max(1, min(n, uint64(math.Ceil(q*float64(n)))))
}

// Add adds src to dst, bucket by bucket. Both must have the same length.
func Add(dst, src []uint64) {
	_ = dst[len(src)-1]
	for i, c := range src {
		dst[i] += c
	}
}

// Sub sets dst to what cur counted since prev. When any bucket of cur is
// below prev's the histogram was reset between the two: dst is then all of
// cur, which is what was counted since the reset, and reset is true.
// dst may be cur or prev.
func Sub(dst, cur, prev []uint64) (reset bool) {
	for i, c := range cur {
		if c < prev[i] {
			copy(dst, cur)
			return true
		}
	}
	for i, c := range cur {
		dst[i] = c - prev[i]
	}
	return false
}

// Rebin adds the counts of src, of power from, into dst, of power to. Only a
// coarser or equal power can be had: every bucket of the finer layout lies
// within one bucket of the coarser. dst must have to.Buckets() words.
func Rebin(dst []uint64, to Power, src []uint64, from Power) error {
	if !to.Valid() || !from.Valid() || to > from || len(dst) != to.Buckets() || len(src) != from.Buckets() {
		return ErrPower
	}
	for i, c := range src {
		if c != 0 {
			lo, _ := from.Bounds(i)
			dst[to.Index(lo)] += c
		}
	}
	return nil
}

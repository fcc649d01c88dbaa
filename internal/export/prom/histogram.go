// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"math"
	"slices"
	"strconv"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// octaves is the range of the buckets' bounds: 2^k-1 for k from first to last,
// the largest value below an octave. For times that is 255 ns to 68 s, for
// sizes 63 B to 1 GiB, else 1 to 2^30. It must not change: a bucket that comes
// or goes makes the rates of a histogram wrong.
func octaves(unit metric.Unit) (first, last int) {
	switch unit {
	case metric.Nanoseconds:
		return 8, 36
	case metric.Bytes:
		return 6, 30
	}
	return 1, 30
}

// bounds are the labels of buckets, by k.
var bounds = func() (labels [37]string) {
	for k := range labels {
		labels[k] = `le="` + string(appendFloat(nil, float64(uint64(1)<<k-1))) + `"`
	}
	return labels
}()

func (l *line) histogram(b []byte, buckets []uint64) []byte {
	d := l.series.Desc
	first, last := octaves(d.Unit)
	var count uint64
	i := 0
	for k := first; k <= last; k++ {
		// 2^k-1 is the last value of some bucket at every grouping power.
		for end := d.Power.Index(uint64(1)<<k - 1); i <= end; i++ {
			count += buckets[i]
		}
		b = append(strconv.AppendUint(l.name(b, "_bucket", bounds[k]), count, 10), '\n')
	}
	for ; i < len(buckets); i++ {
		count += buckets[i]
	}
	b = append(strconv.AppendUint(l.name(b, "_bucket", `le="+Inf"`), count, 10), '\n')
	lo, hi := d.Power.SumBounds(buckets)
	b = append(appendFloat(l.name(b, "_sum", ""), (lo+hi)/2), '\n')
	return append(strconv.AppendUint(l.name(b, "_count", ""), count, 10), '\n')
}

// native writes the count and the sum.
func (l *line) native(b []byte, words []uint64) []byte {
	d := l.series.Desc
	at := func(s hist.Slot) uint64 {
		i, _ := slices.BinarySearch(d.Slots, s)
		return words[i]
	}
	suffixes := [2]string{"_sum", "_count"}
	if d.Kind == metric.NativeGauge {
		suffixes = [2]string{"_gsum", "_gcount"}
	}
	count := func(b []byte) []byte {
		if n := at(hist.SlotCount); d.Float {
			b = appendFloat(b, math.Float64frombits(n))
		} else {
			b = strconv.AppendUint(b, n, 10)
		}
		return append(b, '\n')
	}
	b = count(l.name(b, "_bucket", `le="+Inf"`))
	b = append(appendFloat(l.name(b, suffixes[0], ""), math.Float64frombits(at(hist.SlotSum))), '\n')
	return count(l.name(b, suffixes[1], ""))
}

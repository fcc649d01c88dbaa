// SPDX-License-Identifier: Apache-2.0

package text

import (
	"math"
	"slices"
	"strconv"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// native is one value of a native histogram, or the difference of two.
type native struct {
	count, sum float64
	buckets    []nativeBucket // not empty, in the order of values
}

// nativeBucket counts what is above lower up to upper; the lower bound belongs
// to it if it is below zero, and the upper one does if it is above.
type nativeBucket struct{ lower, upper, count float64 }

// nativeOf is what words say, less those of before if there are any of the same
// buckets.
func nativeOf(d *metric.Desc, words, before []uint64) (n native) {
	number := func(w uint64) float64 { return float64(w) }
	if d.Float {
		number = math.Float64frombits
	}
	schema, threshold := shapeOf(d, words)
	for i, s := range d.Slots {
		v, old := number(words[i]), 0.0
		if before != nil {
			old = number(before[i])
		}
		switch index, negative, bucket := s.Bucket(); {
		case s == hist.SlotCount:
			n.count = v - old
		case s == hist.SlotSum:
			if n.sum = math.Float64frombits(words[i]); before != nil {
				n.sum -= math.Float64frombits(before[i])
			}
		case v == old:
		case s == hist.SlotZero:
			n.buckets = append(n.buckets, nativeBucket{-threshold, threshold, v - old})
		case negative:
			n.buckets = append(n.buckets, nativeBucket{-hist.Bound(schema, index), -hist.Bound(schema, index-1), v - old})
		case bucket:
			n.buckets = append(n.buckets, nativeBucket{hist.Bound(schema, index-1), hist.Bound(schema, index), v - old})
		}
	}
	return n
}

// shapeOf is the schema and the threshold of words.
func shapeOf(d *metric.Desc, words []uint64) (schema int, threshold float64) {
	at := func(s hist.Slot) uint64 {
		i, _ := slices.BinarySearch(d.Slots, s)
		return words[i]
	}
	schema = int(min(max(int64(at(hist.SlotSchema)), hist.MinSchema), hist.MaxSchema))
	return schema, math.Float64frombits(at(hist.SlotThreshold))
}

// quantile is the end, away from zero, of the bucket that holds the value of
// the nearest rank. Values that are no numbers have none.
func (n *native) quantile(q float64) (float64, bool) {
	total := 0.0
	for _, b := range n.buckets {
		total += b.count
	}
	rank := math.Max(q*total, math.SmallestNonzeroFloat64)
	for i, b := range n.buckets {
		if rank -= b.count; rank <= 0 || i == len(n.buckets)-1 {
			if b.upper <= 0 {
				return b.lower, true
			}
			return b.upper, true
		}
	}
	return 0, false
}

// counted is what a native histogram counted since its last row, and whether
// that can be said: its buckets are the same as then. Of one that is a gauge it
// is what it holds.
func (r *row) counted(words []uint64) (n native, ok bool) {
	d, b := r.series.Desc, r.before
	if d.Kind == metric.NativeGauge {
		return nativeOf(d, words, nil), true
	}
	if b.words != nil {
		was, threshold := shapeOf(d, b.words)
		schema, now := shapeOf(d, words)
		if ok = was == schema && threshold == now; ok {
			n = nativeOf(d, words, b.words)
		}
	}
	b.words = append(b.words[:0], words...)
	return n, ok
}

// refit puts the words of a histogram's last row where others slots have them.
// It reports whether all that are not zero have a place.
func refit(words []uint64, from, to []hist.Slot) ([]uint64, bool) {
	if words == nil || slices.Equal(from, to) {
		return words, true
	}
	out := make([]uint64, len(to))
	for i, s := range from {
		if at, ok := slices.BinarySearch(to, s); ok {
			out[at] = words[i]
		} else if words[i] != 0 {
			return nil, false
		}
	}
	return out, true
}

// nativeCSV writes the columns from value, which is the sum, to the last.
func (w *Writer) nativeCSV(r *row, words []uint64) (empty int) {
	if len(w.o.Quantiles) == 0 {
		n := nativeOf(r.series.Desc, words, nil)
		w.buf = append(appendFloat(w.buf, n.sum), ',')
		w.buf = append(appendFloat(w.buf, n.count), ',')
		for i, b := range n.buckets {
			if i > 0 {
				w.buf = append(w.buf, ' ')
			}
			w.buf = append(appendFloat(w.buf, b.lower), ".."...)
			w.buf = append(appendFloat(w.buf, b.upper), ':')
			w.buf = appendFloat(w.buf, b.count)
		}
		return 0
	}
	n, ok := r.counted(words)
	if !ok {
		w.buf = append(w.buf, ',')
		return len(w.o.Quantiles)
	}
	w.buf = append(appendFloat(w.buf, n.sum), ',')
	w.buf = appendFloat(w.buf, n.count)
	for _, q := range w.o.Quantiles {
		w.buf = append(w.buf, ',')
		if v, ok := n.quantile(q); ok {
			w.buf = appendFloat(w.buf, v)
		}
	}
	return 0
}

// nativeJSON writes the members from count on.
func (w *Writer) nativeJSON(r *row, words []uint64) {
	var n native
	if len(w.o.Quantiles) == 0 {
		n = nativeOf(r.series.Desc, words, nil)
	} else {
		var ok bool
		if n, ok = r.counted(words); !ok {
			return
		}
	}
	w.buf = append(appendJSONFloat(append(w.buf, `,"count":`...), n.count), `,"sum":`...)
	w.buf = appendJSONFloat(w.buf, n.sum)
	if len(w.o.Quantiles) == 0 {
		w.buf = append(w.buf, `,"buckets":[`...)
		for i, b := range n.buckets {
			if i > 0 {
				w.buf = append(w.buf, ',')
			}
			w.buf = append(appendJSONFloat(append(w.buf, '['), b.lower), ',')
			w.buf = append(appendJSONFloat(w.buf, b.upper), ',')
			w.buf = append(appendJSONFloat(w.buf, b.count), ']')
		}
		w.buf = append(w.buf, ']')
		return
	}
	w.buf = append(w.buf, `,"quantiles":{`...)
	for i, q := range w.o.Quantiles {
		v, ok := n.quantile(q)
		if !ok {
			break
		}
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		w.buf = append(appendFloat(append(w.buf, '"'), q), `":`...)
		w.buf = appendJSONFloat(w.buf, v)
	}
	w.buf = append(w.buf, '}')
}

func appendFloat(b []byte, v float64) []byte {
	return strconv.AppendFloat(b, v+0, 'g', -1, 64) // -0 becomes 0
}

// appendJSONFloat writes a number. JSON has no NaN and no infinity: those are
// strings.
func appendJSONFloat(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.AppendQuote(b, strconv.FormatFloat(v, 'g', -1, 64))
	}
	return appendFloat(b, v)
}

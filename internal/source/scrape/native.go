// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"math"
	"slices"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// nativeHistogram is one value of a native histogram: its buckets that are not
// empty, by ascending slots. Counts are whole numbers or the bits of floats.
type nativeHistogram struct {
	schema         int
	threshold, sum float64
	float          bool
	count, zero    uint64
	buckets        []hist.Slot
	counts         []uint64 // of buckets
}

// copy makes h a copy of o, in the memory it has if there is one.
func (h *nativeHistogram) copy(o *nativeHistogram) *nativeHistogram {
	if h == nil {
		h = &nativeHistogram{}
	}
	buckets, counts := append(h.buckets[:0], o.buckets...), append(h.counts[:0], o.counts...)
	*h = *o
	h.buckets, h.counts = buckets, counts
	return h
}

// native reports whether series of the kind are native histograms.
func (k kind) native() bool { return k == native || k == nativeGauge }

// hold makes the family one that can say h, and reports whether it can be.
func (f *family) hold(h *nativeHistogram, t *table) bool {
	slots := hist.Cover(f.slots, h.buckets)
	if len(slots) > hist.MaxSlots {
		return false
	}
	if len(slots) != len(f.slots) || h.float && !f.float {
		f.slots, f.float, f.desc, t.fresh = slots, f.float || h.float, nil, true
	}
	return true
}

// write puts h into the words of a frame.
func (h *nativeHistogram) write(words []uint64, d *metric.Desc) {
	number := func(n uint64) uint64 { return n }
	if d.Float && !h.float {
		number = func(n uint64) uint64 { return math.Float64bits(float64(n)) }
	}
	clear(words)
	next := 0
	for i, s := range d.Slots {
		switch {
		case next < len(h.buckets) && h.buckets[next] == s:
			words[i] = number(h.counts[next])
			next++
		case s == hist.SlotZero:
			words[i] = number(h.zero)
		case s == hist.SlotCount:
			words[i] = number(h.count)
		case s == hist.SlotSum:
			words[i] = math.Float64bits(h.sum)
		case s == hist.SlotSchema:
			words[i] = uint64(int64(h.schema))
		case s == hist.SlotThreshold:
			words[i] = math.Float64bits(h.threshold)
		}
	}
}

// below reports whether h cannot have grown out of old: it was reset between.
// What is coarser than before, or has a wider zero bucket, may have grown.
func (h *nativeHistogram) below(old *nativeHistogram) bool {
	if h.float != old.float {
		return h.value(h.count) < old.value(old.count)
	}
	// Bits of floats that are not negative have the order of the floats.
	if h.count < old.count || h.schema > old.schema || h.threshold < old.threshold {
		return true
	}
	zero, at := old.zero, 0
	for i := 0; i < len(old.buckets); {
		if inZero, across := h.swallows(old, old.buckets[i]); across {
			return true
		} else if inZero {
			zero = old.add(zero, old.counts[i])
			i++
			continue
		}
		slot, sum := old.buckets[i].Coarser(old.schema-h.schema), uint64(0)
		for ; i < len(old.buckets) && old.buckets[i].Coarser(old.schema-h.schema) == slot; i++ {
			sum = old.add(sum, old.counts[i])
		}
		for at < len(h.buckets) && h.buckets[at] < slot {
			at++
		}
		if at == len(h.buckets) || h.buckets[at] != slot || h.counts[at] < sum {
			return true
		}
	}
	return h.zero < zero
}

// swallows reports whether the zero bucket of h has a bucket of old within it,
// or ends within it. Bounds are compared with room for how they are rounded.
func (h *nativeHistogram) swallows(old *nativeHistogram, s hist.Slot) (within, across bool) {
	if h.threshold == old.threshold {
		return false, false
	}
	const room = 1e-12
	index, _, _ := s.Bucket()
	if hist.Bound(old.schema, index) <= h.threshold*(1+room) {
		return true, false
	}
	return false, hist.Bound(old.schema, index-1) < h.threshold*(1-room)
}

func (h *nativeHistogram) value(n uint64) float64 {
	if h.float {
		return math.Float64frombits(n)
	}
	return float64(n)
}

func (h *nativeHistogram) add(a, b uint64) uint64 {
	if h.float {
		return math.Float64bits(math.Float64frombits(a) + math.Float64frombits(b))
	}
	return a + b
}

// span is so many buckets in a row, so far behind those before.
type span struct {
	offset int64
	length uint64
}

// side takes the buckets of one side, as spans and their counts: the whole
// counts as differences, or the others as they are. It reports whether they
// fit together.
func (h *nativeHistogram) side(spans []span, deltas []int64, counts []float64, negative bool) bool {
	first, n := len(h.buckets), max(len(deltas), len(counts))
	if h.float && len(deltas) > 0 || !h.float && len(counts) > 0 {
		return false
	}
	index, at, count := int64(0), 0, int64(0)
	for i, s := range spans {
		if index += s.offset; i > 0 && s.offset < 0 || s.length > uint64(n-at) {
			return false
		}
		for ; s.length > 0; s.length-- {
			if index < -hist.MaxIndex || index > hist.MaxIndex {
				return false
			}
			word := uint64(0)
			if h.float {
				if word = math.Float64bits(counts[at] + 0); !(counts[at] >= 0) { // -0 is no count
					return false
				}
			} else {
				if count += deltas[at]; count < 0 {
					return false
				}
				word = uint64(count)
			}
			if word != 0 {
				h.buckets = append(h.buckets, hist.BucketSlot(int32(index), negative))
				h.counts = append(h.counts, word)
			}
			at++
			index++
		}
	}
	if negative {
		slices.Reverse(h.buckets[first:])
		slices.Reverse(h.counts[first:])
	}
	return at == n
}

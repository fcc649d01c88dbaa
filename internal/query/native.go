// SPDX-License-Identifier: Apache-2.0

package query

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// natives iterates over the samples of a native histogram. Each sample has its
// own schema and threshold, as the program that was scraped had them then: the
// engine brings those that differ together.
type natives struct {
	cursor
	fixed              [len(fixedSlots)]uint64 // words, of fixedSlots
	positive, negative side
	done               int // samples whose steps are taken
}

// fixedSlots are the words that are no bucket.
var fixedSlots = [...]hist.Slot{hist.SlotZero, hist.SlotCount, hist.SlotSum, hist.SlotSchema, hist.SlotThreshold}

// side is the buckets of one side, from the least to the greatest index that
// any sample of the column has.
type side struct {
	first  int32
	counts []uint64
	most   int32 // the greatest index, while it is being looked for
	used   bool
}

func (s *side) include(index int32) {
	if !s.used {
		s.first, s.most, s.used = index, index, true
	}
	s.first, s.most = min(s.first, index), max(s.most, index)
}

func (s *side) clear() {
	n := 0
	if s.used {
		n = int(s.most-s.first) + 1
	}
	s.counts, s.used = grow(s.counts, n), false
}

func (n *natives) reset(c *metric.Column) {
	n.cursor = cursor{column: c, at: -1}
	n.fixed, n.done = [len(fixedSlots)]uint64{}, 0
	for _, s := range c.Step {
		if index, negative, ok := hist.Slot(s.Bucket).Bucket(); negative {
			n.negative.include(index)
		} else if ok {
			n.positive.include(index)
		}
	}
	n.positive.clear()
	n.negative.clear()
}

// catchUp brings the words to the sample under the cursor.
func (n *natives) catchUp() {
	from := 0
	if n.done > 0 {
		from = n.column.End[n.done-1]
	}
	for _, s := range n.column.Step[from:n.column.End[n.at]] {
		slot := hist.Slot(s.Bucket)
		switch index, negative, ok := slot.Bucket(); {
		case negative:
			n.negative.counts[index-n.negative.first] += uint64(s.Add)
		case ok:
			n.positive.counts[index-n.positive.first] += uint64(s.Add)
		default:
			for i, f := range fixedSlots {
				if f == slot {
					n.fixed[i] += uint64(s.Add)
				}
			}
		}
	}
	n.done = n.at + 1
}

func (n *natives) Next() chunkenc.ValueType {
	return kind(n.step(), chunkenc.ValFloatHistogram)
}

func (n *natives) Seek(t millis) chunkenc.ValueType {
	return kind(n.seek(t), chunkenc.ValFloatHistogram)
}

func (n *natives) AtT() int64  { return n.t }
func (n *natives) AtST() int64 { return n.start() }
func (n *natives) Err() error  { return nil }

func (n *natives) At() (int64, float64) { panic("query: a column of histograms has no floats") }

func (n *natives) AtHistogram(*histogram.Histogram) (int64, *histogram.Histogram) {
	panic("query: histograms are handed out as floats")
}

// AtFloatHistogram fills fh, or a new histogram, with the present sample. The
// caller may keep and change all of it.
func (n *natives) AtFloatHistogram(fh *histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	if fh == nil {
		fh = &histogram.FloatHistogram{}
	}
	*fh = histogram.FloatHistogram{PositiveSpans: fh.PositiveSpans[:0], PositiveBuckets: fh.PositiveBuckets[:0],
		NegativeSpans: fh.NegativeSpans[:0], NegativeBuckets: fh.NegativeBuckets[:0]}
	if n.ended {
		fh.Sum = staleNaN
		return n.t, fh
	}
	n.catchUp()
	number := func(word uint64) float64 { return float64(word) }
	if n.column.Desc.Float {
		number = math.Float64frombits
	}
	fh.ZeroCount, fh.Count = number(n.fixed[0]), number(n.fixed[1])
	fh.Sum, fh.ZeroThreshold = math.Float64frombits(n.fixed[2]), math.Float64frombits(n.fixed[4])
	// What another made may have any schema; the engine has tables for these.
	fh.Schema = int32(min(max(int64(n.fixed[3]), hist.MinSchema), hist.MaxSchema))
	fh.PositiveSpans, fh.PositiveBuckets = n.positive.append(fh.PositiveSpans, fh.PositiveBuckets, number)
	fh.NegativeSpans, fh.NegativeBuckets = n.negative.append(fh.NegativeSpans, fh.NegativeBuckets, number)
	if fh.CounterResetHint = n.hint(); n.column.Desc.Kind == metric.NativeGauge {
		fh.CounterResetHint = histogram.GaugeType
	}
	return n.t, fh
}

// append appends the buckets that are not empty.
func (s *side) append(spans []histogram.Span, counts []float64, number func(uint64) float64) ([]histogram.Span, []float64) {
	end := int32(0) // the index after the last span
	for i, c := range s.counts {
		if c == 0 {
			continue
		}
		index := s.first + int32(i)
		if len(spans) == 0 || index != end {
			spans = append(spans, histogram.Span{Offset: index - end})
		}
		spans[len(spans)-1].Length++
		counts = append(counts, number(c))
		end = index + 1
	}
	return spans, counts
}

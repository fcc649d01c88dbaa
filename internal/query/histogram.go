// SPDX-License-Identifier: Apache-2.0

package query

import (
	"math/bits"
	"sync"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// layout is a grouping power in Prometheus's terms. Custom bucket i counts
// the values above bound i-1 up to and including bound i, so bounds that are
// the largest values of the H2 buckets say exactly the same. The largest of
// all, 2^64-1, becomes 2^64 as a float, which moves no integer; the bucket
// above it that every custom layout ends with stays empty.
type layout struct {
	bounds []float64 // upper, inclusive; shared by all histograms
	middle []float64 // of each bucket, for the sum
}

var layouts = func() (all [hist.MaxPower + 1]func() *layout) {
	for p := hist.MinPower; p <= hist.MaxPower; p++ {
		all[p] = sync.OnceValue(func() *layout { return newLayout(p) })
	}
	return all
}()

func newLayout(p hist.Power) *layout {
	l := &layout{make([]float64, p.Buckets()), make([]float64, p.Buckets())}
	for i := range l.bounds {
		lo, hi := p.Bounds(i)
		l.bounds[i] = float64(hi)
		l.middle[i] = (float64(lo) + float64(hi)) / 2
	}
	return l
}

// histograms iterates over the samples of a histogram. All of them show the
// same buckets, those that any sample of the column counts into, so that the
// spans are worked out once and a sample is a copy of counts.
type histograms struct {
	cursor
	layout *layout
	used   []uint64 // a bit for each bucket in use
	before []int32  // buckets in use below each word of used
	spans  []histogram.Span
	middle []float64 // of each bucket in use
	counts []uint64  // of each bucket in use, at sample applied
	done   int       // samples whose steps are in counts
}

func (h *histograms) reset(c *metric.Column) {
	h.cursor = cursor{column: c, at: -1}
	h.layout = layouts[c.Desc.Power]()
	h.done = 0
	n := c.Desc.Power.Buckets()
	h.used = grow(h.used, (n+63)/64)
	h.before = grow(h.before, len(h.used))
	for _, s := range c.Step {
		h.used[s.Bucket/64] |= 1 << (s.Bucket % 64)
	}
	h.spans, h.middle = h.spans[:0], h.middle[:0]
	end := 0 // the bucket after the last span
	for w, word := range h.used {
		h.before[w] = int32(len(h.middle))
		for ; word != 0; word &= word - 1 {
			i := w*64 + bits.TrailingZeros64(word)
			if len(h.spans) == 0 || i != end {
				h.spans = append(h.spans, histogram.Span{Offset: int32(i - end)})
			}
			h.spans[len(h.spans)-1].Length++
			h.middle = append(h.middle, h.layout.middle[i])
			end = i + 1
		}
	}
	h.counts = grow(h.counts, len(h.middle))
}

// grow is n zeros in the memory of s, if it has so much.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// catchUp brings counts to the sample under the cursor.
func (h *histograms) catchUp() {
	from := 0
	if h.done > 0 {
		from = h.column.End[h.done-1]
	}
	for _, s := range h.column.Step[from:h.column.End[h.at]] {
		w, bit := s.Bucket/64, uint(s.Bucket%64)
		rank := bits.OnesCount64(h.used[w] & (1<<bit - 1))
		h.counts[int(h.before[w])+rank] += uint64(s.Add)
	}
	h.done = h.at + 1
}

func (h *histograms) Next() chunkenc.ValueType {
	return kind(h.step(), chunkenc.ValFloatHistogram)
}

func (h *histograms) Seek(t millis) chunkenc.ValueType {
	return kind(h.seek(t), chunkenc.ValFloatHistogram)
}

func (h *histograms) AtT() int64  { return h.t }
func (h *histograms) AtST() int64 { return h.start() }
func (h *histograms) Err() error  { return nil }

func (h *histograms) At() (int64, float64) { panic("query: a column of histograms has no floats") }

func (h *histograms) AtHistogram(*histogram.Histogram) (int64, *histogram.Histogram) {
	panic("query: histograms are handed out as floats")
}

// AtFloatHistogram fills fh, or a new histogram, with the present sample.
// The caller may keep and change all of it except the bounds.
func (h *histograms) AtFloatHistogram(fh *histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	if fh == nil {
		fh = &histogram.FloatHistogram{}
	}
	spans, counts := fh.PositiveSpans[:0], fh.PositiveBuckets[:0]
	*fh = histogram.FloatHistogram{Schema: histogram.CustomBucketsSchema, CustomValues: h.layout.bounds}
	if h.ended {
		fh.Sum = staleNaN
		return h.t, fh
	}
	h.catchUp()
	if cap(counts) < len(h.counts) {
		counts = make([]float64, 0, len(h.counts))
	}
	for i, c := range h.counts {
		n := float64(c)
		counts = append(counts, n)
		fh.Count += n
		fh.Sum += n * h.middle[i]
	}
	fh.PositiveSpans, fh.PositiveBuckets = append(spans, h.spans...), counts
	fh.CounterResetHint = h.hint()
	return h.t, fh
}

// hint says that there was no reset since the sample before, where the start
// says so: it saves the engine comparing all buckets. Where there was one the
// engine learns it from the start. A hint would say it too, but then the
// engine drops the sum and the difference of this sample and one without.
func (c *cursor) hint() histogram.CounterResetHint {
	if start := c.column.Start; c.prev >= 0 && start[c.at] != 0 && start[c.prev] == start[c.at] {
		return histogram.NotCounterReset
	}
	return histogram.UnknownCounterReset
}

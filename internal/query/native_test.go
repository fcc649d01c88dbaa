// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/teststorage"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// nativeExpressions are asked of our storage and of Prometheus's.
var nativeExpressions = []string{
	`n`, `rate(n[2s])`, `increase(n[900ms])`, `irate(n[2s])`, `resets(n[5s])`, `sum(rate(n[1s]))`, `n - n offset 1s`,
	`histogram_quantile(0.99, rate(n[2s]))`, `histogram_quantile(0.1, sum by (id) (n))`, `histogram_quantile(0.5, n)`,
	`histogram_fraction(-10, 1000, rate(n[3s]))`, `histogram_count(n)`, `histogram_sum(rate(n[2s]))`, `histogram_avg(n)`,
	`histogram_stddev(n)`, `sum_over_time(g[1s])`, `avg(g)`, `delta(g[2s])`, `histogram_quantile(0.9, g)`, `last_over_time(g[2s])`, `count({__name__=~".+"})`,
	`start_timestamp(n)`, `sum(n)`, `sum(g)`,
}

// TestNativeHistogramsAreAsPrometheusHasThem gives random native histograms,
// which become coarser, begin anew and end, to our storage and to Prometheus's.
func TestNativeHistogramsAreAsPrometheusHasThem(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			theirs := teststorage.New(t, func(o *tsdb.Options) {
				o.EnableSTStorage, o.EnableHistogramSTEncoding = true, true
				o.FloatChunkEncoding = chunkenc.EncXOR2
			})
			r := &fakeReader{}
			for id := range 3 {
				label := strconv.Itoa(id)
				r.columns = append(r.columns, randomNatives(t, rng, theirs, metric.Native, "n", label, id == 1), randomNatives(t, rng, theirs, metric.NativeGauge, "g", label, id == 2))
			}
			e := New(Options{Lookback: 1500 * time.Millisecond})
			for _, expr := range nativeExpressions {
				compare(t, e, r, theirs, expr, rng)
			}
		})
	}
}

// randomNatives is a column of native histograms over some seconds. What it
// stands for goes to Prometheus's storage, without any of the code under test.
func randomNatives(t *testing.T, rng *rand.Rand, s storage.Storage, kind metric.Kind, name, id string, float bool) metric.Column {
	t.Helper()
	d := desc(name, kind, "id")
	d.Float, d.Slots = float, hist.Cover(nil, nil)
	c := metric.Column{Desc: d, Labels: []string{id}}
	ls := labels.FromStrings("__name__", name, "id", id)
	app := s.AppenderV2(context.Background())
	put := func(start, at int64, h *histogram.FloatHistogram) {
		t.Helper()
		if _, err := app.Append(0, ls, start, at, 0, nil, h, storage.AppendV2Options{}); err != nil {
			t.Fatal(err)
		}
	}
	before := map[hist.Slot]uint64{}
	var h nativeState
	now := int64(rng.IntN(2000))
	start := now - 1 - int64(rng.IntN(500))
	h.clear()
	alive := true
	for range 60 {
		switch {
		case alive && rng.IntN(12) == 0: // it ends
			c.Gone = append(c.Gone, at(float64(now)))
			put(0, toMs(at(float64(now))), &histogram.FloatHistogram{Sum: staleNaN})
			alive = false
		case !alive && rng.IntN(3) > 0:
		case !alive || rng.IntN(15) == 0:
			alive, start = true, now-1-int64(rng.IntN(40))
			h.clear()
			fallthrough
		default:
			h.observe(rng, kind == metric.NativeGauge, float)
			c.Time, c.Start = append(c.Time, at(float64(now))), append(c.Start, 0)
			st := int64(0)
			if kind == metric.Native {
				c.Start[len(c.Start)-1] = at(float64(start))
				st = toMs(at(float64(start)))
			}
			words := h.words(float)
			for _, slot := range slices.Sorted(maps.Keys(words)) {
				if add := words[slot] - before[slot]; add != 0 {
					c.Step = append(c.Step, metric.Step{Bucket: int32(slot), Add: int64(add)})
				}
			}
			for slot, w := range before {
				if _, ok := words[slot]; !ok && w != 0 {
					c.Step = append(c.Step, metric.Step{Bucket: int32(slot), Add: -int64(w)})
				}
			}
			before = words
			c.End = append(c.End, len(c.Step))
			put(st, toMs(at(float64(now))), h.prometheus(kind))
		}
		now += 50 + int64(rng.IntN(300))
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	return c
}

// nativeState is a native histogram as a program holds it.
type nativeState struct {
	schema             int32
	zero, sum          float64
	positive, negative map[int32]float64
}

func (h *nativeState) clear() {
	*h = nativeState{schema: 3, positive: map[int32]float64{}, negative: map[int32]float64{}}
}

// observe counts some values, and makes the buckets coarser now and then.
func (h *nativeState) observe(rng *rand.Rand, falls, float bool) {
	if rng.IntN(15) == 0 && h.schema > -2 {
		h.schema--
		for _, side := range []*map[int32]float64{&h.positive, &h.negative} {
			coarser := map[int32]float64{}
			for i, n := range *side {
				coarser[int32(math.Ceil(float64(i)/2))] += n
			}
			*side = coarser
		}
	}
	if falls && rng.IntN(3) == 0 {
		for i, n := range h.positive {
			h.positive[i] = math.Floor(n / 2)
		}
	}
	for range rng.IntN(20) {
		n := 1.0
		if float {
			n = float64(rng.IntN(8)) / 4
		}
		switch v := math.Exp(rng.NormFloat64()*4 + 3); rng.IntN(6) {
		case 0:
			h.zero += n
		case 1:
			h.negative[int32(math.Ceil(math.Log2(v)*math.Exp2(float64(h.schema))))] += n
			h.sum -= v * n
		default:
			h.positive[int32(math.Ceil(math.Log2(v)*math.Exp2(float64(h.schema))))] += n
			h.sum += v * n
		}
	}
}

func (h *nativeState) count() float64 {
	n := h.zero
	for _, side := range []map[int32]float64{h.positive, h.negative} {
		for _, c := range side {
			n += c
		}
	}
	return n
}

func (h *nativeState) words(float bool) map[hist.Slot]uint64 {
	number := func(v float64) uint64 { return uint64(v) }
	if float {
		number = math.Float64bits
	}
	m := map[hist.Slot]uint64{hist.SlotZero: number(h.zero), hist.SlotCount: number(h.count()), hist.SlotSum: math.Float64bits(h.sum),
		hist.SlotSchema: uint64(int64(h.schema)), hist.SlotThreshold: math.Float64bits(1e-9)}
	for i, n := range h.positive {
		m[hist.BucketSlot(i, false)] = number(n)
	}
	for i, n := range h.negative {
		m[hist.BucketSlot(i, true)] = number(n)
	}
	return m
}

func (h *nativeState) prometheus(kind metric.Kind) *histogram.FloatHistogram {
	f := &histogram.FloatHistogram{Schema: h.schema, ZeroThreshold: 1e-9, ZeroCount: h.zero, Count: h.count(), Sum: h.sum}
	if kind == metric.NativeGauge {
		f.CounterResetHint = histogram.GaugeType
	}
	side := func(counts map[int32]float64) (spans []histogram.Span, list []float64) {
		end := int32(0)
		for _, i := range slices.Sorted(maps.Keys(counts)) {
			spans = append(spans, histogram.Span{Offset: i - end, Length: 1})
			list = append(list, counts[i])
			end = i + 1
		}
		return spans, list
	}
	f.PositiveSpans, f.PositiveBuckets = side(h.positive)
	f.NegativeSpans, f.NegativeBuckets = side(h.negative)
	return f
}

// TestNativeSchemasOfOthers do no harm: the engine has tables for some alone.
func TestNativeSchemasOfOthers(t *testing.T) {
	for _, schema := range []int64{-100, 9, 127, math.MinInt64} {
		d := desc("n", metric.Native)
		d.Slots = hist.Cover(nil, nil)
		c := metric.Column{Desc: d, Time: []int64{at(0)}, Start: []int64{0}, End: []int{3}, Step: []metric.Step{{Bucket: int32(hist.SlotSchema), Add: schema},
			{Bucket: int32(hist.BucketSlot(hist.MaxIndex, false)), Add: 3}, {Bucket: int32(hist.SlotCount), Add: 3}}}
		ask(t, c).instant(`histogram_count(n)`, 0, "3@0")
		if _, err := New(Options{}).Instant(context.Background(), &fakeReader{columns: []metric.Column{c}}, `histogram_quantile(0.5, n)`, ms(0)); err != nil {
			t.Errorf("schema %d: %v", schema, err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/teststorage"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// expressions are asked of our storage and of Prometheus's.
var expressions = []string{
	`c`, `g`, `f`, `h`,
	`rate(c[2s])`, `increase(c[777ms])`, `irate(c[3s])`, `resets(c[5s])`, `changes(g[5s])`,
	`sum by (id) (rate(c[1s]))`, `c offset 1s`, `delta(g[2s])`, `deriv(f[3s])`, `avg_over_time(f[2s])`,
	`count_over_time(c[1s])`, `last_over_time(g[10s])`, `timestamp(c)`, `start_timestamp(c)`, `absent(c)`,
	`topk(2, rate(c[3s]))`, `quantile_over_time(0.9, g[4s])`, `max_over_time(rate(c[1s])[3s:250ms])`,
	`rate(h[2s])`, `increase(h[900ms])`, `irate(h[2s])`, `resets(h[5s])`, `sum(rate(h[1s]))`, `h - h offset 1s`,
	`histogram_quantile(0.99, rate(h[2s]))`, `histogram_quantile(0.5, sum by (id) (h))`,
	`histogram_fraction(10, 1000, rate(h[3s]))`, `histogram_count(h)`, `histogram_avg(h)`, `histogram_stddev(h)`,
	`increase(c[2s] anchored)`, `rate(c[2s] smoothed)`, `c / on (id) group_left g`,
	`sum_over_time(h[1s])`, `{__name__=~"c|g"}`, `count({__name__=~".+"})`,
}

// TestWeAnswerAsPrometheusDoes gives random samples to our storage and, in
// its own form, to Prometheus's, and asks both the same.
func TestWeAnswerAsPrometheusDoes(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 99))
			r := &fakeReader{}
			for id := range 3 {
				r.columns = append(r.columns, randomColumns(rng, strconv.Itoa(id))...)
			}
			theirs := teststorage.New(t, func(o *tsdb.Options) {
				o.EnableSTStorage, o.EnableHistogramSTEncoding = true, true
				o.FloatChunkEncoding = chunkenc.EncXOR2
			})
			load(t, theirs, r.columns)
			e := New(Options{Lookback: 1500 * time.Millisecond})
			for _, expr := range expressions {
				compare(t, e, r, theirs, expr, rng)
			}
		})
	}
}

func compare(t *testing.T, e *Engine, r Reader, theirs storage.Queryable, expr string, rng *rand.Rand) {
	t.Helper()
	start := ms(float64(rng.IntN(8000)))
	end := start.Add(time.Duration(rng.IntN(5000)) * time.Millisecond)
	step := time.Duration(20+rng.IntN(700)) * time.Millisecond
	ctx := context.Background()
	got, err := e.Range(ctx, r, expr, start, end, step)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	q, err := e.promql.NewRangeQuery(ctx, theirs, nil, expr, start, end, step)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	want, err := finish(ctx, q, queryable{}, expr, settings{})
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	same := cmp.Options{cmpopts.EquateApprox(1e-9, 1e-12), cmpopts.EquateNaNs(), cmpopts.EquateEmpty(),
		cmpopts.IgnoreUnexported(Result{}), cmpopts.SortSlices(func(a, b string) bool { return a < b })}
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("%s from %v to %v step %v (-Prometheus +ours):\n%s", expr, start.UnixMilli(), end.UnixMilli(), step, diff)
	}
}

// randomColumns are a counter, two gauges and a histogram over some seconds,
// with lives, gaps and ends.
func randomColumns(rng *rand.Rand, id string) []metric.Column {
	of := func(name string, kind metric.Kind) metric.Column {
		return metric.Column{Desc: desc(name, kind, "id"), Labels: []string{id}}
	}
	c, g, f, h := of("c", metric.Counter), of("g", metric.Gauge), of("f", metric.Gauge), of("h", metric.Histogram)
	f.Desc.Float = true
	h.Desc.Power = hist.MinPower
	var counter uint64
	buckets, before := make([]uint64, h.Desc.Words()), make([]uint64, h.Desc.Words())
	alive := true
	now := int64(rng.IntN(2000))
	start := now - 1 - int64(rng.IntN(500))
	for range 60 {
		switch {
		case alive && rng.IntN(12) == 0: // it ends
			for _, col := range []*metric.Column{&c, &g, &f, &h} {
				col.Gone = append(col.Gone, at(float64(now)))
			}
			alive = false
		case !alive && rng.IntN(3) > 0:
		case !alive || rng.IntN(15) == 0: // it begins, or begins again
			alive, start, counter = true, now-1-int64(rng.IntN(40)), 0
			clear(buckets)
			fallthrough
		default:
			counter += uint64(rng.IntN(1000))
			for range rng.IntN(20) {
				buckets[h.Desc.Power.Index(rng.Uint64()>>rng.IntN(64))]++
			}
			for _, col := range []*metric.Column{&c, &g, &f, &h} {
				col.Time = append(col.Time, at(float64(now)))
				col.Start = append(col.Start, at(float64(start)))
			}
			c.Word = append(c.Word, counter)
			g.Word = append(g.Word, uint64(int64(rng.IntN(2000)-1000)))
			f.Word = append(f.Word, math.Float64bits(rng.NormFloat64()))
			for b, n := range buckets {
				if n != before[b] {
					h.Step = append(h.Step, metric.Step{Bucket: int32(b), Add: int64(n - before[b])})
				}
			}
			copy(before, buckets)
			h.End = append(h.End, len(h.Step))
		}
		now += 50 + int64(rng.IntN(300))
	}
	return []metric.Column{c, g, f, h}
}

// load appends the columns to Prometheus's storage as what they stand for,
// without any of the code under test.
func load(t *testing.T, s storage.Storage, columns []metric.Column) {
	t.Helper()
	app := s.AppenderV2(context.Background())
	for _, c := range columns {
		ls := labels.FromStrings("__name__", c.Desc.Name, "id", c.Labels[0])
		counts := make([]uint64, c.Desc.Words())
		for i, g := 0, 0; i < len(c.Time) || g < len(c.Gone); {
			var err error
			switch {
			case g < len(c.Gone) && (i == len(c.Time) || c.Gone[g] < c.Time[i]):
				ended := math.Float64frombits(0x7ff0000000000002) // Prometheus's stale marker
				if c.Desc.Kind == metric.Histogram {
					_, err = app.Append(0, ls, 0, c.Gone[g]/nsPerMs, 0, nil, &histogram.FloatHistogram{Sum: ended}, storage.AppendV2Options{})
				} else {
					_, err = app.Append(0, ls, 0, c.Gone[g]/nsPerMs, ended, nil, nil, storage.AppendV2Options{})
				}
				g++
			case c.Desc.Kind == metric.Histogram:
				from := 0
				if i > 0 {
					from = c.End[i-1]
				}
				for _, step := range c.Step[from:c.End[i]] {
					counts[step.Bucket] += uint64(step.Add)
				}
				_, err = app.Append(0, ls, c.Start[i]/nsPerMs, c.Time[i]/nsPerMs, 0, nil, denseHistogram(c.Desc.Power, counts), storage.AppendV2Options{})
				i++
			default:
				_, err = app.Append(0, ls, c.Start[i]/nsPerMs, c.Time[i]/nsPerMs, c.Desc.Value(c.Word[i]), nil, nil, storage.AppendV2Options{})
				i++
			}
			if err != nil {
				t.Fatalf("%s at %d: %v", ls, i, err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

// denseHistogram has one span of all buckets.
func denseHistogram(p hist.Power, counts []uint64) *histogram.FloatHistogram {
	h := &histogram.FloatHistogram{Schema: histogram.CustomBucketsSchema, PositiveSpans: []histogram.Span{{Length: uint32(len(counts))}}}
	for i, n := range counts {
		lo, hi := p.Bounds(i)
		h.CustomValues = append(h.CustomValues, float64(hi))
		h.PositiveBuckets = append(h.PositiveBuckets, float64(n))
		h.Count += float64(n)
		h.Sum += float64(n) * (float64(lo)/2 + float64(hi)/2)
	}
	return h
}

// The random samples must exercise what the test is about.
func TestRandomColumnsHaveLivesAndEnds(t *testing.T) {
	columns := randomColumns(rand.New(rand.NewPCG(0, 99)), "0")
	lives := map[int64]bool{}
	for _, s := range columns[0].Start {
		lives[s] = true
	}
	if len(lives) < 2 || len(columns[0].Gone) == 0 || len(columns[3].Step) < 100 {
		t.Error(fmt.Sprintf("%d lives, %d ends, %d steps", len(lives), len(columns[0].Gone), len(columns[3].Step)))
	}
}

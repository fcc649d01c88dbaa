// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"rezolus/internal/metric"
)

// benchReader has 60 counters and one histogram of an hour at one second.
func benchReader() *fakeReader {
	const seconds = 3600
	r := &fakeReader{}
	d := desc("scheduler_context_switch", metric.Counter, "id", "kind")
	for i := range 60 {
		c := metric.Column{Desc: d, Labels: []string{strconv.Itoa(i), "voluntary"}}
		for s := range seconds {
			c.Time = append(c.Time, at(float64(s*1000)))
			c.Start = append(c.Start, at(-1e6))
			c.Word = append(c.Word, uint64(s*(1000+i)))
		}
		r.columns = append(r.columns, c)
	}
	h := metric.Column{Desc: desc("scheduler_runqueue_latency", metric.Histogram)}
	for s := range seconds {
		for b := 40; b < 120; b++ { // 80 of 496 buckets in use, 30 grow in a second
			if (b+s*7)%8 < 3 {
				h.Step = append(h.Step, metric.Step{Bucket: int32(b), Add: int64(b)})
			}
		}
		h.Time, h.Start = append(h.Time, at(float64(s*1000))), append(h.Start, at(-1e6))
		h.End = append(h.End, len(h.Step))
	}
	r.columns = append(r.columns, h)
	return r
}

// given is a Reader that has cut its columns beforehand, so that only what is
// ours is measured.
type given struct {
	fakeReader
	first, last int64
}

func (g *given) Bounds() (int64, int64) { return g.first, g.last }

func (g *given) Select(_ context.Context, _, _ int64, want func(*metric.Series) bool) ([]metric.Column, error) {
	out := make([]metric.Column, 0, len(g.columns))
	for i := range g.columns {
		c := &g.columns[i]
		if want(&metric.Series{Desc: c.Desc, Values: c.Labels}) {
			out = append(out, *c)
		}
	}
	return out, nil
}

// newest keeps the last seconds of the columns.
func newest(r *fakeReader, seconds float64) *given {
	g := &given{}
	_, g.last = r.Bounds()
	g.first = g.last - int64(seconds*1e9)
	for i := range r.columns {
		g.columns = append(g.columns, cut(&r.columns[i], g.first, g.last))
	}
	return g
}

func benchRange(b *testing.B, r *given, expr string, from float64, step time.Duration) {
	e := New(Options{})
	end := time.Unix(0, r.last)
	start := end.Add(-time.Duration(from * float64(time.Second)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Range(context.Background(), r, expr, start, end, step); err != nil {
			b.Fatal(err)
		}
	}
}

// What a chart asks for once, when it appears.
func BenchmarkHour(b *testing.B) {
	r := newest(benchReader(), 3600)
	b.Run("rate60x3600", func(b *testing.B) {
		benchRange(b, r, "rate(scheduler_context_switch[10s])", 3600, 10*time.Second)
	})
	b.Run("sum60x3600", func(b *testing.B) {
		benchRange(b, r, "sum(irate(scheduler_context_switch[2s]))", 3600, time.Second)
	})
	b.Run("quantile1x3600", func(b *testing.B) {
		benchRange(b, r, "histogram_quantile(0.99, rate(scheduler_runqueue_latency[10s]))", 3600, time.Second)
	})
	b.Run("heatmap1x3600", func(b *testing.B) {
		benchRange(b, r, "irate(scheduler_runqueue_latency[2s])", 3600, 10*time.Second)
	})
}

// What a page asks for every second of each chart: the newest points.
func BenchmarkNewest(b *testing.B) {
	r := newest(benchReader(), 4)
	for _, expr := range []string{
		"1",
		"sum(irate(scheduler_context_switch[2s]))",
		"irate(scheduler_context_switch[2s])",
		"sum by (id) (irate(scheduler_context_switch[2s]))",
		"irate(scheduler_runqueue_latency[2s])",
		"histogram_quantile(0.99, irate(scheduler_runqueue_latency[2s]))",
	} {
		b.Run(expr, func(b *testing.B) { benchRange(b, r, expr, 2, time.Second) })
	}
}

func BenchmarkAPI(b *testing.B) {
	r := newest(benchReader(), 4)
	h := API(New(Options{}), r, BuildInfo{})
	url := "/api/v1/query_range?query=irate(scheduler_context_switch[2s])&start=" +
		strconv.FormatInt(r.last/1e9-2, 10) + "&end=" + strconv.FormatInt(r.last/1e9, 10) + "&step=1"
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", url, nil))
		if w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
}

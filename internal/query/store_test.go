// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"fmt"
	"testing"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

var _, _ Reader = (*store.Window)(nil), (*store.Recording)(nil)

// window is a live window of so many ticks a second apart of one source with
// counters, a gauge and a histogram.
func window(tb testing.TB, ticks, counters int) *store.Window {
	tb.Helper()
	var series []metric.Series
	d := desc("scheduler_context_switch", metric.Counter, "id")
	for i := range counters {
		series = append(series, metric.Series{Desc: d, Values: []string{fmt.Sprint(i)}, Start: at(-500)})
	}
	series = append(series, metric.Series{Desc: desc("scheduler_runqueue_latency", metric.Histogram), Start: at(-500)})
	schema, err := metric.NewSchema("task", series)
	if err != nil {
		tb.Fatal(err)
	}
	w := store.NewWindow(0)
	run := &metric.Run{}
	frame := metric.Frame{Schema: schema, Values: make([]uint64, schema.Words)}
	for i := range ticks {
		for c := range counters {
			frame.Values[c] += uint64(100 * (c + 1))
		}
		for _, v := range []uint64{3, 1000, 1000, 50_000} {
			frame.Values[counters+series[counters].Desc.Power.Index(v)]++
		}
		s := metric.Snapshot{Run: run, Seq: uint64(i + 1), Wall: at(float64(1000 * i)), Mono: int64(i) * 1e9, Interval: 1e9, Frames: []metric.Frame{frame}}
		if err := w.Put(&s); err != nil {
			tb.Fatal(err)
		}
	}
	return w
}

func TestOverTheLiveWindow(t *testing.T) {
	a := asker{t, New(Options{}), window(t, 61, 2)}
	a.instant(`rate(scheduler_context_switch[30s])`, 60_000, "id=0 100@60000 ; id=1 200@60000")
	a.instant(`sum(increase(scheduler_context_switch[2m]))`, 60_000, "18300@60000")
	a.instant(`histogram_count(rate(scheduler_runqueue_latency[30s]))`, 60_000, "4@60000")
	a.instant(`histogram_quantile(0.5, rate(scheduler_runqueue_latency[30s])) < 1023`, 60_000, "991@60000")
	a.instant(`histogram_quantile(0.99, rate(scheduler_runqueue_latency[30s])) > bool 49151`, 60_000, "1@60000")
	a.instant(`scheduler_context_switch{id="1"}`, 200_000, "")
}

// What a page asks for every second, all of the way from the live window of
// ten minutes.
func BenchmarkWindow(b *testing.B) {
	w := window(b, 600, 60)
	e := New(Options{})
	_, last := w.Bounds()
	end := time.Unix(0, last)
	for _, expr := range []string{"sum(rate(scheduler_context_switch[2s]))", "rate(scheduler_runqueue_latency[2s])"} {
		b.Run(expr, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Range(context.Background(), w, expr, end.Add(-2*time.Second), end, time.Second); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

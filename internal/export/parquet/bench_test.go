// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"rezolus/internal/metric"
)

// host makes ticks like those of an agent: of so many counters a third never
// move, a third move slowly and a third every tick; histograms count a few
// events a tick.
func host(b *testing.B, counters, histograms int) func() *metric.Snapshot {
	b.Helper()
	c := &metric.Desc{Name: "counter", Unit: metric.Nanoseconds, Kind: metric.Counter, Keys: []string{"id"}}
	h := &metric.Desc{Name: "latency", Unit: metric.Nanoseconds, Kind: metric.Histogram, Power: 3, Keys: []string{"op"}}
	var series []metric.Series
	for i := range counters {
		series = append(series, metric.Series{Desc: c, Values: []string{fmt.Sprint(i)}, Start: 1})
	}
	for i := range histograms {
		series = append(series, metric.Series{Desc: h, Values: []string{fmt.Sprint(i)}, Start: 1})
	}
	schema, err := metric.NewSchema("host", series)
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	s := &metric.Snapshot{Wall: 1_700_000_000e9, Interval: 1e9, Frames: []metric.Frame{{Schema: schema}}}
	s.Frames[0].Resize(schema.Words)
	return func() *metric.Snapshot {
		s.Seq, s.Wall, s.Mono = s.Seq+1, s.Wall+1e9, s.Mono+1e9
		words := s.Frames[0].Values
		for i := range counters {
			switch {
			case i%3 == 1 && r.IntN(20) == 0:
				words[i]++
			case i%3 == 2:
				words[i] += r.Uint64N(1 << 24)
			}
		}
		for i := range histograms {
			for range 1 + i%5 {
				words[counters+i*h.Words()+80+r.IntN(60)]++
			}
		}
		return s
	}
}

// BenchmarkWrite is what a tick costs: 1,500 counters and 40 histograms, as
// an agent has them by default.
func BenchmarkWrite(b *testing.B) {
	for _, size := range [][2]int{{1500, 0}, {0, 40}, {1500, 40}} {
		b.Run(fmt.Sprintf("%dcounters/%dhistograms", size[0], size[1]), func(b *testing.B) {
			tick := host(b, size[0], size[1])
			w, err := NewWriter(io.Discard, Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := w.Put(tick()); err != nil {
					b.Fatal(err)
				}
			}
			done, err := w.Close()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(done.Bytes)/float64(done.Ticks), "B/tick")
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, size := range [][2]int{{1500, 0}, {0, 40}} {
		b.Run(fmt.Sprintf("%dcounters/%dhistograms", size[0], size[1]), func(b *testing.B) {
			tick := host(b, size[0], size[1])
			var file bytes.Buffer
			w, err := NewWriter(&file, Options{})
			for range 1800 {
				err = w.Put(tick())
			}
			if err != nil {
				b.Fatal(err)
			}
			if _, err = w.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				f, err := Open(bytes.NewReader(file.Bytes()), int64(file.Len()))
				if err != nil {
					b.Fatal(err)
				}
				for r := all(f); err == nil; {
					_, err = r.Next()
				}
				if err != io.EOF {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1800, "ns/tick")
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
	"rezolus/internal/vfs"
)

// host is about what a small host gives at 1 s: four sources with 12,172
// words, 9,920 of them buckets of 20 histograms and most of those zero, and
// 2,252 counters and gauges, of which about a tenth change in a tick.
type host struct {
	r *rand.Rand
	s metric.Snapshot
}

func newHost(t testing.TB) *host {
	h := &host{r: rand.New(rand.NewPCG(3, 4))}
	h.s = metric.Snapshot{Run: &metric.Run{Host: "bench"}, Wall: 1_763_700_000 * second, Interval: second}
	counter := &metric.Desc{Name: "counter", Kind: metric.Counter, Keys: []string{"id"}}
	latency := &metric.Desc{Name: "latency", Kind: metric.Histogram, Power: hist.Default, Keys: []string{"id"}}
	for i := range 4 {
		var series []metric.Series
		for j := range 563 {
			series = append(series, metric.Series{Desc: counter, Values: []string{fmt.Sprint(i*1000 + j)}, Start: 1})
		}
		for j := range 5 {
			series = append(series, metric.Series{Desc: latency, Values: []string{fmt.Sprint(i*1000 + j)}, Start: 1})
		}
		schema, err := metric.NewSchema(fmt.Sprint("source", i), series)
		if err != nil {
			t.Fatal(err)
		}
		f := metric.Frame{Schema: schema}
		f.Resize(schema.Words)
		for j := range 563 {
			f.Values[j] = h.r.Uint64() >> (24 + h.r.IntN(40))
		}
		h.s.Frames = append(h.s.Frames, f)
	}
	return h
}

func (h *host) next() *metric.Snapshot {
	h.s.Seq++
	h.s.Wall += second
	h.s.Mono += second
	for i := range h.s.Frames {
		f := &h.s.Frames[i]
		f.Begin = h.s.Mono + h.r.Int64N(50_000)
		f.End = f.Begin + h.r.Int64N(50_000)
		for range 56 {
			f.Values[h.r.IntN(563)] += h.r.Uint64() >> (36 + h.r.IntN(28))
		}
		for j := range 5 { // a log-normal of latencies
			for range 20 {
				v := math.Exp(9 + float64(j) + 1.2*h.r.NormFloat64())
				f.Values[563+496*j+hist.Default.Index(uint64(v))] += 1 + h.r.Uint64N(30)
			}
		}
	}
	return &h.s
}

// snapshots are n ticks of a host, to be encoded again and again.
func snapshots(t testing.TB, n int) []metric.Snapshot {
	h := newHost(t)
	for range 50 {
		h.next()
	}
	all := make([]metric.Snapshot, n)
	for i := range all {
		all[i].CopyFrom(h.next())
	}
	return all
}

func words(s *metric.Snapshot) (n int) {
	for i := range s.Frames {
		n += len(s.Frames[i].Values)
	}
	return n
}

// BenchmarkEncode is one tick: with and without compression, for several
// distances of key ticks.
func BenchmarkEncode(b *testing.B) {
	all := snapshots(b, 256)
	for _, o := range []EncoderOptions{
		{KeyEvery: 16}, {KeyEvery: 64}, {KeyEvery: 256}, {KeyEvery: 64, Plain: true}, {KeyEvery: 1 << 30, Plain: true},
	} {
		b.Run(fmt.Sprintf("key=%d/plain=%v", o.KeyEvery, o.Plain), func(b *testing.B) {
			e := NewEncoder(o)
			var buf []byte
			bytes, n := 0, 0
			for b.Loop() {
				s := &all[n%len(all)]
				if n%len(all) == 0 {
					e.Restart()
				}
				var err error
				if buf, err = e.Append(buf[:0], s); err != nil {
					b.Fatal(err)
				}
				if n%len(all) != 0 { // without the schemas
					bytes += len(buf)
				}
				n++
			}
			b.ReportMetric(float64(bytes)/float64(max(n-(n+255)/256, 1)), "B/tick")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*words(&all[0])), "ns/word")
		})
	}
}

// BenchmarkUnchanged is the price of words that do not change.
func BenchmarkUnchanged(b *testing.B) {
	const words = 12_000
	sl := slot{prev: make([]uint64, words), stamps: make([]uint64, metric.Blocks(words))}
	f := metric.Frame{Values: make([]uint64, words), Stamps: make([]uint64, metric.Blocks(words))}
	for _, stamp := range []uint64{0, 1} {
		b.Run(map[uint64]string{0: "unknown", 1: "stamped"}[stamp], func(b *testing.B) {
			for i := range f.Stamps {
				f.Stamps[i] = stamp
			}
			var buf []byte
			for b.Loop() {
				buf = sl.appendDeltas(buf[:0], &f)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*words), "ns/word")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	all := snapshots(b, 256)
	e := NewEncoder(EncoderOptions{})
	var file []byte
	for i := range all {
		var err error
		if file, err = e.Append(file, &all[i]); err != nil {
			b.Fatal(err)
		}
	}
	n := 0
	d := NewDecoder(nil)
	for b.Loop() {
		if n%len(all) == 0 {
			d = NewDecoder(&again{file})
		}
		n++
		if _, err := d.Next(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*words(&all[0])), "ns/word")
}

// again is the file once more.
type again struct{ b []byte }

func (a *again) Read(p []byte) (int, error) {
	if len(a.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, a.b)
	a.b = a.b[n:]
	return n, nil
}

func BenchmarkWindowPut(b *testing.B) {
	all := snapshots(b, 256)
	w := NewWindow(0)
	n := 0
	wall := all[0].Wall
	for b.Loop() {
		s := all[n%len(all)]
		wall += second
		s.Wall = wall
		n++
		if err := w.Put(&s); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(w.Bytes())/float64(w.Ticks()), "B/tick")
}

// BenchmarkSelect asks an hour of ticks for one counter, one histogram, and
// all counters.
func BenchmarkSelect(b *testing.B) {
	const ticks = 3600
	h := newHost(b)
	window := NewWindow(64 << 20)
	mem := vfs.NewMem()
	file, err := mem.Create("x.rzr")
	if err != nil {
		b.Fatal(err)
	}
	e := NewEncoder(EncoderOptions{})
	var buf []byte
	for range ticks {
		s := h.next()
		if buf, err = e.Append(buf, s); err != nil {
			b.Fatal(err)
		}
		if err := window.Put(s); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := file.Write(buf); err != nil {
		b.Fatal(err)
	}
	recording, err := Open(mem, "x.rzr")
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range []reader{window, recording} {
		for _, want := range []struct {
			name string
			f    func(s *metric.Series) bool
		}{
			{"counter", func(s *metric.Series) bool { return s.Desc.Kind == metric.Counter && s.Values[0] == "2500" }},
			{"histogram", func(s *metric.Series) bool { return s.Desc.Kind == metric.Histogram && s.Values[0] == "2003" }},
			{"counters", func(s *metric.Series) bool { return s.Desc.Kind == metric.Counter }},
		} {
			b.Run(fmt.Sprintf("%T/%s", r, want.name), func(b *testing.B) {
				for b.Loop() {
					columns, err := r.Select(context.Background(), 0, math.MaxInt64, want.f)
					if err != nil || len(columns) == 0 || len(columns[0].Time) != ticks {
						b.Fatalf("%d columns: %v", len(columns), err)
					}
				}
			})
		}
	}
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if _, err := Open(mem, "x.rzr"); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(buf))/ticks, "B/tick")
	})
}

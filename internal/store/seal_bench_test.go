// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"syscall"
	"testing"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
	"rezolus/internal/vfs"
)

var recordingFlag = flag.String("recording", "", "a recording to measure with, instead of a made-up host")

// benchRows are a recording in rows: that of the flag, or one of a made-up
// host.
func benchRows(b *testing.B) []byte {
	b.Helper()
	if *recordingFlag != "" {
		f, err := os.Open(*recordingFlag)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		var rows []byte
		d, e := NewDecoder(f), NewEncoder(EncoderOptions{})
		for {
			s, err := d.Next()
			if err == io.EOF || errors.Is(err, ErrTruncated) {
				return rows
			}
			if err == nil {
				rows, err = e.Append(rows, s)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	var rows []byte
	h, e := newHost(b), NewEncoder(EncoderOptions{})
	for range 1000 {
		var err error
		if rows, err = e.Append(rows, h.next()); err != nil {
			b.Fatal(err)
		}
	}
	return rows
}

// BenchmarkSeal compares rows and columns: what a tick takes, and what it
// costs to make the one of the other.
func BenchmarkSeal(b *testing.B) {
	rows := benchRows(b)
	var columns, ticks, inRows int
	for b.Loop() {
		columns, ticks, inRows = 0, 0, 0
		s := newSealer(func(out []byte) error { columns += len(out); return nil })
		for records := NewRecords(bytes.NewReader(rows)); ; {
			rec, err := records.Next()
			if err == io.EOF {
				break
			}
			if err == nil {
				err = s.record(rec)
			}
			if err != nil {
				b.Fatal(err)
			}
			if rec.Type == TypeTick {
				ticks++
				inRows += len(rec.Raw)
			}
		}
		if err := s.flush(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*ticks), "ns/tick")
	b.ReportMetric(float64(columns)/float64(ticks), "B/tick")
	b.ReportMetric(float64(inRows)/float64(ticks), "rows-B/tick")
}

// BenchmarkUnseal makes rows of columns.
func BenchmarkUnseal(b *testing.B) {
	columns := sealed(b, benchRows(b), sealBytes)
	ticks := 0
	for b.Loop() {
		ticks = 0
		for d := NewDecoder(bytes.NewReader(columns)); ; ticks++ {
			if _, err := d.Next(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*ticks), "ns/tick")
}

// day is 24 hours at a second of 5,000 series: 4,940 counters and gauges of
// which a fifth changes in a tick, 64 of them of source cpu and each second,
// and 60 histograms with 10 values a tick.
func day(b *testing.B) []byte {
	b.Helper()
	r, s := rand.New(rand.NewPCG(5, 6)), dayHost(b)
	out := appendHeader(nil)
	e := NewEncoder(EncoderOptions{Plain: true})
	e.headed = true
	sealing := newSealer(func(b []byte) error { out = append(out, b...); return nil })
	var buf []byte
	for range 86_400 {
		s.Seq++
		s.Wall, s.Mono = s.Wall+second, s.Mono+second
		for i := range s.Frames {
			f := &s.Frames[i]
			f.Begin = s.Mono + r.Int64N(20_000)
			f.End = f.Begin + r.Int64N(20_000)
			switch {
			case i == 0:
				for j := range f.Values {
					f.Values[j] += 10_000_000 * (50 + r.Uint64N(50))
				}
			case i <= 8:
				for range 120 {
					f.Values[r.IntN(609)] += r.Uint64N(1000)
				}
			default:
				for j := range 60 {
					for range 10 {
						v := math.Exp(9 + float64(j)/12 + 1.2*r.NormFloat64())
						f.Values[496*j+hist.Default.Index(uint64(v))]++
					}
				}
			}
		}
		var err error
		if buf, err = e.Append(buf[:0], s); err != nil {
			b.Fatal(err)
		}
		for rest := buf; len(rest) > 0; {
			rec, err := parseRecord(rest)
			if err == nil {
				err = sealing.record(rec)
			}
			if err != nil {
				b.Fatal(err)
			}
			rest = rest[len(rec.Raw):]
		}
	}
	if err := sealing.flush(); err != nil {
		b.Fatal(err)
	}
	return frontRecord(out, TypeEnd, flagSkip, sealing.total.append)
}

// dayHost is the host of day, before its first tick.
func dayHost(b *testing.B) *metric.Snapshot {
	b.Helper()
	s := metric.Snapshot{Run: &metric.Run{Host: "bench"}, Wall: 1_763_700_000 * second, Interval: second}
	add := func(source string, d *metric.Desc, n int) {
		var series []metric.Series
		for j := range n {
			series = append(series, metric.Series{Desc: d, Values: []string{fmt.Sprintf("%s-%d", source, j)}, Start: 1})
		}
		schema, err := metric.NewSchema(source, series)
		if err != nil {
			b.Fatal(err)
		}
		f := metric.Frame{Schema: schema}
		f.Resize(schema.Words)
		s.Frames = append(s.Frames, f)
	}
	add("cpu", &metric.Desc{Name: "cpu", Kind: metric.Counter, Keys: []string{"id"}}, 64)
	for i := range 8 {
		add(fmt.Sprint("counters", i), &metric.Desc{Name: "counter", Kind: metric.Counter, Keys: []string{"id"}}, 609)
	}
	add("latencies", &metric.Desc{Name: "latency", Kind: metric.Histogram, Power: hist.Default, Keys: []string{"id"}}, 60)
	return &s
}

// BenchmarkDay asks a day of 5,000 series.
func BenchmarkDay(b *testing.B) {
	path := b.TempDir() + "/day.rzr"
	if err := os.WriteFile(path, day(b), 0o600); err != nil {
		b.Fatal(err)
	}
	var r *Recording
	b.Run("open", func(b *testing.B) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for b.Loop() {
			if r != nil {
				r.Close()
			}
			var err error
			if r, err = Open(vfs.OS, path); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/1e6, "MB-held")
		b.ReportMetric(float64(r.Info().Bytes)/86_400, "B/tick")
	})
	first, last := r.Bounds()
	for _, q := range []struct {
		name string
		from int64
		want func(s *metric.Series) bool
	}{
		{"histogram-1h", last - 3600*second, func(s *metric.Series) bool { return s.Desc.Name == "latency" && s.Values[0] == "latencies-30" }},
		{"cpu-24h", first, func(s *metric.Series) bool { return s.Desc.Name == "cpu" }},
		{"everything-1h", last - 3600*second, everything},
	} {
		b.Run(q.name, func(b *testing.B) {
			for b.Loop() {
				if columns, err := r.Select(context.Background(), q.from, last, q.want); err != nil || len(columns) == 0 {
					b.Fatalf("%d columns: %v", len(columns), err)
				}
			}
		})
	}
	b.Run("dump-24h", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			out := fmt.Sprintf("%s.%d", path, n)
			x, err := NewExcerpt(context.Background(), math.MinInt64, math.MaxInt64, r)
			if err == nil {
				err = x.WriteFile(context.Background(), vfs.OS, out)
			}
			if err != nil {
				b.Fatal(err)
			}
			if err := os.Remove(out); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRecord is all that a recorder does, into a real file: what comes
// is put, synced and sealed. Of 6,000 words some fifty change in a tick, as at
// a millisecond on a small host.
func BenchmarkRecord(b *testing.B) {
	r := rand.New(rand.NewPCG(7, 8))
	counter := &metric.Desc{Name: "counter", Kind: metric.Counter, Keys: []string{"id"}}
	latency := &metric.Desc{Name: "latency", Kind: metric.Histogram, Power: hist.Default, Keys: []string{"id"}}
	var series []metric.Series
	for i := range 1040 {
		series = append(series, metric.Series{Desc: counter, Values: []string{fmt.Sprint(i)}, Start: 1})
	}
	for i := range 10 {
		series = append(series, metric.Series{Desc: latency, Values: []string{fmt.Sprint(i)}, Start: 1})
	}
	schema, err := metric.NewSchema("source", series)
	if err != nil {
		b.Fatal(err)
	}
	f := metric.Frame{Schema: schema}
	f.Resize(schema.Words)
	s := metric.Snapshot{Run: &metric.Run{Host: "bench"}, Wall: 1_763_700_000 * second, Interval: 1_000_000, Frames: []metric.Frame{f}}
	path := b.TempDir() + "/x.rzr"
	w, err := Create(vfs.OS, path, WriterOptions{EncoderOptions: EncoderOptions{Interval: 1_000_000, Plain: true}})
	if err != nil {
		b.Fatal(err)
	}
	var heap runtime.MemStats
	peak := uint64(0)
	before := cpuTime(b)
	n := 0
	for b.Loop() {
		s.Seq++
		s.Wall, s.Mono = s.Wall+1_000_000, s.Mono+1_000_000
		s.Frames[0].Begin, s.Frames[0].End = s.Mono+r.Int64N(9000), s.Mono+9000+r.Int64N(9000)
		for range 25 {
			f.Values[r.IntN(200)] += 1 + r.Uint64N(50_000)
		}
		for i := range 25 {
			v := math.Exp(9 + 1.2*r.NormFloat64())
			f.Values[1040+496*(i%10)+hist.Default.Index(uint64(v))]++
		}
		if err := w.Put(&s); err != nil {
			b.Fatal(err)
		}
		if n++; n%20_000 == 0 {
			runtime.ReadMemStats(&heap)
			peak = max(peak, heap.Sys-heap.HeapReleased)
		}
	}
	rows := w.Size()
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(n), "cpu-ns/tick")
	b.ReportMetric(float64(rows)/float64(n), "rows-B/tick")
	b.ReportMetric(float64(w.Size())/float64(n), "B/tick")
	b.ReportMetric(float64(peak)/1e6, "MB-peak")
}

// cpuTime is the CPU time of the process in nanoseconds.
func cpuTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

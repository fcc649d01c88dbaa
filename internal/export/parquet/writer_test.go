// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"rezolus/internal/metric"
)

// world makes ticks of three sources whose series come and go: counters that
// restart, gauges of both kinds, histograms of two powers.
type world struct {
	t       testing.TB
	seq     uint64
	offset  int64 // of the wall clock
	r       *rand.Rand
	run     *metric.Run
	n       int
	schemas [3]*metric.Schema
	words   [3][]uint64
	groups  []int // the cgroups that are there
}

var (
	usage = &metric.Desc{Name: "cpu_usage", Help: "time spent", Unit: metric.Nanoseconds,
		Kind: metric.Counter, Keys: []string{"id", "state"}, Sampler: "cpu_usage"}
	cores = &metric.Desc{Name: "cpu_cores", Kind: metric.Gauge, Sampler: "cpu_cores"}
	load  = &metric.Desc{Name: "load", Kind: metric.Gauge, Float: true, Keys: []string{"unit"}}
	wait  = &metric.Desc{Name: "scheduler_runqueue_latency", Help: "time waited", Kind: metric.Histogram,
		Unit: metric.Nanoseconds, Power: 3, Sampler: "scheduler_runqueue"}
	request = &metric.Desc{Name: "request_latency", Kind: metric.Histogram, Unit: metric.Nanoseconds,
		Power: 5, Keys: []string{"instance", "node", "source"}}
	cgroupUsage = &metric.Desc{Name: "cgroup_cpu_usage", Kind: metric.Counter, Keys: []string{"name"}}
)

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 7)), run: &metric.Run{Started: 1_700_000_000e9,
		Host: "alpha", Kernel: "6.18.0", Arch: "amd64", Version: "1.2.3", ID: [16]byte{1, 2}, Boot: [16]byte{3}}}
	w.begin(5)
	return w
}

// begin is the beginning of an agent whose counters count from a moment on.
func (w *world) begin(start int64) {
	w.schema(0, []metric.Series{
		{Desc: usage, Values: []string{"0", "user"}, Start: start}, {Desc: usage, Values: []string{"0", "system"}, Start: start},
		{Desc: usage, Values: []string{"1", "user"}, Start: start}, {Desc: wait, Start: start + 1}})
	w.schema(1, []metric.Series{{Desc: cores}, {Desc: load, Values: []string{"x"}},
		{Desc: request, Values: []string{"i1", "n1", "s1"}, Start: start + 4}})
	w.schema(2, []metric.Series{{Desc: cgroupUsage, Values: []string{"other"}, Start: start}})
}

func (w *world) schema(i int, series []metric.Series) {
	s, err := metric.NewSchema(fmt.Sprintf("source%d", i), series)
	if err != nil {
		w.t.Fatal(err)
	}
	w.schemas[i], w.words[i] = s, make([]uint64, s.Words)
}

// tick is the next tick. A source may be missing, a series new or gone.
func (w *world) tick() *metric.Snapshot {
	w.n++
	if w.n%40 == 0 {
		w.groups = append(w.groups, w.n)
		if len(w.groups) > 3 {
			w.groups = w.groups[1:]
		}
		series := []metric.Series{{Desc: cgroupUsage, Values: []string{"other"}, Start: int64(w.n)}}
		for _, g := range w.groups {
			series = append(series, metric.Series{Desc: cgroupUsage, Values: []string{fmt.Sprint("/g", g)}, Start: int64(g)})
		}
		w.schema(2, series)
	}
	switch w.n {
	case 350: // the agent is started anew
		w.run = &metric.Run{Started: 1_700_000_350e9, Host: "alpha", ID: [16]byte{9}, Boot: [16]byte{3}}
		w.seq = 0
		w.begin(1_700_000_350e9)
	case 400: // the clock is set back
		w.offset = -3600e9
	}
	w.seq++
	s := &metric.Snapshot{Run: w.run, Seq: w.seq, Interval: 1e9, Wall: 1_700_000_000e9 + int64(w.n)*1e9 + w.offset, Mono: int64(w.n) * 1e9}
	if w.n > 500 {
		s.Interval = 5e8
	}
	if w.n == 77 {
		s.Missed = 3
	}
	for i, schema := range w.schemas {
		if w.r.IntN(8) == 0 {
			continue
		}
		words := w.words[i]
		for range 1 + w.r.IntN(len(words)) {
			words[w.r.IntN(len(words))] += w.r.Uint64N(1 << w.r.IntN(40))
		}
		if i == 1 {
			words[0] = uint64(-w.r.Int64N(9))
			words[1] = math.Float64bits(w.r.NormFloat64())
		}
		s.Frames = append(s.Frames, metric.Frame{Schema: schema, Begin: s.Mono + int64(i), End: s.Mono + int64(i)*3 + 5,
			Values: append([]uint64(nil), words...), Lost: uint64(w.n / 100)})
	}
	return s
}

func write(t testing.TB, o Options, ticks []*metric.Snapshot) ([]byte, Written) {
	t.Helper()
	return writeWith(t, o, ticks, nil)
}

// writeWith writes gaps before some of the ticks.
func writeWith(t testing.TB, o Options, ticks []*metric.Snapshot, gaps map[int]Gap) ([]byte, Written) {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range ticks {
		if g, ok := gaps[i]; ok {
			w.Gap(g)
		}
		if err := w.Put(s); err != nil {
			t.Fatal(err)
		}
	}
	done, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), done
}

func manyTicks(t testing.TB, n int) (all []*metric.Snapshot) {
	w := newWorld(t, 1)
	for range n {
		all = append(all, w.tick())
	}
	return all
}

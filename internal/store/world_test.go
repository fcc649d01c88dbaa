// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// world is an agent in small: sources whose series come and go, fail and
// start over. It is the same for the same seed.
type world struct {
	r       *rand.Rand
	run     *metric.Run
	sources []*source
	seq     uint64
	wall    int64
	mono    int64
	born    int
}

type source struct {
	name   string
	series []metric.Series
	schema *metric.Schema
	words  []uint64
	stale  bool // the membership changed since the schema was made
}

const second = int64(1e9)

var (
	descSwitch = &metric.Desc{Name: "switches", Kind: metric.Counter, Keys: []string{"id", "kind"}}
	descLoad   = &metric.Desc{Name: "load", Kind: metric.Gauge, Float: true}
	descFree   = &metric.Desc{Name: "free", Kind: metric.Gauge, Unit: metric.Bytes, Keys: []string{"name"}}
	descWait   = &metric.Desc{Name: "wait", Kind: metric.Histogram, Unit: metric.Nanoseconds, Power: hist.Default, Keys: []string{"name"}}
)

func newWorld(seed uint64) *world {
	w := &world{r: rand.New(rand.NewPCG(seed, 1)), wall: 1_763_700_000 * second, mono: 5 * second}
	w.restart()
	for i := range 3 {
		w.sources = append(w.sources, &source{name: fmt.Sprintf("source%d", i), stale: true})
		for range 1 + w.r.IntN(5) {
			w.birth(w.sources[i])
		}
	}
	return w
}

// restart makes it another agent's life.
func (w *world) restart() {
	run := metric.Run{Started: w.wall, Host: "host", Kernel: "6.1.0", Arch: "amd64", Version: "test"}
	for i := range run.ID {
		run.ID[i], run.Boot[i] = byte(w.r.Uint32()), 7
	}
	w.run, w.seq = &run, 0
}

func (w *world) birth(s *source) {
	w.born++
	name := fmt.Sprintf("%s/%d", s.name, w.born)
	e := []metric.Series{
		{Desc: descSwitch, Values: []string{name, "voluntary"}},
		{Desc: descFree, Values: []string{name}},
		{Desc: descWait, Values: []string{name}},
	}[w.r.IntN(3)]
	if s.name == "source0" && len(s.series) == 0 {
		e = metric.Series{Desc: descLoad}
	}
	e.Start = w.wall
	s.series, s.stale = append(s.series, e), true
}

// change lets series be born, die and start over.
func (w *world) change(s *source) {
	switch w.r.IntN(4) {
	case 0:
		w.birth(s)
	case 1:
		if len(s.series) > 1 {
			i := w.r.IntN(len(s.series))
			s.series, s.stale = slices.Delete(slices.Clone(s.series), i, i+1), true
		}
	case 2:
		s.series = slices.Clone(s.series)
		s.series[w.r.IntN(len(s.series))].Start, s.stale = w.wall, true
	}
}

// read gives the source's frame, and remembers its words by identity.
func (w *world) read(t testing.TB, s *source, f *metric.Frame) {
	if s.stale {
		old := s.schema
		schema, err := metric.NewSchema(s.name, slices.Clone(s.series))
		if err != nil {
			t.Fatal(err)
		}
		words := make([]uint64, schema.Words)
		if old != nil {
			for i := range schema.Series {
				e := &schema.Series[i]
				for j := range old.Series {
					if identity(e) == identity(&old.Series[j]) && e.Start == old.Series[j].Start {
						copy(words[e.Off:e.Off+e.Desc.Words()], s.words[old.Series[j].Off:])
					}
				}
			}
		}
		s.schema, s.words, s.stale = schema, words, false
	}
	for i := range s.schema.Series {
		w.count(&s.schema.Series[i], s.words)
	}
	f.Schema, f.Begin = s.schema, w.mono+w.r.Int64N(1000)
	f.End, f.Lost = f.Begin+w.r.Int64N(1000), uint64(w.r.IntN(3))
	f.Values = append(f.Values[:0], s.words...)
}

func (w *world) count(e *metric.Series, words []uint64) {
	if w.r.IntN(3) > 0 {
		return
	}
	switch {
	case e.Desc.Kind == metric.Histogram:
		for range 1 + w.r.IntN(5) {
			words[e.Off+w.r.IntN(e.Desc.Words())] += 1 + w.r.Uint64N(300)
		}
	case e.Desc.Float:
		words[e.Off] = math.Float64bits(w.r.NormFloat64())
	case e.Desc.Kind == metric.Gauge:
		words[e.Off] = w.r.Uint64() >> w.r.IntN(64)
	default:
		words[e.Off] += w.r.Uint64() >> (8 + w.r.IntN(56))
	}
}

// tick takes one snapshot, with one chance in three of a change of series
// and one in eight of a source that fails.
func (w *world) tick(t testing.TB) *metric.Snapshot {
	w.seq++
	w.wall, w.mono = w.wall+second, w.mono+second
	s := &metric.Snapshot{Run: w.run, Seq: w.seq, Wall: w.wall, Mono: w.mono, Interval: second, Missed: uint64(w.r.IntN(10) / 9)}
	for _, src := range w.sources {
		if w.r.IntN(3) == 0 {
			w.change(src)
		}
		if w.r.IntN(8) == 0 {
			continue
		}
		s.Frames = append(s.Frames, metric.Frame{})
		w.read(t, src, &s.Frames[len(s.Frames)-1])
	}
	return s
}

func (w *world) ticks(t testing.TB, n int) (all []*metric.Snapshot) {
	for range n {
		all = append(all, w.tick(t))
	}
	return all
}

// sample is a column's sample as a plain value.
type sample struct {
	time, start int64
	words       []uint64
}

// flat is a column as plain values, in the order of identities.
type flat struct {
	id      string
	samples []sample
	gone    []int64
}

// expect is what Select must give, by the plainest means: over[i] is when
// all series ended after tick i, if they did.
func expect(all []*metric.Snapshot, over map[int]int64, from, to int64) []flat {
	byID := map[string]*flat{}
	last := map[string]*metric.Schema{}
	live := map[string]bool{}
	end := func(id string, at int64) {
		if live[id] && at <= to {
			byID[id].gone = append(byID[id].gone, at)
		}
		delete(live, id)
	}
	for n, s := range all {
		for i := range s.Frames {
			f := &s.Frames[i]
			if s.Wall < from || s.Wall > to {
				continue
			}
			here := map[string]bool{}
			for j := range f.Schema.Series {
				e := &f.Schema.Series[j]
				id := identity(e)
				here[id] = true
				if byID[id] == nil {
					byID[id] = &flat{id: id}
				}
				live[id] = true
				byID[id].samples = append(byID[id].samples, sample{s.Wall, e.Start, f.Values[e.Off:][:e.Desc.Words()]})
			}
			if old := last[f.Schema.Source]; old != nil {
				for j := range old.Series {
					if id := identity(&old.Series[j]); !here[id] {
						end(id, s.Wall)
					}
				}
			}
			last[f.Schema.Source] = f.Schema
		}
		if at, ok := over[n]; ok {
			for id := range live {
				end(id, at)
			}
			clear(last)
		}
	}
	var out []flat
	for _, f := range byID {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b flat) int { return cmp.Compare(a.id, b.id) })
	return out
}

// flatten turns columns into plain values, adding up the steps.
func flatten(t testing.TB, columns []metric.Column) (out []flat) {
	t.Helper()
	for _, c := range columns {
		f := flat{id: identity(&metric.Series{Desc: c.Desc, Values: c.Labels}), gone: c.Gone}
		buckets := make([]uint64, c.Desc.Words())
		at := 0
		for i := range c.Time {
			s := sample{time: c.Time[i], start: c.Start[i]}
			if c.Desc.Kind == metric.Histogram {
				for ; at < c.End[i]; at++ {
					buckets[c.Step[at].Bucket] += uint64(c.Step[at].Add)
				}
				s.words = slices.Clone(buckets)
			} else {
				s.words = c.Word[i : i+1]
			}
			f.samples = append(f.samples, s)
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b flat) int { return cmp.Compare(a.id, b.id) })
	return out
}

// same reports the first difference between two sets of columns.
func same(got, want []flat) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d columns, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		if g.id != w.id || len(g.samples) != len(w.samples) {
			return fmt.Errorf("column %q with %d samples, want %q with %d", g.id, len(g.samples), w.id, len(w.samples))
		}
		if !slices.Equal(g.gone, w.gone) {
			return fmt.Errorf("column %q gone at %d, want %d", g.id, g.gone, w.gone)
		}
		for j := range w.samples {
			a, b := g.samples[j], w.samples[j]
			if a.time != b.time || a.start != b.start || !slices.Equal(a.words, b.words) {
				return fmt.Errorf("column %q sample %d is %v, want %v", g.id, j, a, b)
			}
		}
	}
	return nil
}

func everything(*metric.Series) bool { return true }

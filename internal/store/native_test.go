// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
	"rezolus/internal/vfs"
)

// nativeTicks are n ticks of a source with two native histograms. Now and then
// one of them needs more slots, becomes coarser, begins anew, or is away; once
// the source begins with few slots again.
func nativeTicks(t testing.TB, seed uint64, n int) (all []*metric.Snapshot) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 3))
	w := newWorld(seed)
	type one struct {
		name   string
		start  int64
		schema int64
		counts map[hist.Slot]uint64
	}
	both := []*one{{name: "a", schema: 3}, {name: "b", schema: 3}}
	var slots []hist.Slot
	for i := range n {
		w.wall, w.mono, w.seq = w.wall+second, w.mono+second, w.seq+1
		if i == n/2 {
			slots, both[0].counts, both[1].counts = nil, nil, nil
		}
		var series []metric.Series
		for _, h := range both {
			if h.counts == nil || r.IntN(20) == 0 {
				h.counts, h.start, h.schema = map[hist.Slot]uint64{hist.SlotThreshold: math.Float64bits(1e-9)}, w.wall-second/2, 3
			}
			if r.IntN(10) == 0 && h.schema > -4 {
				h.schema--
				coarser := map[hist.Slot]uint64{}
				for s, c := range h.counts {
					coarser[s.Coarser(1)] += c
				}
				h.counts = coarser
			}
			h.counts[hist.SlotSchema], h.counts[hist.SlotSum] = uint64(h.schema), math.Float64bits(r.NormFloat64())
			slots = hist.Cover(slots, observe(r, h.counts))
		}
		d := &metric.Desc{Name: "rpc_seconds", Help: "times", Unit: "seconds", Kind: metric.Native, Slots: slots, Keys: []string{"op"}}
		away := r.IntN(10) == 0
		for _, h := range both {
			if h.name != "b" || !away {
				series = append(series, metric.Series{Desc: d, Values: []string{h.name}, Start: h.start})
			}
		}
		schema, err := metric.NewSchema("scrape/x", series)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) > 0 && all[len(all)-1].Frames[0].Schema.Hash == schema.Hash {
			schema = all[len(all)-1].Frames[0].Schema
		}
		f := metric.Frame{Schema: schema, Begin: w.mono, End: w.mono + 5, Values: make([]uint64, schema.Words)}
		for k := range schema.Series {
			h := both[k]
			for i, s := range slots {
				f.Values[schema.Series[k].Off+i] = h.counts[s]
			}
		}
		all = append(all, &metric.Snapshot{Run: w.run, Seq: w.seq, Wall: w.wall, Mono: w.mono, Interval: second, Frames: []metric.Frame{f}})
	}
	return all
}

// observe counts some values, and gives the slots of all buckets that count.
func observe(r *rand.Rand, counts map[hist.Slot]uint64) (used []hist.Slot) {
	for range r.IntN(4) {
		s := hist.BucketSlot(int32(r.NormFloat64()*20), r.IntN(4) == 0)
		if r.IntN(5) == 0 {
			s = hist.SlotZero
		}
		counts[s]++
		counts[hist.SlotCount]++
	}
	for s := range counts {
		if _, _, ok := s.Bucket(); ok {
			used = append(used, s)
		}
	}
	slices.Sort(used)
	return used
}

// nativeSample is one sample of a native histogram, as text.
func nativeSample(wall, start int64, words map[hist.Slot]uint64) string {
	var slots []hist.Slot
	for s, w := range words {
		if w != 0 {
			slots = append(slots, s)
		}
	}
	slices.Sort(slots)
	b := fmt.Sprintf("%d %d", wall, start)
	for _, s := range slots {
		b += fmt.Sprintf(" %d:%d", s, words[s])
	}
	return b
}

// natives are all samples that were put, in order of series and time.
func natives(all []*metric.Snapshot, name string) (lines []string) {
	for _, s := range all {
		for _, e := range s.Frames[0].Schema.Series {
			if e.Values[0] != name {
				continue
			}
			words := map[hist.Slot]uint64{}
			for i, slot := range e.Desc.Slots {
				words[slot] = s.Frames[0].Values[e.Off+i]
			}
			lines = append(lines, nativeSample(s.Wall, e.Start, words))
		}
	}
	return lines
}

// selectedNatives are those that a reader gives, and when each series was gone.
func selectedNatives(t testing.TB, r reader, from, to int64, name string) (lines []string, gone []int64) {
	t.Helper()
	columns, err := r.Select(context.Background(), from, to, func(s *metric.Series) bool { return s.Values[0] == name })
	if err != nil || len(columns) > 1 {
		t.Fatalf("%d columns, %v", len(columns), err)
	}
	for _, c := range columns {
		words := map[hist.Slot]uint64{}
		at := 0
		for i := range c.Time {
			for ; at < c.End[i]; at++ {
				words[hist.Slot(c.Step[at].Bucket)] += uint64(c.Step[at].Add)
			}
			lines = append(lines, nativeSample(c.Time[i], c.Start[i], words))
		}
		gone = c.Gone
	}
	return lines, gone
}

// TestNativeHistogramsKeepEveryCount through changes of their slots: in the
// window, in rows, in columns, and as a stream.
func TestNativeHistogramsKeepEveryCount(t *testing.T) {
	for seed := range uint64(12) {
		all := nativeTicks(t, seed, 60)
		e, window := NewEncoder(EncoderOptions{KeyEvery: 7}), NewWindow(64<<20)
		var b []byte
		for _, s := range all {
			var err error
			if b, err = e.Append(b, s); err == nil {
				err = window.Put(s)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		d := NewDecoder(bytes.NewReader(b))
		for _, want := range all {
			got, err := d.Next()
			if err == nil {
				err = equalTicks(got, want)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for name, r := range map[string]reader{"window": window, "rows": open(t, b), "columns": open(t, sealed(t, b, 0)), "short segments": open(t, sealed(t, b, 40))} {
			for _, part := range [][2]int{{0, 59}, {13, 47}} {
				for _, series := range []string{"a", "b"} {
					in := all[part[0] : part[1]+1]
					got, gone := selectedNatives(t, r, in[0].Wall, in[len(in)-1].Wall, series)
					if want := natives(in, series); !slices.Equal(got, want) {
						t.Fatalf("seed %d, %s, %s: got\n%s\nwant\n%s", seed, name, series, strings.Join(got, "\n"), strings.Join(want, "\n"))
					}
					if series == "a" && len(gone) != 0 {
						t.Errorf("seed %d, %s: the series that was always there was gone at %d", seed, name, gone)
					}
				}
			}
		}
	}
}

// sayNatives is what a recording has of native histograms, as text.
func sayNatives(t testing.TB, r *Recording) string {
	t.Helper()
	var b strings.Builder
	for _, name := range []string{"a", "b"} {
		lines, gone := selectedNatives(t, r, math.MinInt64, math.MaxInt64, name)
		fmt.Fprintf(&b, "rpc_seconds{op=%q}, gone at %d\n  %s\n", name, gone, strings.Join(lines, "\n  "))
	}
	return b.String()
}

// TestGoldenNatives reads the first files that had native histograms.
func TestGoldenNatives(t *testing.T) {
	rows, columns, text := filepath.Join("testdata", "golden-v1-native-rows.rzr"), filepath.Join("testdata", "golden-v1-native-columns.rzr"),
		filepath.Join("testdata", "golden-v1-native.txt")
	if *golden {
		writeGoldenNatives(t, rows, columns, text)
	}
	want, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{rows, columns} {
		if got := sayNatives(t, openIn(t, vfs.OS, path)); got != string(want) {
			t.Errorf("%s holds\n%s\nwant\n%s", path, got, want)
		}
	}
}

func writeGoldenNatives(t *testing.T, rows, columns, text string) {
	wr, err := Create(vfs.OS, rows, WriterOptions{Rows: true, EncoderOptions: EncoderOptions{KeyEvery: 8}})
	for _, s := range nativeTicks(t, 5, 40) {
		if err == nil {
			err = wr.Put(s)
		}
	}
	if err == nil {
		err = wr.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := openIn(t, vfs.OS, rows)
	if _, err = Copy(context.Background(), vfs.OS, columns, CopyOptions{}, r); err == nil {
		err = os.WriteFile(text, []byte(sayNatives(t, r)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

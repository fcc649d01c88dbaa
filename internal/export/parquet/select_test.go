// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// flat is a column with the buckets of each sample, by their numbers.
type flat struct {
	Time, Start, Gone []int64
	Word              []uint64
	Buckets           []map[int32]int64
}

func flatten(t *testing.T, columns []metric.Column) map[string]flat {
	t.Helper()
	all := map[string]flat{}
	for i := range columns {
		c := &columns[i]
		f := flat{Time: c.Time, Start: c.Start, Word: c.Word, Gone: c.Gone}
		now, from := map[int32]int64{}, 0
		for _, end := range c.End {
			for _, s := range c.Step[from:end] {
				if now[s.Bucket] += s.Add; now[s.Bucket] == 0 {
					delete(now, s.Bucket)
				}
			}
			from = end
			sample := map[int32]int64{}
			for k, v := range now {
				sample[k] = v
			}
			f.Buckets = append(f.Buckets, sample)
		}
		id := fmt.Sprint(Name(c.Desc, c.Labels), c.Desc.Kind, c.Desc.Power)
		if _, twice := all[id]; twice {
			t.Errorf("%s twice", id)
		}
		all[id] = f
	}
	return all
}

// recorded is the same ticks as a recording.
func recorded(t *testing.T, ticks []*metric.Snapshot, gap map[int]Gap) *store.Recording {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.rzr")
	w, err := store.Create(vfs.OS, path, store.WriterOptions{Sync: -1})
	for i, s := range ticks {
		if g, ok := gap[i]; ok && err == nil {
			err = w.WriteGap(store.Gap{From: g.From, To: g.To, Ticks: g.Ticks, Reason: g.Reason})
		}
		if err == nil {
			err = w.Put(s)
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := store.Open(vfs.OS, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// twins are series with one life, or two at once: a cgroup that is read after
// its end, and those that follow it under its name.
func twins(t *testing.T, i int) metric.Frame {
	t.Helper()
	h := &metric.Desc{Name: "twin_latency", Kind: metric.Histogram, Power: 2, Keys: []string{"name"}}
	c := &metric.Desc{Name: "twin", Kind: metric.Counter, Keys: []string{"name"}}
	lives := []int64{int64(10 + i/60)}
	if i%60 < 20 && i/60%2 == 1 {
		lives = append(lives, lives[0]-1)
	}
	if i > 400 && i < 500 {
		lives = append(lives, 3)
	}
	var series []metric.Series
	for _, d := range []*metric.Desc{c, h} {
		for _, start := range lives {
			series = append(series, metric.Series{Desc: d, Values: []string{"/x"}, Start: start})
		}
	}
	schema, err := metric.NewSchema("twins", series)
	if err != nil {
		t.Fatal(err)
	}
	f := metric.Frame{Schema: schema, Values: make([]uint64, schema.Words)}
	for _, e := range schema.Series {
		f.Values[e.Off] = uint64(e.Start)*1000 + uint64(i)
	}
	return f
}

// TestSelectIsThatOfARecording asks a file and a recording of the same ticks
// the same: with restarts, series that come and go, a clock that is set back,
// a gap, and native histograms whose slots become others.
func TestSelectIsThatOfARecording(t *testing.T) {
	ticks := manyTicks(t, 700)
	for i, s := range ticks {
		if i%7 == 3 {
			continue
		}
		buckets := []hist.Slot{hist.BucketSlot(3, false), hist.BucketSlot(int32(-50*(i/90)), true)}
		slots := hist.Cover(nil, buckets)
		schema, err := metric.NewSchema("native", []metric.Series{{Desc: &metric.Desc{Name: "n", Kind: metric.Native, Slots: slots}, Start: 5}})
		if err != nil {
			t.Fatal(err)
		}
		f := metric.Frame{Schema: schema, Begin: s.Mono, End: s.Mono, Values: make([]uint64, len(slots))}
		for k := range slots {
			f.Values[k] = uint64(i/3*k) % 17
		}
		s.Frames = append(s.Frames, f, twins(t, i))
	}
	gap := map[int]Gap{220: {ticks[219].Wall + 1, ticks[220].Wall - 1, 3, "the agent was away"}}
	recording := recorded(t, ticks, gap)
	for _, o := range []Options{{RowGroup: 64}, {Form: Tidy, RowGroup: 700}} {
		b, _ := writeWith(t, o, ticks, gap)
		file := open(t, b).File
		first, last := recording.Bounds()
		if a, b := file.Bounds(); a != first || b != last {
			t.Errorf("bounds %d and %d, want %d and %d", a, b, first, last)
		}
		if got := file.Gaps(); len(got) != 1 || got[0] != gap[220] {
			t.Errorf("gaps %+v, want %+v", got, gap)
		}
		for _, span := range [][2]int64{{math.MinInt64, math.MaxInt64}, {ticks[100].Wall, ticks[230].Wall}, {ticks[340].Wall + 1, ticks[349].Wall - 1},
			{ticks[390].Wall, ticks[398].Wall}, {ticks[650].Wall, ticks[699].Wall}, {1, 2}} {
			for _, name := range []string{"", "scheduler_runqueue_latency", "cgroup_cpu_usage", "load", "n", "twin", "twin_latency", "nothing"} {
				want := func(e *metric.Series) bool { return name == "" || e.Desc.Name == name }
				a, err := recording.Select(context.Background(), span[0], span[1], want)
				if err != nil {
					t.Fatal(err)
				}
				b, err := file.Select(context.Background(), span[0], span[1], want)
				if err != nil {
					t.Fatal(err)
				}
				if a, b := flatten(t, a), flatten(t, b); !reflect.DeepEqual(a, b) {
					t.Fatalf("%v %q in %v (-recording +Parquet):\n%s", o, name, span, cmp.Diff(a, b))
				}
			}
		}
	}
}

// TestTwoLivesAtOnce have a column each, in which each goes on, and come back as
// they were.
func TestTwoLivesAtOnce(t *testing.T) {
	var ticks []*metric.Snapshot
	for i := range 600 {
		ticks = append(ticks, &metric.Snapshot{Run: &metric.Run{}, Seq: uint64(i + 1), Wall: int64(i) * 1e9, Interval: 1e9, Frames: []metric.Frame{twins(t, i)}})
	}
	for form, want := range map[Form][]string{
		Wide: {"0x0", "1x0:buckets", "0x1", "1x1:buckets", "0x2", "1x2:buckets"},
		Tidy: {`twin{name="/x"}`, `twin_latency{name="/x"}`, `twin{name="/x"}#2`, `twin_latency{name="/x"}#2`, `twin{name="/x"}#3`, `twin_latency{name="/x"}#3`}} {
		b, _ := write(t, Options{Form: form, RowGroup: 64}, ticks)
		r := open(t, b)
		var names []string
		lives := map[string]string{}
		for _, c := range decodeArrow(r.meta[arrowKey])[2:] {
			names = append(names, c.name)
			lives[c.name] = c.meta["name"] + c.meta[keyLife]
		}
		if !slices.Equal(names, want) || lives[names[0]] != "/x" || lives[names[2]] != "/x2" || lives[names[4]] != "/x3" {
			t.Errorf("%s: columns %q with %v", form, names, lives)
		}
		for i, s := range ticks {
			got, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if a, b := byStart(s), byStart(got); !reflect.DeepEqual(a, b) {
				t.Fatalf("%s: tick %d is %v, want %v", form, i, b, a)
			}
		}
		for _, o := range r.File.origins {
			for _, in := range o.columns {
				if len(in.values) != 1 {
					t.Errorf("%s: labels %v", form, in.desc.Keys)
				}
			}
		}
	}
}

// byStart are the first words of a tick's series, by name and start.
func byStart(s *metric.Snapshot) map[string]uint64 {
	all := map[string]uint64{}
	for _, f := range s.Frames {
		for _, e := range f.Schema.Series {
			all[fmt.Sprint(e.Desc.Name, e.Start, e.Values)] = f.Values[e.Off]
		}
	}
	return all
}

// TestTicksOfASpan are those of the whole within it, wherever reading begins.
func TestTicksOfASpan(t *testing.T) {
	ticks := manyTicks(t, 700)
	b, _ := write(t, Options{RowGroup: 50, Windows: true}, ticks)
	file := open(t, b).File
	for _, span := range [][2]int{{0, 20}, {333, 360}, {120, 121}, {600, 699}} {
		from, to := ticks[span[0]].Wall, ticks[span[1]].Wall
		r := file.Ticks(from, to, nil)
		n := 0
		for _, want := range ticks {
			if want.Wall < from || want.Wall > to {
				continue
			}
			got, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if got.Seq != want.Seq || got.Wall != want.Wall || got.Mono != want.Mono || got.Missed != want.Missed || *got.Run != *want.Run {
				t.Fatalf("%v: tick %+v, want %+v", span, got, want)
			}
			if diff := cmp.Diff(plain(want, true), plain(got, true)); diff != "" {
				t.Fatalf("%v (-want +got):\n%s", span, diff)
			}
			n++
		}
		if s, err := r.Next(); err == nil {
			t.Errorf("%v: %d at the end", span, s.Wall)
		}
		if n == 0 {
			t.Errorf("%v: nothing", span)
		}
	}
	only := file.Ticks(math.MinInt64, math.MaxInt64, func(e *metric.Series) bool { return e.Desc.Name == "load" })
	if s, err := only.Next(); err != nil || len(only.lanes) != 5 || len(s.Frames) > 1 {
		t.Errorf("%d columns are read for one metric: %v", len(only.lanes), err)
	}
}

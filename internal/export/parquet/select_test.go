// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
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
		s.Frames = append(s.Frames, f)
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
			for _, name := range []string{"", "scheduler_runqueue_latency", "cgroup_cpu_usage", "load", "n", "nothing"} {
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

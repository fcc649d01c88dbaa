// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"rezolus/internal/metric"
	"rezolus/internal/vfs"
)

// besideTicks has what is read of two lives of one series, by the moments from
// which they count: each tick the lives that are there, and their words.
func besideTicks(t *testing.T, kind metric.Kind, ticks ...map[int64]uint64) (all []*metric.Snapshot) {
	t.Helper()
	d := &metric.Desc{Name: "m", Kind: kind, Keys: []string{"name"}}
	if kind == metric.Histogram {
		d.Power = 2
	}
	schemas := map[string]*metric.Schema{}
	run := &metric.Run{Started: 1}
	for i, lives := range ticks {
		var series []metric.Series
		key := ""
		for _, start := range []int64{9, 5, 7} {
			if _, there := lives[start]; there {
				series = append(series, metric.Series{Desc: d, Values: []string{"/x"}, Start: start})
				key += string(rune('0' + start))
			}
		}
		if schemas[key] == nil {
			s, err := metric.NewSchema("s", series)
			if err != nil {
				t.Fatal(err)
			}
			schemas[key] = s
		}
		s, wall := schemas[key], int64(i+1)*1e9
		f := metric.Frame{Schema: s, Begin: wall, End: wall, Values: make([]uint64, s.Words)}
		for _, e := range s.Series {
			f.Values[e.Off] = lives[e.Start]
		}
		all = append(all, &metric.Snapshot{Run: run, Seq: uint64(i + 1), Wall: wall, Mono: wall, Interval: 1e9, Frames: []metric.Frame{f}})
	}
	return all
}

// TestLivesBesideOneAnother: of two lives of one series the one that began
// last counts, from when it is there and for good; rows and columns agree.
func TestLivesBesideOneAnother(t *testing.T) {
	type lives = map[int64]uint64
	ticks := []lives{{5: 100}, {5: 101, 7: 0}, {5: 102, 7: 1}, {5: 102}, {5: 102, 9: 4}, {9: 6}, {9: 7, 7: 3}}
	words, starts := []uint64{100, 0, 1, 4, 6, 7}, []int64{5, 7, 7, 9, 9, 9}
	times, gone := []int64{1e9, 2e9, 3e9, 5e9, 6e9, 7e9}, []int64{4e9, 8e9}
	for _, kind := range []metric.Kind{metric.Counter, metric.Histogram} {
		all := besideTicks(t, kind, ticks...)
		window := NewWindow(1 << 20)
		path := filepath.Join(t.TempDir(), "x.rzr")
		w, err := Create(vfs.OS, path, WriterOptions{Sync: -1})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if err := window.Put(s); err != nil {
				t.Fatal(err)
			}
			if err := w.Put(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		recording, err := Open(vfs.OS, path)
		if err != nil {
			t.Fatal(err)
		}
		defer recording.Close()
		for name, r := range map[string]interface {
			Select(context.Context, int64, int64, func(*metric.Series) bool) ([]metric.Column, error)
		}{"window": window, "recording": recording} {
			columns, err := r.Select(context.Background(), 0, 9e9, everything)
			if err != nil || len(columns) != 1 {
				t.Fatalf("%s: %d columns, %v", name, len(columns), err)
			}
			c := &columns[0]
			got := c.Word
			if kind == metric.Histogram {
				now, from := uint64(0), 0
				for _, end := range c.End {
					for _, s := range c.Step[from:end] {
						now += uint64(s.Add)
					}
					got, from = append(got, now), end
				}
			}
			if !slices.Equal(c.Time, times) || !slices.Equal(got, words) || !slices.Equal(c.Start, starts) {
				t.Errorf("%s of a %s: at %v %v since %v", name, kind, c.Time, got, c.Start)
			}
			if want := gone[:1+len(c.Gone)/2]; !slices.Equal(c.Gone, want) {
				t.Errorf("%s of a %s: ends %v, want %v", name, kind, c.Gone, want)
			}
		}
	}
}

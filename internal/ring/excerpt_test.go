// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"bytes"
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// TestDumpThroughEverything takes every third range out of a ring that was
// restarted, lost ticks, and had its clock set back, with files in columns and
// a tail in rows that is longer than the way from key tick to key tick.
func TestDumpThroughEverything(t *testing.T) {
	m, c := vfs.NewMem(), newClock(t)
	o := Options{Age: time.Hour, Segment: 25 * time.Second}
	r := mustOpen(t, m, o)
	walls := map[uint64]int64{}
	more := func(n int) {
		for range n {
			put(t, r, c, 1)
			walls[c.n] = c.s.Wall
		}
	}
	more(40)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	c.restart(false)
	c.s.Wall, c.s.Mono = c.s.Wall+10*second, c.s.Mono+10*second
	r = mustOpen(t, m, o)
	more(30)
	if err := r.Gap(store.Gap{From: c.s.Wall + second, To: c.s.Wall + 5*second, Ticks: 5, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	c.s.Wall, c.s.Mono, c.s.Seq = c.s.Wall+5*second, c.s.Mono+5*second, c.s.Seq+5
	more(20)
	c.s.Wall -= 25 * second
	more(30)
	r.o.Segment = time.Hour // what follows stays in rows
	more(100)
	first, last := walls[1], walls[c.n]
	for from := first - second; from <= last; from += 3 * second {
		for to := from; to <= last+second; to += 17 * second {
			var want []uint64
			for n := uint64(1); n <= c.n; n++ {
				if walls[n] >= from && walls[n] <= to {
					want = append(want, n)
				}
			}
			var out bytes.Buffer
			x, release, err := r.Excerpt(context.Background(), from, to)
			if err == nil {
				err = x.Send(&out, m, func() error { return nil })
				release()
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []uint64
			d := store.NewDecoder(&out)
			for s, err := d.Next(); err == nil; s, err = d.Next() {
				got = append(got, s.Frames[0].Values[0])
			}
			if !slices.Equal(got, want) || !d.Closed() || x.Ticks != uint64(len(want)) {
				t.Fatalf("seconds %d to %d: %v, want %v", (from-first)/second, (to-first)/second, got, want)
			}
		}
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}

// TestFilesStayForReaders: what the ring lets go while it is read stays as
// long, and counts as free: a slow reader does not cost the ring its files.
func TestFilesStayForReaders(t *testing.T) {
	m, c := vfs.NewMem(), newClock(t)
	f := vfs.NewFaulty(m)
	r := mustOpen(t, f, Options{Age: time.Hour, Segment: 10 * time.Second, Reserve: 50_000})
	put(t, r, c, 200)
	x, release, err := r.Excerpt(context.Background(), math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	before, files := r.Status(), len(names(t, m))
	f.SetSpace(50_000 - before.Bytes/4) // somebody else fills the disk
	r.work()
	s := r.Status()
	if s.Dropped == 0 || s.Dropped > uint64(before.Segments)/2 || r.leaving == 0 || r.leaving < before.Bytes/4 {
		t.Errorf("of %d files went %d, %d bytes are leaving", before.Segments, s.Dropped, r.leaving)
	}
	if got := len(names(t, m)); got != files {
		t.Errorf("%d files of %d are left while they are read", got, files)
	}
	put(t, r, c, 5) // recording goes on
	var out bytes.Buffer
	if err := x.Send(&out, m, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	d, n := store.NewDecoder(&out), uint64(0)
	for _, err := d.Next(); err == nil; _, err = d.Next() {
		n++
	}
	if n != 200 || !d.Closed() {
		t.Errorf("%d ticks were read", n)
	}
	release()
	var want []string
	for _, f := range r.files {
		want = append(want, filepath.Base(f.h.path))
	}
	if r.spare != nil {
		want = append(want, filepath.Base(r.path(r.spare.number, logExt)))
	}
	slices.Sort(want)
	if got := names(t, m); !slices.Equal(got, want) || r.leaving != 0 {
		t.Errorf("behind the reader are %q left, want %q; %d bytes are leaving", got, want, r.leaving)
	}
	if all := numbers(t, r); len(all) == 0 || all[len(all)-1] != 205 || r.Status().Lost != 0 {
		t.Errorf("the ring has %d ticks", len(all))
	}
	var none []metric.Column
	if none, err = r.Select(context.Background(), 0, x.First, func(*metric.Series) bool { return true }); err != nil || len(none) > 0 && len(none[0].Time) > 0 {
		t.Errorf("what went is still read: %d columns, %v", len(none), err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"rezolus/internal/metric"
	"rezolus/internal/vfs"
)

func openIn(t testing.TB, fsys vfs.FS, path string) *Recording {
	t.Helper()
	r, err := Open(fsys, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// TestCopyIsExact cuts a part out of recordings in rows and in columns.
func TestCopyIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all, rows, over := anyRecording(t, rt)
		m := vfs.NewMem()
		m.WriteFile("rows", rows)
		m.WriteFile("columns", sealed(t, rows, rapid.SampledFrom([]int{0, 40, 1 << 20}).Draw(rt, "changes")))
		a, b := rapid.IntRange(0, len(all)-1).Draw(rt, "from"), rapid.IntRange(0, len(all)-1).Draw(rt, "to")
		a, b = min(a, b), max(a, b)
		from, to := all[a].Wall, all[b].Wall+rapid.Int64Range(0, second-1).Draw(rt, "more")
		part := map[int]int64{b - a: all[b].Wall + second}
		for i, at := range over {
			if i >= a && i < b {
				part[i-a] = at
			}
		}
		for _, name := range []string{"rows", "columns"} {
			got, err := Copy(context.Background(), m, "part of "+name, CopyOptions{From: from, To: to}, openIn(t, m, name))
			if err != nil {
				rt.Fatal(err)
			}
			r := openIn(t, m, "part of "+name)
			if info := r.Info(); got.Ticks != uint64(b-a+1) || info.Ticks != got.Ticks || info.Bytes != got.Bytes || !info.Closed || len(info.Damage) > 0 {
				rt.Fatalf("%s: %+v, want %d ticks and %d bytes: %+v", name, info, b-a+1, got.Bytes, got)
			}
			if err := same(selected(t, r, math.MinInt64, math.MaxInt64, everything), expect(all[a:b+1], part, math.MinInt64, math.MaxInt64)); err != nil {
				rt.Fatalf("%s: %v", name, err)
			}
			if gaps := len(r.Info().Gaps); gaps > 1 {
				rt.Fatalf("%s: %d gaps", name, gaps)
			}
		}
	})
}

// TestJoinedGoesOn splits a recording into files, as a ring does, and reads
// them as one.
func TestJoinedGoesOn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(rt, "seed"))
		m := vfs.NewMem()
		var all []*metric.Snapshot
		var files []*Recording
		over := map[int]int64{}
		for n := range rapid.IntRange(1, 4).Draw(rt, "files") {
			ticks := w.ticks(t, rapid.IntRange(1, 9).Draw(rt, "ticks"))
			b := encode(t, EncoderOptions{KeyEvery: 3}, ticks)
			if n > 0 && rapid.IntRange(0, 2).Draw(rt, "gap") == 0 {
				gap := frontRecord(nil, TypeGap, flagSkip, (&Gap{From: 1, To: 2, Reason: "test"}).append)
				b = slices.Insert(b, headerSize, gap...)
				over[len(all)-1] = ticks[0].Wall - 1
			}
			name := fmt.Sprint("f", n)
			m.WriteFile(name, b)
			if rapid.Bool().Draw(rt, "columns") {
				m.WriteFile(name, sealed(t, b, 1<<20))
				m2 := openIn(t, m, name)
				if _, err := Copy(context.Background(), m, name+".c", CopyOptions{GoesOn: true}, m2); err != nil {
					rt.Fatal(err)
				}
				name += ".c"
			}
			all = append(all, ticks...)
			files = append(files, openIn(t, m, name))
		}
		j := Join(files...)
		if first, last := j.Bounds(); first != all[0].Wall || last != w.wall {
			rt.Fatalf("bounds %d %d", first, last)
		}
		if err := same(selected(t, j, 0, math.MaxInt64, everything), expect(all, over, 0, math.MaxInt64)); err != nil {
			rt.Fatal(err)
		}
	})
}

func TestCopyKeepsWhatIsThere(t *testing.T) {
	m := vfs.NewMem()
	m.WriteFile("a", encode(t, EncoderOptions{}, newWorld(31).ticks(t, 5)))
	m.WriteFile("b", []byte("precious"))
	if _, err := Copy(context.Background(), m, "b", CopyOptions{}, openIn(t, m, "a")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("copy over a file: %v, want ErrExist", err)
	}
	if got := m.ReadFile("b"); string(got) != "precious" {
		t.Errorf("the file is now %q", got)
	}
	f := vfs.NewFaulty(m)
	f.SetSpace(100)
	if _, err := Copy(context.Background(), f, "c", CopyOptions{}, openIn(t, m, "a")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("copy to a full disk: %v, want ENOSPC", err)
	}
	if names, err := m.List("."); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("files %q are left: %v", names, err)
	}
}

// TestDamageWithinColumns flips every byte of a sealed recording: what is read
// was written, and what is lost is said.
func TestDamageWithinColumns(t *testing.T) {
	all := newWorld(32).ticks(t, 8)
	b := sealed(t, encode(t, EncoderOptions{}, all), 60)
	truth := expect(all, nil, 0, math.MaxInt64)
	for n := headerSize; n < len(b); n++ {
		bad := slices.Clone(b)
		bad[n] ^= 1 << (n % 8)
		r := open(t, bad)
		for _, f := range selected(t, r, 0, math.MaxInt64, everything) {
			for i := range truth {
				for _, s := range f.samples {
					if truth[i].id == f.id && !contains(truth[i].samples, s) {
						t.Fatalf("byte %d: %q has %v, which was never written", n, f.id, s)
					}
				}
			}
		}
		if len(r.Info().Damage) > 0 {
			continue
		}
		// What no column needs is noticed when all is read; and a dictionary
		// that somebody has in memory need not be read at all.
		m := vfs.NewMem()
		if _, err := Copy(context.Background(), m, "x", CopyOptions{}, r); err != nil {
			t.Fatal(err)
		}
		whole := map[int]int64{len(all) - 1: all[len(all)-1].Wall + second}
		got := selected(t, openIn(t, m, "x"), 0, math.MaxInt64, everything)
		if err := same(got, expect(all, whole, 0, math.MaxInt64)); err != nil && len(r.Info().Damage) == 0 {
			t.Fatalf("byte %d of %d: changed, and nobody noticed: %v", n, len(b), err)
		}
	}
}

// TestEveryPrefixOfColumnsOpens cuts a sealed recording at every byte.
func TestEveryPrefixOfColumnsOpens(t *testing.T) {
	all := newWorld(33).ticks(t, 8)
	b := sealed(t, encode(t, EncoderOptions{}, all), 60)
	before := uint64(0)
	for n := range len(b) + 1 {
		info := open(t, b[:n]).Info()
		if info.Ticks < before || info.Bytes != int64(n) || info.Closed != (n == len(b)) {
			t.Fatalf("%d of %d bytes: %+v after %d ticks", n, len(b), info, before)
		}
		before = info.Ticks
	}
	if before != uint64(len(all)) {
		t.Errorf("%d ticks, want %d", before, len(all))
	}
}

// TestLongRecording is sealed while it is written.
func TestLongRecording(t *testing.T) {
	m := vfs.NewMem()
	w, err := Create(m, "x.rzr", WriterOptions{Sync: -1})
	if err != nil {
		t.Fatal(err)
	}
	const ticks = 1500
	h := newHost(t)
	for range ticks {
		if err := w.Put(h.next()); err != nil {
			t.Fatal(err)
		}
	}
	rows := w.Size()
	if w.shadow.off < shadowStep || w.shadow.busy == nil {
		t.Errorf("of %d bytes nothing was sealed before the end", rows)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := openIn(t, m, "x.rzr")
	info := r.Info()
	if info.Ticks != ticks || !info.Closed || info.Bytes != w.Size() || info.Bytes > rows*2/3 || r.all()[0].segment == nil {
		t.Errorf("%d ticks in %d bytes of %d: %+v", info.Ticks, w.Size(), rows, info)
	}
	columns, err := r.Select(context.Background(), 0, math.MaxInt64, func(s *metric.Series) bool { return s.Desc.Kind == metric.Counter })
	if err != nil || len(columns) != 4*563 {
		t.Fatalf("%d columns: %v", len(columns), err)
	}
	if names, _ := m.List("."); !slices.Equal(names, []string{"x.rzr"}) {
		t.Errorf("files %q are left", names)
	}
	last := map[string]uint64{}
	for _, c := range columns {
		if len(c.Time) != ticks {
			t.Fatalf("a column of %d samples", len(c.Time))
		}
		last[c.Labels[0]] = c.Word[ticks-1]
	}
	for i := range h.s.Frames {
		for j := range 563 {
			if e := &h.s.Frames[i].Schema.Series[j]; last[e.Values[0]] != h.s.Frames[i].Values[e.Off] {
				t.Fatalf("series %s ends at %d", e.Values[0], last[e.Values[0]])
			}
		}
	}
}

// TestSealingYieldsToRows fills the disk under a recording that is sealed
// while it is written.
func TestSealingYieldsToRows(t *testing.T) {
	m := vfs.NewMem()
	f := vfs.NewFaulty(m)
	w, err := Create(f, "x.rzr", WriterOptions{Sync: -1})
	if err != nil {
		t.Fatal(err)
	}
	f.SetSpace(3 << 20)
	h, ticks := newHost(t), uint64(0)
	for ; err == nil; ticks++ {
		err = w.Put(h.next())
	}
	if names, _ := m.List("."); !errors.Is(err, syscall.ENOSPC) || !slices.Equal(names, []string{"x.rzr"}) {
		t.Errorf("after %d ticks: %v, files %q", ticks, err, names)
	}
	f.SetSpace(10 << 20)
	if err := w.Put(h.next()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := openIn(t, m, "x.rzr")
	if info := r.Info(); info.Ticks != ticks || !info.Closed || len(info.Gaps) != 1 || info.Gaps[0].Ticks != 1 || len(info.Damage) > 0 {
		t.Errorf("%d ticks, want %d: gaps %+v", info.Ticks, ticks, info.Gaps)
	}
}

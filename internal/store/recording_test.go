// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rezolus/internal/metric"
	"rezolus/internal/vfs"
)

// reader is what Window and Recording have in common.
type reader interface {
	Bounds() (first, last int64)
	Series(from, to int64, yield func(*metric.Series) bool) error
	Select(ctx context.Context, from, to int64, want func(*metric.Series) bool) ([]metric.Column, error)
}

func selected(t testing.TB, r reader, from, to int64, want func(*metric.Series) bool) []flat {
	t.Helper()
	columns, err := r.Select(context.Background(), from, to, want)
	if err != nil {
		t.Fatal(err)
	}
	return flatten(t, columns)
}

func open(t testing.TB, b []byte) *Recording {
	t.Helper()
	m := vfs.NewMem()
	m.WriteFile("x.rzr", b)
	r, err := Open(m, "x.rzr")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSelectIsWhatWasPut(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(rt, "seed"))
		e := NewEncoder(EncoderOptions{KeyEvery: rapid.IntRange(1, 9).Draw(rt, "key every")})
		window := NewWindow(64 << 20)
		if rapid.Bool().Draw(rt, "small blocks") {
			window.block = 600
		}
		var all []*metric.Snapshot
		var b []byte
		over := map[int]int64{}
		for run := range 3 {
			if run > 0 {
				w.restart()
				over[len(all)-1] = w.wall + second
				w.wall += 100 * second
			}
			for range rapid.IntRange(1, 12).Draw(rt, "ticks") {
				s := w.tick(t)
				all = append(all, s)
				var err error
				if b, err = e.Append(b, s); err != nil {
					rt.Fatal(err)
				}
				if err := window.Put(s); err != nil {
					rt.Fatal(err)
				}
			}
		}
		recording := open(t, b)
		from := all[rapid.IntRange(0, len(all)-1).Draw(rt, "from")].Wall
		to := all[rapid.IntRange(0, len(all)-1).Draw(rt, "to")].Wall + rapid.Int64Range(0, 3*second).Draw(rt, "more")
		for _, want := range []func(*metric.Series) bool{everything, func(s *metric.Series) bool { return s.Desc == descWait || s.Desc.Name == "wait" }} {
			expected := slices.DeleteFunc(expect(all, over, from, to), func(f flat) bool {
				return !strings.HasPrefix(f.id, "wait\x00") && !want(&metric.Series{Desc: &metric.Desc{}})
			})
			for _, r := range []reader{window, recording} {
				if err := same(selected(t, r, from, to, want), expected); err != nil {
					rt.Fatalf("%T: %v", r, err)
				}
				if first, last := r.Bounds(); first != all[0].Wall || last != all[len(all)-1].Wall {
					rt.Fatalf("%T: bounds %d %d", r, first, last)
				}
			}
		}
		for _, r := range []reader{window, recording} {
			ids := map[string]bool{}
			if err := r.Series(from, to, func(s *metric.Series) bool { ids[identity(s)] = true; return true }); err != nil {
				rt.Fatal(err)
			}
			for _, f := range expect(all, over, from, to) {
				if !ids[f.id] {
					rt.Fatalf("%T: series %q is missing", r, f.id)
				}
			}
		}
	})
}

func TestEveryPrefixOpens(t *testing.T) {
	all := newWorld(11).ticks(t, 6)
	var ends []int // where each tick's record ends
	e := NewEncoder(EncoderOptions{KeyEvery: 3})
	var b []byte
	for _, s := range all {
		var err error
		if b, err = e.Append(b, s); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, len(b))
	}
	b = e.AppendEnd(b)
	for n := range len(b) + 1 {
		whole := 0
		for whole < len(ends) && ends[whole] <= n {
			whole++
		}
		r := open(t, b[:n])
		info := r.Info()
		if info.Ticks != uint64(whole) || info.Bytes != int64(n) || info.Closed != (n == len(b)) {
			t.Fatalf("%d bytes: %+v, want %d ticks", n, info, whole)
		}
		over := map[int]int64{}
		if info.Closed {
			over[len(all)-1] = all[len(all)-1].Wall + second
		}
		if err := same(selected(t, r, 0, math.MaxInt64, everything), expect(all[:whole], over, 0, math.MaxInt64)); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		lost := int64(n - headerSize)
		for _, d := range info.Damage {
			if !errors.Is(d.Err, ErrTruncated) || d.Offset+d.Bytes != int64(n) {
				t.Fatalf("%d bytes: damage %+v", n, d)
			}
			lost = d.Bytes
		}
		if len(info.Damage) > 1 || lost < 0 && n > 0 && len(info.Damage) != 1 {
			t.Fatalf("%d bytes: damage %+v", n, info.Damage)
		}
	}
}

// TestEveryFlippedByte changes each byte in turn: what can still be read is
// what was written, and what cannot is reported.
func TestEveryFlippedByte(t *testing.T) {
	all := newWorld(12).ticks(t, 5)
	e := NewEncoder(EncoderOptions{KeyEvery: 2})
	var b []byte
	for _, s := range all {
		var err error
		if b, err = e.Append(b, s); err != nil {
			t.Fatal(err)
		}
	}
	closed := e.AppendEnd(slices.Clone(b))
	truth := map[string]bool{}
	for _, f := range expect(all, nil, 0, math.MaxInt64) {
		for _, s := range f.samples {
			truth[fmt.Sprint(f.id, s)] = true
		}
	}
	for _, b := range [][]byte{b, closed} {
		for n := len(magic); n < len(b); n++ {
			bad := slices.Clone(b)
			bad[n] ^= byte(1 << (n % 8))
			r := open(t, bad)
			got := selected(t, r, 0, math.MaxInt64, everything)
			count := 0
			for _, f := range got {
				for _, s := range f.samples {
					if count++; !truth[fmt.Sprint(f.id, s)] {
						t.Fatalf("byte %d: %q has %v, which was never written", n, f.id, s)
					}
				}
			}
			if len(r.Info().Damage) == 0 {
				t.Fatalf("byte %d: no damage reported, %d of %d samples read", n, count, len(truth))
			}
		}
	}
}

func TestDamageInTheMiddleCostsLittle(t *testing.T) {
	all := newWorld(13).ticks(t, 40)
	b := encode(t, EncoderOptions{KeyEvery: 4}, all)
	for n := range 64 {
		b[len(b)/2+n] = 0xff
	}
	info := open(t, b).Info()
	if info.Ticks < 30 || info.Ticks >= 40 || len(info.Damage) == 0 || info.Missed == 0 {
		t.Errorf("%d of 40 ticks, missed %d, damage %v", info.Ticks, info.Missed, info.Damage)
	}
}

func TestForeignFiles(t *testing.T) {
	f := func(b string, want error) {
		t.Helper()
		m := vfs.NewMem()
		m.WriteFile("x", []byte(b))
		if _, err := Open(m, "x"); !errors.Is(err, want) || !strings.Contains(err.Error(), "x: ") {
			t.Errorf("%q: %v, want %v", b, err, want)
		}
	}
	f("PAR1", ErrForeign)
	f("hello, world", ErrForeign)
	newer := frontRecord(appendHeader(nil), 99, 0, func(b []byte) []byte { return b })
	f(string(newer), ErrUnsupported)
	if _, err := Open(vfs.NewMem(), "y"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestRecordingGrows(t *testing.T) {
	m := vfs.NewMem()
	w, err := Create(m, "x.rzr", WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(m, "x.rzr")
	if err != nil {
		t.Fatal(err)
	}
	all := newWorld(14).ticks(t, 9)
	for i, s := range all {
		if err := w.Put(s); err != nil {
			t.Fatal(err)
		}
		if err := r.Refresh(); err != nil {
			t.Fatal(err)
		}
		if err := same(selected(t, r, 0, math.MaxInt64, everything), expect(all[:i+1], nil, 0, math.MaxInt64)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Refresh(); err != nil || !r.Info().Closed {
		t.Fatalf("after close: %v, %+v", err, r.Info())
	}
}

func TestClockSetBack(t *testing.T) {
	w := newWorld(15)
	all := w.ticks(t, 10)
	w.wall -= 5 * second
	after := w.ticks(t, 3) // takes the place of ticks 6, 7, ... of before
	window := NewWindow(0)
	for _, s := range append(slices.Clone(all), after...) {
		if err := window.Put(s); err != nil {
			t.Fatal(err)
		}
	}
	recording := open(t, encode(t, EncoderOptions{}, append(slices.Clone(all), after...)))
	want := map[int64]*metric.Snapshot{}
	for _, s := range append(slices.Clone(all[:5]), after...) {
		want[s.Wall] = s
	}
	for _, r := range []reader{window, recording} {
		for _, f := range selected(t, r, 0, math.MaxInt64, everything) {
			for i, s := range f.samples {
				if i > 0 && s.time <= f.samples[i-1].time {
					t.Fatalf("%T: %q goes from %d to %d", r, f.id, f.samples[i-1].time, s.time)
				}
				if want[s.time] == nil {
					t.Fatalf("%T: %q has a sample at %d, which gave way to a newer one", r, f.id, s.time)
				}
			}
		}
		if _, last := r.Bounds(); last != after[2].Wall {
			t.Errorf("%T: last tick at %d, want %d", r, last, after[2].Wall)
		}
	}
}

func TestWindowKeepsTheLatest(t *testing.T) {
	const limit = 64 << 10
	win, w := NewWindow(limit), newWorld(16)
	var all []*metric.Snapshot
	for i := range 400 {
		all = append(all, w.tick(t))
		if err := win.Put(all[i]); err != nil {
			t.Fatal(err)
		}
		if b := win.Bytes(); b > limit+32<<10 {
			t.Fatalf("tick %d: %d bytes of %d", i, b, limit)
		}
	}
	first, last := win.Bounds()
	n := int(win.Ticks())
	if n < 10 || n >= 400 || last != w.wall || first != all[400-n].Wall {
		t.Fatalf("%d ticks from %d to %d", n, first, last)
	}
	if err := same(selected(t, win, 0, math.MaxInt64, everything), expect(all[400-n:], nil, 0, math.MaxInt64)); err != nil {
		t.Error(err)
	}
}

func TestWindowIsReadWhileItTurns(t *testing.T) {
	win := NewWindow(64 << 10)
	next := steady(t, newWorld(17).tick(t))
	done := make(chan error)
	for range 2 {
		go func() {
			var err error
			for range 50 {
				if _, e := win.Select(context.Background(), 0, math.MaxInt64, everything); e != nil {
					err = e
				}
			}
			done <- err
		}()
	}
	for readers := 2; readers > 0; {
		select {
		case err := <-done:
			if readers--; err != nil {
				t.Error(err)
			}
		default:
			if err := win.Put(next()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func FuzzOpen(f *testing.F) {
	b := encode(f, EncoderOptions{KeyEvery: 2}, newWorld(18).ticks(f, 3))
	f.Add(b)
	f.Add(append(slices.Clone(b), frontRecord(nil, TypeEnd, flagSkip, (&endFront{}).append)...))
	f.Add(sealed(f, b, 1<<20))
	f.Add(appendHeader(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := vfs.NewMem()
		m.WriteFile("x", b)
		r, err := Open(m, "x")
		if err != nil {
			if !errors.Is(err, ErrForeign) && !errors.Is(err, ErrUnsupported) {
				t.Fatalf("error %v refuses a damaged file", err)
			}
			return
		}
		if _, err := r.Select(context.Background(), math.MinInt64, math.MaxInt64, everything); err != nil {
			t.Fatal(err)
		}
		if info := r.Info(); info.Bytes != int64(len(b)) {
			t.Fatalf("%d of %d bytes accounted for", info.Bytes, len(b))
		}
	})
}

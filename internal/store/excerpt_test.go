// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"rezolus/internal/metric"
	"rezolus/internal/vfs"
)

// files are the files of a ring in the making, and all ticks that are in them.
type files struct {
	m    *vfs.Mem
	w    *world
	all  []*metric.Snapshot
	open []*Recording
}

// file adds a file of rows, or of columns with so many changes a segment;
// before puts what stands before its first tick.
func (f *files) file(t testing.TB, ticks, keyEvery, changes int, before ...func(e *Encoder, b []byte) []byte) {
	t.Helper()
	e := NewEncoder(EncoderOptions{KeyEvery: keyEvery})
	b := appendHeader(nil)
	e.headed = true
	for _, do := range before {
		b = do(e, b)
	}
	for n := range ticks {
		s := f.w.tick(t)
		f.all = append(f.all, s)
		var err error
		if b, err = e.Append(b, s); err != nil {
			t.Fatal(err)
		}
		if n == ticks/2 {
			event := Event{Time: s.Wall, Text: fmt.Sprint("tick ", s.Seq)}
			b = frontRecord(b, TypeEvent, flagSkip, event.append)
		}
	}
	if changes >= 0 {
		b = sealed(t, b, changes)
	}
	name := fmt.Sprint("file", len(f.open))
	f.m.WriteFile(name, b)
	f.open = append(f.open, openIn(t, f.m, name))
}

// within are the ticks of a range.
func (f *files) within(from, to int64) (some []*metric.Snapshot) {
	for _, s := range f.all {
		if s.Wall >= from && s.Wall <= to {
			some = append(some, s)
		}
	}
	return some
}

// check takes a range out of the files, and holds it against what was put: as
// a file, as it is sent, and as both are read.
func (f *files) check(t testing.TB, from, to int64) (*Excerpt, Info) {
	t.Helper()
	x, err := NewExcerpt(context.Background(), from, to, f.open...)
	if err != nil {
		t.Fatal(err)
	}
	want := f.within(from, to)
	var sent bytes.Buffer
	if err := x.Send(&sent, f.m, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	const path = "excerpt"
	if err := x.WriteFile(context.Background(), f.m, path); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sent.Bytes(), f.m.ReadFile(path)) || int64(sent.Len()) != x.Bytes {
		t.Fatalf("%d bytes sent, %d written, want %d", sent.Len(), len(f.m.ReadFile(path)), x.Bytes)
	}
	r := openIn(t, f.m, path)
	if err := f.m.Remove(path); err != nil {
		t.Fatal(err)
	}
	i := r.Info()
	if !i.Closed || len(i.Damage) > 0 || i.Ticks != uint64(len(want)) || x.Ticks != i.Ticks || i.First != x.First {
		t.Fatalf("%d ticks, want %d; the excerpt says %d from %d to %d: %+v", i.Ticks, len(want), x.Ticks, x.First, x.Last, i)
	}
	n := 0
	next := func(s *metric.Snapshot) error {
		if n++; n > len(want) {
			return errors.New("a tick too many")
		}
		return equalTicks(s, want[n-1])
	}
	if err := r.Each(context.Background(), math.MinInt64, math.MaxInt64, next); err != nil || n != len(want) {
		t.Fatalf("%d of %d ticks: %v", n, len(want), err)
	}
	d := NewDecoder(&sent)
	for n = 0; ; {
		s, err := d.Next()
		if err == io.EOF && d.Closed() && n == len(want) {
			return x, i
		}
		if err == nil {
			err = next(s)
		}
		if err != nil {
			t.Fatalf("as a stream, tick %d of %d: %v", n, len(want), err)
		}
	}
}

// TestExcerptIsExact takes ranges out of files in rows and in columns, through
// gaps, restarts and clocks that were set.
func TestExcerptIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := &files{m: vfs.NewMem(), w: newWorld(rapid.Uint64().Draw(rt, "seed"))}
		for range rapid.IntRange(1, 5).Draw(rt, "files") {
			var before []func(*Encoder, []byte) []byte
			switch rapid.IntRange(0, 4).Draw(rt, "what happens") {
			case 0:
				f.w.restart()
			case 1:
				g := Gap{From: f.w.wall + second, To: f.w.wall + 9*second, Ticks: 9, Reason: "test"}
				before = append(before, func(e *Encoder, b []byte) []byte { return e.AppendGap(b, g) })
				f.w.wall += 9 * second
			case 2:
				f.w.wall -= rapid.Int64Range(1, 20).Draw(rt, "set back") * second
			case 3:
				f.w.wall += 3600 * second
			}
			f.file(t, rapid.IntRange(1, 12).Draw(rt, "ticks"), rapid.IntRange(1, 9).Draw(rt, "key every"),
				rapid.SampledFrom([]int{-1, 0, 40, 1 << 20}).Draw(rt, "changes"), before...)
		}
		a, b := rapid.IntRange(0, len(f.all)-1).Draw(rt, "from"), rapid.IntRange(0, len(f.all)-1).Draw(rt, "to")
		from, to := f.all[a].Wall, f.all[b].Wall+rapid.Int64Range(0, second-1).Draw(rt, "more")
		f.check(t, min(from, to), max(from, to))
		f.check(t, math.MinInt64, math.MaxInt64)
	})
}

// TestExcerptTakesWhatIsThere: rows and segments within the range are not
// decoded, whatever is around them.
func TestExcerptTakesWhatIsThere(t *testing.T) {
	f := &files{m: vfs.NewMem(), w: newWorld(41)}
	f.file(t, 30, 10, 1<<20)
	f.file(t, 30, 10, -1)
	for _, c := range []struct {
		from, to int
		held     int // ticks that are decoded
	}{{0, 59, 0}, {0, 45, 0}, {30, 59, 0}, {40, 59, 0}, {33, 59, 7}, {29, 33, 1}, {5, 36, 25}, {12, 12, 1}} {
		x, _ := f.check(t, f.all[c.from].Wall, f.all[c.to].Wall)
		held := 0
		for _, p := range x.pieces {
			for b := p.bytes[min(len(p.bytes), map[bool]int{true: headerSize}[held == 0 && bytes.HasPrefix(p.bytes, []byte(magic))]):]; len(b) > 0; {
				rec, err := parseRecord(b)
				if err != nil {
					t.Fatal(err)
				}
				if rec.Type == TypeTick {
					held++
				}
				b = b[len(rec.Raw):]
			}
		}
		if held != c.held {
			t.Errorf("of ticks %d to %d are %d decoded, want %d", c.from, c.to, held, c.held)
		}
	}
}

// TestExcerptOverClockSetBack: a time of day that was twice is there twice,
// and what lies between is a gap.
func TestExcerptOverClockSetBack(t *testing.T) {
	for _, changes := range []int{-1, 1 << 20} {
		f := &files{m: vfs.NewMem(), w: newWorld(42)}
		f.file(t, 20, 6, changes)
		f.w.wall -= 10 * second
		f.file(t, 20, 6, changes)
		from, to := f.all[12].Wall, f.all[15].Wall
		_, i := f.check(t, from, to)
		want := Gap{From: f.all[16].Wall, To: f.all[16].Wall, Ticks: 6, Reason: "not within the time that was asked for; the clock was set"}
		if i.Ticks != 8 || len(i.Gaps) != 1 || i.Gaps[0] != want || i.First != from || i.Last != to {
			t.Errorf("%d ticks from %d to %d, gaps %+v, want %+v", i.Ticks, i.First, i.Last, i.Gaps, want)
		}
	}
}

// TestExcerptOfDamage leaves out rows that cannot be read, and says so.
func TestExcerptOfDamage(t *testing.T) {
	all := newWorld(43).ticks(t, 40)
	b := encode(t, EncoderOptions{KeyEvery: 10}, all)
	b[len(b)/2] ^= 4
	m := vfs.NewMem()
	m.WriteFile("bad", b)
	r := openIn(t, m, "bad")
	x, err := NewExcerpt(context.Background(), math.MinInt64, math.MaxInt64, r)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.WriteFile(context.Background(), m, "good"); err != nil {
		t.Fatal(err)
	}
	info := openIn(t, m, "good").Info()
	if was := r.Info(); info.Ticks != was.Ticks || info.Ticks < 30 || info.Ticks >= 40 || len(info.Damage) > 0 || !info.Closed || info.Missed != was.Missed {
		t.Errorf("%+v of %+v", info, was)
	}
}

// TestExcerptOnFullDisk leaves nothing behind, and keeps what is there.
func TestExcerptOnFullDisk(t *testing.T) {
	f := &files{m: vfs.NewMem(), w: newWorld(44)}
	f.file(t, 30, 10, 1<<20)
	x, err := NewExcerpt(context.Background(), math.MinInt64, math.MaxInt64, f.open...)
	if err != nil {
		t.Fatal(err)
	}
	full := vfs.NewFaulty(f.m)
	full.SetSpace(200)
	if err := x.WriteFile(context.Background(), full, "x"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v, want ENOSPC", err)
	}
	f.m.WriteFile("y", []byte("precious"))
	if err := x.WriteFile(context.Background(), f.m, "y"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v, want ErrExist", err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := x.WriteFile(ended, f.m, "z"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want Canceled", err)
	}
	if names, _ := f.m.List("."); !slices.Equal(names, []string{"file0", "y"}) || string(f.m.ReadFile("y")) != "precious" {
		t.Errorf("files %q", names)
	}
}

// TestExcerptStops when whoever sends says so.
func TestExcerptStops(t *testing.T) {
	f := &files{m: vfs.NewMem(), w: newWorld(45)}
	f.file(t, 30, 10, 1<<20)
	x, err := NewExcerpt(context.Background(), math.MinInt64, math.MaxInt64, f.open...)
	if err != nil {
		t.Fatal(err)
	}
	calls, enough := 0, errors.New("enough")
	err = x.Send(io.Discard, f.m, func() error {
		if calls++; calls > 1 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || calls != 2 || !strings.Contains(err.Error(), "file0") {
		t.Errorf("after %d calls: %v", calls, err)
	}
}

// FuzzExcerpt takes ranges out of whatever a file has: what comes out is whole
// unless segments were damaged.
func FuzzExcerpt(f *testing.F) {
	b := encode(f, EncoderOptions{KeyEvery: 2}, newWorld(46).ticks(f, 5))
	f.Add(b, int64(0), int64(math.MaxInt64))
	f.Add(b, int64(1_763_700_003*second), int64(1_763_700_004*second))
	f.Add(sealed(f, b, 1<<20), int64(1_763_700_003*second), int64(1_763_700_004*second))
	f.Fuzz(func(t *testing.T, b []byte, from, to int64) {
		m := vfs.NewMem()
		m.WriteFile("x", b)
		r, err := Open(m, "x")
		if err != nil {
			return
		}
		x, err := NewExcerpt(context.Background(), from, to, r)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.WriteFile(context.Background(), m, "y"); err != nil {
			t.Fatal(err)
		}
		info := openIn(t, m, "y").Info()
		segments := slices.ContainsFunc(r.all(), func(l located) bool { return l.segment != nil })
		if info.Bytes != x.Bytes || !segments && (info.Ticks != x.Ticks || len(info.Damage) > 0) {
			t.Fatalf("%d ticks, want %d: %+v", info.Ticks, x.Ticks, info)
		}
	})
}

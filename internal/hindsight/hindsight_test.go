// SPDX-License-Identifier: Apache-2.0

package hindsight

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/ring"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

const second = int64(time.Second)

// world makes ticks: a counter of them, a gauge, a histogram, and a series
// that comes and goes.
type world struct {
	s       metric.Snapshot
	schemas [2]*metric.Schema
	n       uint64
	sizes   []uint64
	hidden  bool
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{}
	series := []metric.Series{
		{Desc: &metric.Desc{Name: "ticks", Kind: metric.Counter}, Start: 1},
		{Desc: &metric.Desc{Name: "level", Kind: metric.Gauge}},
		{Desc: &metric.Desc{Name: "size", Kind: metric.Histogram, Power: 3}, Start: 1},
	}
	guest := metric.Series{Desc: &metric.Desc{Name: "guest", Kind: metric.Gauge}}
	var err [2]error
	w.schemas[0], err[0] = metric.NewSchema("world", series)
	w.schemas[1], err[1] = metric.NewSchema("world", append(slices.Clone(series), guest))
	if e := errors.Join(err[:]...); e != nil {
		t.Fatal(e)
	}
	w.sizes = make([]uint64, w.schemas[0].Words-2)
	w.s = metric.Snapshot{Run: &metric.Run{ID: [16]byte{1}, Boot: [16]byte{2}}, Wall: 1_763_700_000 * second,
		Mono: 100 * second, Interval: second, Frames: make([]metric.Frame, 1)}
	return w
}

// tick is the next tick; its counter has its number.
func (w *world) tick() *metric.Snapshot {
	w.n++
	w.s.Seq++
	w.s.Wall += second
	w.s.Mono += second
	w.sizes[w.n*7%uint64(len(w.sizes))] += w.n
	f := &w.s.Frames[0]
	f.Schema = w.schemas[0]
	if !w.hidden && w.n/9%2 == 0 {
		f.Schema = w.schemas[1]
	}
	f.Begin, f.End = w.s.Mono, w.s.Mono+1000
	f.Values = append(append(f.Values[:0], w.n, w.n*w.n%1000), w.sizes...)
	if f.Schema == w.schemas[1] {
		f.Values = append(f.Values, w.n)
	}
	return &w.s
}

// keep makes a keeper over a file system.
func keep(t *testing.T, fsys vfs.FS, o Options) *Keeper {
	t.Helper()
	o.Name, o.FS = "main", fsys
	o.Ring.Dir, o.Ring.Interval = "/ring", time.Second
	k := New(o)
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// info is what a dump of all there is says.
func info(t *testing.T, k *Keeper) store.Info {
	t.Helper()
	r := k.open.Load()
	if r == nil {
		t.Fatal("the ring is not open")
	}
	x, release, err := r.Excerpt(context.Background(), math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	path := "/dump" + time.Now().Format("150405.000000000")
	if err := x.WriteFile(context.Background(), k.o.FS, path); err != nil {
		t.Fatal(err)
	}
	rec, err := store.Open(k.o.FS, path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	return rec.Info()
}

// TestWhatIsMissingIsSaid: each way in which ticks are missing is a gap with
// its reason and its number of ticks, and a clock that was set an event.
func TestWhatIsMissingIsSaid(t *testing.T) {
	w, asleep := newWorld(t), time.Duration(0)
	k := keep(t, vfs.NewMem(), Options{Slept: func() time.Duration { return asleep }})
	put := func(n int) {
		for range n {
			k.Put(w.tick())
		}
	}
	put(3)
	asleep += time.Hour // the wall clock goes on, the monotonic one does not
	put(1)              // was taken before
	w.s.Wall += 3600 * second
	w.s.Missed = 1 // the tick behind the gap tells of it itself
	put(1)
	w.s.Missed = 0
	put(2)
	w.s.Wall += 3600 * second // set ahead: nothing is missing
	put(3)
	w.s.Wall -= 2 * 3600 * second // and back
	put(3)
	w.s.Seq, w.s.Wall, w.s.Mono = w.s.Seq+5, w.s.Wall+5*second, w.s.Mono+5*second // the mailbox was full
	put(3)
	w.s.Wall, w.s.Mono = w.s.Wall+7*second, w.s.Mono+7*second
	k.Break("the agent could not be followed")
	w.s.Missed = 2
	put(1)
	w.s.Missed = 0
	put(2)
	k.Break("it broke, and nothing is missing")
	put(3)
	i := info(t, k)
	type gap struct {
		reason string
		ticks  uint64
	}
	var got []gap
	for _, g := range i.Gaps {
		got = append(got, gap{g.Reason, g.Ticks})
	}
	want := []gap{{"the machine was suspended", 3599}, {"the disk did not keep up", 5}, {"the agent could not be followed", 5}}
	if !slices.Equal(got, want) {
		t.Errorf("gaps %v, want %v", got, want)
	}
	var events []string
	for _, e := range i.Events {
		events = append(events, e.Text)
	}
	if want := []string{"the clock was set ahead by 1h0m0s", "the clock was set back by 2h0m0s"}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
	if i.Ticks != 22 || i.Missed != 3612 {
		t.Errorf("%d ticks, %d missed", i.Ticks, i.Missed)
	}
}

// TestDiskThatFails: ticks go on, are counted, and are kept again when the
// disk is back; it is said once each way.
func TestDiskThatFails(t *testing.T) {
	fsys := vfs.NewFaulty(vfs.NewMem())
	var log bytes.Buffer
	w, k := newWorld(t), keep(t, fsys, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	fsys.FailAll(syscall.EROFS)
	for range 10 {
		k.Put(w.tick())
	}
	if s := k.Status(); s.State != "failing" || !strings.Contains(s.Reason, "read-only") || s.Lost != 10 || s.Ticks != 0 || s.Errors != 1 {
		t.Errorf("on a read-only disk: %+v", s)
	}
	if err := k.Event(store.Event{Text: "x"}); !errors.Is(err, syscall.EROFS) {
		t.Errorf("an event: %v", err)
	}
	fsys.FailAll(nil)
	k.tried = time.Time{} // it is time to try again
	for range 5 {
		k.Put(w.tick())
	}
	fsys.FailAll(syscall.EIO)
	for range 3 {
		k.Put(w.tick())
	}
	if s := k.Status(); s.State != "failing" || s.Lost != 13 || s.Ticks != 5 {
		t.Errorf("on a disk that fails: %+v", s)
	}
	fsys.FailAll(nil)
	k.Put(w.tick())
	if s := k.Status(); s.Lost != 13 || s.Ticks != 6 || s.Errors != 2 {
		t.Errorf("when it is back: %+v", s)
	}
	i := info(t, k)
	if i.Ticks != 6 || len(i.Gaps) != 1 || i.Gaps[0].Ticks != 3 {
		t.Errorf("%d ticks, gaps %v", i.Ticks, i.Gaps)
	}
	text := log.String()
	if strings.Count(text, "keeps no ticks") != 1 || strings.Count(text, "keeps ticks again") != 2 {
		t.Errorf("the log:\n%s", text)
	}
}

// hung is a disk on which a write does not come back until it is let go.
type hung struct {
	vfs.FS
	gate chan struct{} // closed: all goes on
}

type hungFile struct {
	vfs.File
	gate chan struct{}
}

func (h hung) Create(name string) (vfs.File, error) {
	f, err := h.FS.Create(name)
	return hungFile{f, h.gate}, err
}

func (f hungFile) Write(b []byte) (int, error) {
	if len(b) > 100 { // not the header of a file
		<-f.gate
	}
	return f.File.Write(b)
}

// TestDiskThatHangs: whoever asks is answered, without the ring.
func TestDiskThatHangs(t *testing.T) {
	gate := make(chan struct{})
	w, k := newWorld(t), keep(t, hung{vfs.NewMem(), gate}, Options{})
	k.hangs = 20 * time.Millisecond
	window := store.NewWindow(0)
	s := w.tick()
	if err := window.Put(s); err != nil {
		t.Fatal(err)
	}
	put := make(chan struct{})
	go func() {
		defer close(put)
		k.Put(s)
	}()
	for k.Status().HangsFor == 0 {
		time.Sleep(time.Millisecond)
	}
	if s := k.Status(); s.State != "failing" || s.Reason != "the disk does not answer" {
		t.Errorf("%+v", s)
	}
	if err := k.Event(store.Event{Text: "x"}); err == nil || !strings.Contains(err.Error(), "has not answered") {
		t.Errorf("an event: %v", err)
	}
	columns, err := NewReader(window, k).Select(context.Background(), 0, math.MaxInt64, func(*metric.Series) bool { return true })
	if err != nil || len(columns) != 4 {
		t.Errorf("a query: %d columns, %v", len(columns), err)
	}
	f := &metric.Frame{}
	if err := NewSource(func() int64 { return 1 }, 1, k).Read(f); err != nil {
		t.Error(err)
	}
	began := time.Now()
	if err := k.Close(); err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("closed in %v: %v", time.Since(began), err)
	}
	close(gate)
	<-put
}

// TestWindowAndRingReadAsOne compares a short window before a ring with one
// window that has everything.
func TestWindowAndRingReadAsOne(t *testing.T) {
	w, k := newWorld(t), keep(t, vfs.NewMem(), Options{Ring: ring.Options{Segment: 50 * time.Second}})
	whole, short := store.NewWindow(64<<20), store.NewWindow(64<<20)
	for n := range 400 {
		s := w.tick()
		if n == 200 { // a gap that everybody sees
			s.Wall, s.Mono = s.Wall+10*second, s.Mono+10*second
		}
		k.Put(s)
		if err := whole.Put(s); err != nil {
			t.Fatal(err)
		}
		if n >= 270 {
			if err := short.Put(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	first, last := whole.Bounds()
	both := NewReader(short, k)
	if f, l := both.Bounds(); f != first || l != last {
		t.Errorf("bounds %d %d, want %d %d", f, l, first, last)
	}
	all := func(*metric.Series) bool { return true }
	for range 300 {
		from := first + rand.Int64N(last-first)
		to := from + rand.Int64N(last-from+10*second)
		want, err := whole.Select(context.Background(), from, to, all)
		if err != nil {
			t.Fatal(err)
		}
		got, err := both.Select(context.Background(), from, to, all)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want)
		names := map[string]bool{}
		if err := both.Series(from, to, func(s *metric.Series) bool { names[s.Desc.Name] = true; return true }); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if len(want[i].Time) > 0 && !names[want[i].Desc.Name] {
				t.Errorf("series %s is not listed", want[i].Desc.Name)
			}
		}
		if t.Failed() {
			t.Fatalf("from tick %d to %d; the window begins with %d", (from-first)/second, (to-first)/second, 270+10)
		}
	}
}

// same compares columns by what they mean.
func same(t *testing.T, got, want []metric.Column) {
	t.Helper()
	byName := map[string]*metric.Column{}
	for i := range got {
		byName[got[i].Desc.Name] = &got[i]
	}
	for i := range want {
		w := &want[i]
		if len(w.Time) == 0 {
			continue
		}
		g := byName[w.Desc.Name]
		if g == nil {
			t.Errorf("%s is missing", w.Desc.Name)
			continue
		}
		if !slices.Equal(g.Time, w.Time) || !slices.Equal(g.Start, w.Start) || !slices.Equal(g.Word, w.Word) || !slices.Equal(g.Gone, w.Gone) {
			t.Errorf("%s:\ntimes %v\nwant  %v\nwords %v\nwant  %v\ngone %v\nwant %v", w.Desc.Name, g.Time, w.Time, g.Word, w.Word, g.Gone, w.Gone)
		}
		if w.Desc.Kind == metric.Histogram {
			for n := range w.Time {
				if a, b := buckets(g, n), buckets(w, n); !slices.Equal(a, b) {
					t.Errorf("%s at sample %d: %v, want %v", w.Desc.Name, n, a, b)
				}
			}
		}
	}
}

// buckets are the counts at a sample.
func buckets(c *metric.Column, n int) []int64 {
	counts := make([]int64, c.Desc.Power.Buckets())
	for _, s := range c.Step[:c.End[n]] {
		counts[s.Bucket] += s.Add
	}
	return counts
}

func TestSource(t *testing.T) {
	w, k := newWorld(t), keep(t, vfs.NewMem(), Options{})
	s, f := NewSource(func() int64 { return 1 }, 1, k), &metric.Frame{}
	if err := s.Read(f); err != nil {
		t.Fatal(err)
	}
	if n := len(f.Schema.Series); n != 3 || len(f.Values) != 3 {
		t.Errorf("a ring that is not open has %d series, %d values", n, len(f.Values))
	}
	for range 5 {
		k.Put(w.tick())
	}
	// A file counts from its creation, its bytes from the first tick in it.
	for k.Status().Bytes == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := s.Read(f); err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for i, e := range f.Schema.Series {
		got[e.Desc.Name] = f.Values[i]
	}
	if got["hindsight_ticks"] != 5 || got["hindsight_ticks_lost"] != 0 || got["hindsight_segments"] != 1 || got["hindsight_size"] == 0 || got["hindsight_free"] == 0 {
		t.Errorf("%v", got)
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := s.Read(f); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a read", n)
	}
}

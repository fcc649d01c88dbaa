// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

const second = int64(time.Second)

// clock makes ticks of a counter that counts them and a histogram.
type clock struct {
	s      metric.Snapshot
	schema *metric.Schema
	n      uint64
}

func newClock(t testing.TB) *clock {
	t.Helper()
	schema, err := metric.NewSchema("clock", []metric.Series{
		{Desc: &metric.Desc{Name: "ticks", Kind: metric.Counter}, Start: 1},
		{Desc: &metric.Desc{Name: "size", Kind: metric.Histogram, Power: 3}, Start: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &clock{schema: schema}
	c.s = metric.Snapshot{Run: &metric.Run{ID: [16]byte{1}, Boot: [16]byte{2}}, Wall: 1_763_700_000 * second,
		Mono: 100 * second, Interval: second, Frames: []metric.Frame{{Schema: schema, Values: make([]uint64, schema.Words)}}}
	return c
}

// tick is the next tick. Its counter has the number of the tick.
func (c *clock) tick() *metric.Snapshot {
	c.n++
	c.s.Seq++
	c.s.Wall += second
	c.s.Mono += second
	f := &c.s.Frames[0]
	f.Begin, f.End = c.s.Mono, c.s.Mono+1000
	f.Values[0] = c.n
	f.Values[1+int(c.n*7%400)] += c.n
	return &c.s
}

// restart is another life of the agent, and of the machine if boot is set.
func (c *clock) restart(boot bool) {
	run := *c.s.Run
	run.ID[0]++
	if boot {
		run.Boot[0]++
	}
	c.s.Run, c.s.Seq = &run, 0
}

// numbers are the ticks that a reader has, by the counter.
func numbers(t testing.TB, r interface {
	Select(ctx context.Context, from, to int64, want func(*metric.Series) bool) ([]metric.Column, error)
}) (all []uint64) {
	t.Helper()
	columns, err := r.Select(context.Background(), math.MinInt64, math.MaxInt64, func(*metric.Series) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range columns {
		if c.Desc.Kind == metric.Counter {
			return c.Word
		}
	}
	return nil
}

// run is the numbers from one to another.
func run(from, to uint64) (all []uint64) {
	for n := from; n <= to; n++ {
		all = append(all, n)
	}
	return all
}

func put(t testing.TB, r *Ring, c *clock, n int) {
	t.Helper()
	for range n {
		if err := r.Put(c.tick()); err != nil {
			t.Fatal(err)
		}
		select { // the work is done at once, and not by another goroutine
		case <-r.wake:
			r.work()
		default:
		}
	}
}

func mustOpen(t testing.TB, fsys vfs.FS, o Options) *Ring {
	t.Helper()
	o.Dir = "/ring"
	r, err := open(fsys, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// names are the files of a ring, but for its lock.
func names(t testing.TB, fsys vfs.FS) []string {
	t.Helper()
	all, err := fsys.List("/ring")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(name string) bool { return name == lockName })
}

func TestRingKeepsTheLatest(t *testing.T) {
	m, c := vfs.NewMem(), newClock(t)
	r := mustOpen(t, m, Options{Age: 100 * time.Second, Segment: 10 * time.Second})
	put(t, r, c, 500)
	r.work()
	got := numbers(t, r)
	if n := len(got); n < 100 || n > 125 || !slices.Equal(got, run(501-uint64(n), 500)) {
		t.Fatalf("%d ticks, %v to %v", n, got[0], got[n-1])
	}
	s := r.Status()
	first, last := r.Bounds()
	if s.Ticks != 500 || s.Lost != 0 || s.Dropped < 30 || s.Newest != c.s.Wall || s.Oldest != c.s.Wall-int64(len(got)-1)*second ||
		first != s.Oldest || last != s.Newest || s.Trouble != nil || s.Bytes < 1000 || s.Bytes > 100_000 {
		t.Errorf("status %+v", s)
	}
	sealed := 0
	for _, name := range names(t, m) {
		if strings.HasSuffix(name, sealedExt) {
			sealed++
		}
	}
	if sealed < 9 || s.Segments < sealed {
		t.Errorf("files %q", names(t, m))
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}

func TestRingByBytes(t *testing.T) {
	m, c := vfs.NewMem(), newClock(t)
	r := mustOpen(t, m, Options{Bytes: 6000, Segment: 10 * time.Second})
	put(t, r, c, 300)
	r.work()
	s := r.Status()
	got := numbers(t, r)
	if s.Bytes > 6000 || s.Bytes < 3000 || !slices.Equal(got, run(301-uint64(len(got)), 300)) {
		t.Errorf("%d bytes, %d ticks", s.Bytes, len(got))
	}
	sum := 0
	for _, name := range names(t, m) {
		sum += len(m.ReadFile("/ring/" + name))
	}
	if int64(sum) < s.Bytes || int64(sum) > s.Bytes+100 { // and the log that is ready
		t.Errorf("%d bytes on the disk, %d in the status", sum, s.Bytes)
	}
}

func TestRingLeavesSpaceToOthers(t *testing.T) {
	m, c := vfs.NewMem(), newClock(t)
	f := vfs.NewFaulty(m)
	r := mustOpen(t, f, Options{Age: time.Hour, Segment: 10 * time.Second, Reserve: 50_000})
	put(t, r, c, 100)
	if s := r.Status(); s.Dropped != 0 || s.Reserve != 50_000 {
		t.Fatalf("status %+v", s)
	}
	f.SetSpace(40_000) // somebody else fills the disk
	put(t, r, c, 30)
	if s := r.Status(); s.Lost != 0 || s.Dropped == 0 || s.Free > 40_000 {
		t.Errorf("status %+v", s)
	}
	got := numbers(t, r)
	if n := len(got); n == 0 || n > 40 || got[n-1] != 130 {
		t.Errorf("%d ticks are left", n)
	}
}

// TestRestart adopts what other lives left, whole and cut off.
func TestRestart(t *testing.T) {
	m, c := vfs.NewMem(), newClock(t)
	o := Options{Age: time.Hour, Segment: 10 * time.Second}
	r := mustOpen(t, m, o)
	put(t, r, c, 33)
	if _, err := Open(m, Options{Dir: "/ring"}); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("a ring opened twice: %v", err)
	}
	if err := r.lock.Close(); err != nil { // killed
		t.Fatal(err)
	}
	c.restart(false)
	c.s.Wall, c.s.Mono = c.s.Wall+100*second, c.s.Mono+100*second
	r = mustOpen(t, m, o)
	r.work()
	if got := numbers(t, r); !slices.Equal(got, run(1, 33)) {
		t.Fatalf("adopted %v", got)
	}
	c.s.Missed = 3 // of the 100, by the agent that runs again
	put(t, r, c, 1)
	c.s.Missed = 0
	put(t, r, c, 19)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range names(t, m) {
		if !strings.HasSuffix(name, sealedExt) {
			t.Errorf("%s is left of a ring that was closed", name)
		}
	}
	c.restart(true)
	r = mustOpen(t, m, o)
	put(t, r, c, 5)
	if got := numbers(t, r); !slices.Equal(got, run(1, 58)) {
		t.Errorf("after two restarts %v", got)
	}
	columns, err := r.Select(context.Background(), math.MinInt64, math.MaxInt64, func(*metric.Series) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if gone := columns[0].Gone; len(gone) != 2 || gone[0] != columns[0].Time[32]+second || gone[1] >= columns[0].Time[53] {
		t.Errorf("series end at %v", gone)
	}
	dump := dumped(t, m, r, math.MinInt64, math.MaxInt64)
	gaps := dump.Info().Gaps
	if len(gaps) != 2 || gaps[0].Reason != "the agent did not run" || gaps[1].Reason != "the machine did not run" ||
		gaps[0].Ticks != 97 || gaps[0].From != columns[0].Time[32]+second || gaps[0].To != columns[0].Time[33]-4*second {
		t.Errorf("gaps %+v", gaps)
	}
	if info := dump.Info(); info.Ticks != 58 || info.Missed != 100+gaps[1].Ticks || len(info.Runs) != 3 || !info.Closed {
		t.Errorf("info %+v", info)
	}
}

// dump writes a part of a ring into a file.
func dump(fsys vfs.FS, r *Ring, path string, from, to int64) error {
	x, release, err := r.Excerpt(context.Background(), from, to)
	if err != nil {
		return err
	}
	defer release()
	return x.WriteFile(context.Background(), fsys, path)
}

// dumped is a dump of a ring, opened.
func dumped(t testing.TB, m *vfs.Mem, r *Ring, from, to int64) *store.Recording {
	t.Helper()
	path := fmt.Sprintf("/dump/%d-%d.rzr", from, to)
	if err := dump(m, r, path, from, to); err != nil {
		t.Fatal(err)
	}
	if err := dump(m, r, path, from, to); !errors.Is(err, fs.ErrExist) {
		t.Errorf("dumped over a file: %v", err)
	}
	rec, err := store.Open(m, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rec.Close() })
	return rec
}

// TestDumpIsExact dumps every part of a ring.
func TestDumpIsExact(t *testing.T) {
	m, c := vfs.NewMem(), newClock(t)
	r := mustOpen(t, m, Options{Age: time.Hour, Segment: 8 * time.Second})
	zero := c.s.Wall
	put(t, r, c, 40)
	if err := r.Event(store.Event{Time: zero + 35*second, Text: "deployed"}); err != nil {
		t.Fatal(err)
	}
	for a := int64(1); a <= 40; a += 3 {
		for b := a; b <= 40; b += 5 {
			rec := dumped(t, m, r, zero+a*second, zero+b*second+second/2)
			if got := numbers(t, rec); !slices.Equal(got, run(uint64(a), uint64(b))) {
				t.Fatalf("dump of %d to %d has %v", a, b, got)
			}
			if events := rec.Info().Events; (len(events) == 1) != (a <= 35 && b >= 35) {
				t.Fatalf("dump of %d to %d has events %v", a, b, events)
			}
			if info := rec.Info(); len(info.Gaps) != 0 || info.Missed != 0 {
				t.Fatalf("dump of %d to %d: %+v", a, b, info)
			}
		}
	}
}

// TestFullDisk goes on, counts, marks the gap, and recovers.
func TestFullDisk(t *testing.T) {
	for _, trouble := range []error{syscall.ENOSPC, syscall.EIO, syscall.EROFS} {
		for _, length := range []int{1, 4, 12, 40} {
			m, c := vfs.NewMem(), newClock(t)
			f := vfs.NewFaulty(m)
			r := mustOpen(t, f, Options{Age: time.Hour, Segment: 10 * time.Second})
			put(t, r, c, 25)
			f.FailAll(trouble)
			for range length {
				if err := r.Put(c.tick()); !errors.Is(err, trouble) {
					t.Fatalf("%v: put says %v", trouble, err)
				}
				r.work()
			}
			if s := r.Status(); s.Lost != uint64(length) || !errors.Is(s.Trouble, trouble) {
				t.Fatalf("%v: status %+v", trouble, s)
			}
			f.FailAll(nil)
			put(t, r, c, 25)
			r.work()
			got := numbers(t, r)
			if want := append(run(1, 25), run(26+uint64(length), 50+uint64(length))...); !slices.Equal(got, want) {
				t.Fatalf("%v for %d ticks: %v", trouble, length, got)
			}
			rec := dumped(t, m, r, math.MinInt64, math.MaxInt64)
			info := rec.Info()
			if len(info.Gaps) != 1 || info.Gaps[0].Ticks != uint64(length) || !strings.Contains(info.Gaps[0].Reason, trouble.Error()) || info.Missed != uint64(length) {
				t.Fatalf("%v for %d ticks: %+v", trouble, length, info)
			}
			if s := r.Status(); s.Trouble != nil {
				t.Fatalf("%v is over, and the status says %v", trouble, s.Trouble)
			}
		}
	}
}

// TestNothingCanBeMade is a ring on a disk that takes nothing from the start.
func TestNothingCanBeMade(t *testing.T) {
	m, c := vfs.NewMem(), newClock(t)
	f := vfs.NewFaulty(m)
	r := mustOpen(t, f, Options{Age: time.Hour})
	f.FailAll(syscall.EROFS)
	for range 10 {
		if err := r.Put(c.tick()); err == nil {
			t.Fatal("a tick was put where nothing can be")
		}
	}
	f.FailAll(nil)
	put(t, r, c, 10)
	if got := numbers(t, r); !slices.Equal(got, run(11, 20)) {
		t.Errorf("%v", got)
	}
	if info := dumped(t, m, r, 1, math.MaxInt64).Info(); len(info.Gaps) != 1 || info.Gaps[0].Ticks != 10 {
		t.Errorf("%+v", info.Gaps)
	}
}

// TestClockSteps sets the wall clock ahead and back by an hour.
func TestClockSteps(t *testing.T) {
	for _, step := range []int64{3600 * second, -3600 * second} {
		m, c := vfs.NewMem(), newClock(t)
		r := mustOpen(t, m, Options{Age: 10 * time.Minute, Segment: 10 * time.Second})
		put(t, r, c, 100)
		c.s.Wall += step
		put(t, r, c, 100)
		r.work()
		s := r.Status()
		if s.Dropped != 0 || s.Lost != 0 || s.Ticks != 200 {
			t.Fatalf("step %d: %+v", step, s)
		}
		got, want := numbers(t, r), run(1, 200)
		if step < 0 {
			want = run(101, 200) // the newer ones count
		}
		if !slices.Equal(got, want) {
			t.Errorf("step %d: %d ticks", step, len(got))
		}
		if rec := dumped(t, m, r, math.MinInt64, math.MaxInt64); rec.Info().Ticks != 200 {
			t.Errorf("step %d: dumped %d ticks", step, rec.Info().Ticks)
		}
	}
}

// TestReadersAndDumpsWhileItTurns runs on a real file system.
func TestReadersAndDumpsWhileItTurns(t *testing.T) {
	c := newClock(t)
	dir := t.TempDir()
	r, err := Open(vfs.OS, Options{Dir: dir + "/ring", Age: 30 * time.Second, Segment: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	failed := make(chan error, 2)
	for i := range 2 {
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					failed <- nil
					return
				default:
				}
				_, err := r.Select(context.Background(), math.MinInt64, math.MaxInt64, func(*metric.Series) bool { return true })
				if err == nil {
					err = dump(vfs.OS, r, fmt.Sprintf("%s/%d-%d.rzr", dir, i, n), 0, math.MaxInt64)
				}
				if err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	for r.Status().Dropped < 20 {
		if err := r.Put(c.tick()); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	got := numbers(t, r)
	if n := len(got); n < 30 || !slices.Equal(got, run(c.n+1-uint64(n), c.n)) {
		t.Errorf("%d ticks", n)
	}
	if s := r.Status(); s.Lost != 0 || s.Trouble != nil || s.Dropped == 0 {
		t.Errorf("status %+v", s)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"rezolus/internal/metric"
)

func TestAbsenceIsNeverZero(t *testing.T) {
	good, bad, broken := newFake("good"), newFake("bad"), newFake("broken")
	bad.err, broken.panics = errors.New("no such luck"), true
	run(t, map[*fake]SourceOptions{good: {}, bad: {}, broken: {}}, func(a *Agent) {
		s := subscribe(t, a, time.Second, 4)
		tick := <-s.C()
		if _, ok := frame(tick, "good"); !ok {
			t.Error("the good source has no frame")
		}
		for _, name := range []string{"bad", "broken"} {
			if _, ok := frame(tick, name); ok {
				t.Errorf("source %s failed and has a frame", name)
			}
		}
		for _, e := range a.Status().Sources {
			want := map[string]string{"bad": "no such luck", "broken": "panic: broken"}[e.Name]
			if e.LastError != want || (want != "") != (e.Errors == 1) {
				t.Errorf("source %s: %d errors, last %q, want %q", e.Name, e.Errors, e.LastError, want)
			}
		}
	})
}

func TestAHangingSourceDelaysNobody(t *testing.T) {
	hung, good := newFake("hung"), newFake("good")
	hung.takes = []time.Duration{10 * time.Second}
	run(t, map[*fake]SourceOptions{hung: {Blocking: true}, good: {}}, func(a *Agent) {
		s := subscribe(t, a, time.Second, 20)
		frames := 0
		for n := range 15 {
			tick := <-s.C()
			if tick.Missed != 0 || tick.Seq != uint64(n+1) {
				t.Fatalf("tick %d is number %d with %d missed", n+1, tick.Seq, tick.Missed)
			}
			if _, ok := frame(tick, "hung"); ok {
				frames++
				if n < 10 {
					t.Errorf("tick %d has a frame of a read that takes 10 s", n+1)
				}
			}
			if n == 5 {
				for _, e := range a.Status().Sources {
					if e.Name == "hung" && e.HangsFor < 4 {
						t.Errorf("the status says it hangs for %v s", e.HangsFor)
					}
				}
			}
			s.Release(tick)
		}
		if frames == 0 {
			t.Error("a source that hung for 10 s gives no frame after it")
		}
	})
}

func TestASlowSourceHasItsOwnPace(t *testing.T) {
	src := newFake("a")
	run(t, map[*fake]SourceOptions{src: {Every: 100 * time.Millisecond}}, func(a *Agent) {
		fine, coarse := subscribe(t, a, 10*time.Millisecond, 200), subscribe(t, a, time.Second, 4)
		tick := <-coarse.C()
		if _, ok := frame(tick, "a"); !ok {
			t.Error("a consumer at 1 s lacks the frame of a source at 100 ms")
		}
		coarse.Release(tick)
		n := 0
		for range 100 {
			tick := <-fine.C()
			if _, ok := frame(tick, "a"); ok {
				n++
			}
			fine.Release(tick)
		}
		if n != 11 { // the first tick, and the ten multiples of 100 ms
			t.Errorf("%d frames in 100 ticks of 10 ms, want 11", n)
		}
	})
}

func TestLatestReadsOnlyWhenItMust(t *testing.T) {
	src := newFake("a")
	run(t, map[*fake]SourceOptions{src: {}}, func(a *Agent) {
		f := func(maxAge time.Duration, want uint64) {
			t.Helper()
			s, err := a.Latest(context.Background(), maxAge)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := frame(s, "a"); got != want {
				t.Errorf("the %d. read came back, want the %d.", got, want)
			}
		}
		f(time.Second, 1)
		f(time.Second, 1)
		time.Sleep(2 * time.Second)
		f(time.Second, 2)
	})
}

// values is what a consumer gets of a source in its next n ticks; 0: nothing.
func values(s *Subscription, name string, n int) []uint64 {
	var got []uint64
	for range n {
		tick := <-s.C()
		v, _ := frame(tick, name)
		got = append(got, v)
		s.Release(tick)
	}
	return got
}

// Where another consumer's tick made the agent read a slow source, a consumer
// that came between gets that frame at its own next tick, once.
func TestAFrameComesToEveryConsumerOnce(t *testing.T) {
	run(t, map[*fake]SourceOptions{newFake("a"): {Every: time.Second}}, func(a *Agent) {
		fine, coarse := subscribe(t, a, 10*time.Millisecond, 2000), subscribe(t, a, 1500*time.Millisecond, 10)
		time.Sleep(9 * time.Second)
		seen := values(coarse, "a", 5)
		for i, v := range seen {
			if v == 0 || i > 0 && v <= seen[i-1] {
				t.Errorf("ticks of 1.5 s have reads %d of a source of 1 s, want a new one in each", seen)
			}
		}
		n := uint64(0)
		for _, v := range values(fine, "a", len(fine.C())) {
			if v != 0 && v != n+1 {
				t.Errorf("read %d comes after read %d", v, n)
			}
			n = max(n, v)
		}
	})
}

func TestAScrapeTakesNobodysFrame(t *testing.T) {
	run(t, map[*fake]SourceOptions{newFake("a"): {Every: time.Second}, newFake("b"): {Blocking: true}}, func(a *Agent) {
		s := subscribe(t, a, time.Second, 10)
		values(s, "a", 2)
		for range 3 {
			time.Sleep(500 * time.Millisecond)
			for range 2 { // has all sources each time, however often it comes
				snapshot, err := a.Latest(context.Background(), 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"rezolus", "a", "b"} {
					if _, ok := frame(snapshot, name); !ok {
						t.Errorf("a scrape lacks source %s", name)
					}
				}
			}
			tick := <-s.C()
			for _, name := range []string{"rezolus", "a", "b"} {
				if _, ok := frame(tick, name); !ok {
					t.Errorf("a tick after a scrape lacks source %s", name)
				}
			}
			s.Release(tick)
		}
	})
}

func TestAScrapeHasNothingOfAFailedSource(t *testing.T) {
	plain, blocking := newFake("plain"), newFake("blocking")
	run(t, map[*fake]SourceOptions{plain: {}, blocking: {Blocking: true}}, func(a *Agent) {
		f := func(want bool) {
			t.Helper()
			for range 3 { // asked, read, heard
				if _, err := a.Latest(context.Background(), 0); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
			snapshot, err := a.Latest(context.Background(), 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []*fake{plain, blocking} {
				if _, ok := frame(snapshot, s.name); ok != want {
					t.Errorf("source %s is in the scrape: %v, want %v", s.name, ok, want)
				}
			}
		}
		f(true)
		for _, s := range []*fake{plain, blocking} {
			s.change(func() { s.err = errors.New("gone") })
		}
		f(false)
		for _, s := range []*fake{plain, blocking} {
			s.change(func() { s.err = nil })
		}
		f(true)
	})
}

func TestAHungSourceLeavesTheScrape(t *testing.T) {
	hung := newFake("hung")
	run(t, map[*fake]SourceOptions{hung: {Blocking: true}}, func(a *Agent) {
		s := subscribe(t, a, time.Second, 1000)
		values(s, "hung", 3)
		hung.change(func() { hung.takes = []time.Duration{time.Hour} })
		time.Sleep(time.Minute)
		f := func(want bool) {
			t.Helper()
			snapshot, err := a.Latest(context.Background(), time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := frame(snapshot, "hung"); ok != want {
				t.Errorf("its last frame is in the scrape: %v, want %v", ok, want)
			}
		}
		f(true)
		time.Sleep(2 * time.Minute)
		f(false)
		time.Sleep(time.Hour)
	})
}

// A source that was not said to hang holds up the loop, but not the status.
func TestTheStatusSaysWhoHoldsUpTheLoop(t *testing.T) {
	slow := newFake("slow")
	slow.takes = []time.Duration{time.Hour}
	run(t, map[*fake]SourceOptions{slow: {}}, func(a *Agent) {
		subscribe(t, a, time.Second, 1)
		time.Sleep(time.Minute)
		for _, e := range a.Status().Sources {
			if (e.Name == "slow") != (e.HangsFor > 58) {
				t.Errorf("the status says source %s hangs for %v s", e.Name, e.HangsFor)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := a.Latest(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a scrape of a loop that hangs ends with %v", err)
		}
		time.Sleep(time.Hour)
	})
}

func TestLatestOfAnAgentThatStopped(t *testing.T) {
	a := New(Options{Run: &metric.Run{}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Latest(context.Background(), 0); !errors.Is(err, errStopped) {
		t.Errorf("error %v, want that it stopped", err)
	}
}

// A pace is changed while the loop runs: the source is read less, not at all,
// and again. What it gave before it was stopped is shown to nobody.
func TestThePaceOfASourceChanges(t *testing.T) {
	plain, blocking := newFake("plain"), newFake("blocking")
	run(t, map[*fake]SourceOptions{plain: {}, blocking: {Blocking: true}}, func(a *Agent) {
		s := subscribe(t, a, time.Second, 100)
		count := func(ticks int) (n [2]int) {
			for range ticks {
				tick := <-s.C()
				for i, name := range []string{"plain", "blocking"} {
					if _, ok := frame(tick, name); ok {
						n[i]++
					}
				}
				s.Release(tick)
			}
			return n
		}
		pace := func(every time.Duration) {
			for _, name := range []string{"plain", "blocking"} {
				if !a.SetPace(name, every) {
					t.Errorf("there is no source %s", name)
				}
			}
			count(4) // until both follow
		}
		if n := count(10); n[0] != 10 || n[1] < 9 {
			t.Errorf("at every tick: %d frames of 10", n)
		}
		pace(5 * time.Second)
		if n := count(20); n != [2]int{4, 4} {
			t.Errorf("at every fifth tick: %d frames in 20", n)
		}
		pace(-1)
		if n := count(10); n != [2]int{} {
			t.Errorf("stopped: %d frames", n)
		}
		if snapshot, err := a.Latest(context.Background(), 0); err != nil || len(snapshot.Frames) != 1 {
			t.Errorf("a scrape has %d frames of stopped sources, %v", len(snapshot.Frames)-1, err)
		}
		pace(0)
		if n := count(10); n != [2]int{10, 10} {
			t.Errorf("at every tick again: %d frames of 10", n)
		}
		if a.SetPace("nobody", 0) {
			t.Error("there is a source of another name")
		}
	})
}

// TestSlowSourcesLeaveRoomForTheNextTick: five sources of a tenth of a second
// take 400 us each, more together than a tick of 1 ms has.
func TestSlowSourcesLeaveRoomForTheNextTick(t *testing.T) {
	sources := map[*fake]SourceOptions{}
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		s := newFake(name)
		s.takes = slices.Repeat([]time.Duration{400 * time.Microsecond}, 1000)
		sources[s] = SourceOptions{Every: 100 * time.Millisecond}
	}
	sources[newFake("fast")] = SourceOptions{}
	run(t, sources, func(a *Agent) {
		s := subscribe(t, a, time.Millisecond, 2000)
		time.Sleep(1100 * time.Millisecond)
		reads := map[string]uint64{}
		for range 1000 {
			tick := <-s.C()
			if _, ok := frame(tick, "fast"); !ok || tick.Missed != 0 {
				t.Errorf("tick %d has the source of every tick: %v, and %d were missed before", tick.Seq, ok, tick.Missed)
			}
			for _, name := range names {
				if v, ok := frame(tick, name); ok {
					reads[name] = v
				}
			}
			s.Release(tick)
		}
		for _, name := range names {
			if n := reads[name]; n < 10 || n > 11 {
				t.Errorf("source %s was read %d times in 10 of its intervals", name, n)
			}
		}
		// Who comes alone and seldom gets them all at once.
		s.Close()
		alone := subscribe(t, a, time.Second, 2)
		tick := <-alone.C()
		for _, name := range names {
			if _, ok := frame(tick, name); !ok {
				t.Errorf("a tick of 1 s lacks source %s", name)
			}
		}
	})
}

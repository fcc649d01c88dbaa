// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"rezolus/internal/metric"
)

func TestFollowingIsTheNextMultiple(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Int64Range(1, 1<<55).Draw(t, "now")
		offset := rapid.Int64Range(0, 1<<61).Draw(t, "offset")
		interval := rapid.Int64Range(int64(MinInterval), int64(MaxInterval)).Draw(t, "interval")
		next := following(now, offset, interval)
		if next <= now || next > now+interval || (next+offset)%interval != 0 {
			t.Fatalf("after %d with offset %d comes %d, for an interval of %d", now, offset, next, interval)
		}
	})
}

// TestAnyConsumersHaveTheirExactGrids has consumers of random intervals come
// and go: each has every multiple of its interval in its time and no other,
// and sources are read at those moments alone, once at each.
func TestAnyConsumersHaveTheirExactGrids(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 0))
		consumers := make([]consumer, 1+r.IntN(6))
		for i := range consumers {
			unit := []time.Duration{time.Millisecond, 333_333}[r.IntN(2)]
			from := time.Duration(r.Int64N(int64(5 * time.Second)))
			consumers[i] = consumer{max(MinInterval, time.Duration(1+r.IntN(3000))*unit),
				from, from + time.Duration(r.Int64N(int64(5*time.Second)))}
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) { checkGrids(t, consumers) })
	}
}

// consumer listens from one time to another.
type consumer struct{ interval, from, to time.Duration }

func checkGrids(t *testing.T, consumers []consumer) {
	src := newFake("a")
	moments := make([]map[int64]bool, len(consumers))
	run(t, map[*fake]SourceOptions{src: {}}, func(a *Agent) {
		var all sync.WaitGroup
		for i, c := range consumers {
			all.Go(func() { moments[i] = c.listen(t, a) })
		}
		all.Wait()
	})
	distinct := map[int64]bool{}
	for _, m := range moments {
		maps.Copy(distinct, m)
	}
	if src.reads != uint64(len(distinct)) {
		t.Errorf("%d reads for ticks at %d moments", src.reads, len(distinct))
	}
}

// listen returns the moments of the ticks, which it checks.
func (c consumer) listen(t *testing.T, a *Agent) map[int64]bool {
	began := time.Now()
	time.Sleep(c.from)
	s := subscribe(t, a, c.interval, 4)
	interval, now := int64(c.interval), time.Now().UnixNano()
	next := now - now%interval + interval
	moments := map[int64]bool{}
	for {
		select {
		case tick := <-s.C():
			if tick.Wall != next || tick.Missed != 0 {
				t.Errorf("%v has a tick at %d with %d missed, want it at %d", c, tick.Wall, tick.Missed, next)
			}
			moments[tick.Wall] = true
			next += interval
			s.Release(tick)
		case <-time.After(time.Until(began.Add(c.to))):
			s.Close()
			if next < time.Now().UnixNano() {
				t.Errorf("%v has no tick at %d", c, next)
			}
			return moments
		}
	}
}

// TestTheTimeOfDayIsSet sets the clock while consumers wait: no tick is lost
// or bunched, and the first one after it is stamped with the new time and the
// others lie on its grid.
func TestTheTimeOfDayIsSet(t *testing.T) {
	f := func(by time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			clock := newBubble()
			a := New(Options{Run: &metric.Run{}, Clock: clock})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- a.Run(ctx) }()
			s := subscribe(t, a, time.Second, 10)
			before := <-s.C()
			clock.set.Store(int64(by))
			first, second := <-s.C(), <-s.C()
			if d := time.Duration(first.Mono - before.Mono); d != time.Second {
				t.Errorf("set by %v: the tick after it comes %v later, want 1s", by, d)
			}
			if d := time.Duration(first.Wall - before.Wall); d != time.Second+by {
				t.Errorf("set by %v: the tick after it is stamped %v later, want %v", by, d, time.Second+by)
			}
			if d := second.Mono - first.Mono; d <= 0 || d > int64(time.Second) || second.Wall%int64(time.Second) != 0 {
				t.Errorf("set by %v: the second is %v later, at %d", by, time.Duration(d), second.Wall)
			}
			if first.Missed != 0 || second.Missed != 0 || second.Seq != before.Seq+2 {
				t.Errorf("set by %v: %d and %d missed", by, first.Missed, second.Missed)
			}
			cancel()
			<-ended
		})
	}
	f(-time.Hour)
	f(10 * time.Millisecond)
	f(time.Hour + 300*time.Millisecond)
	f(-333 * time.Millisecond)
}

// A thread that lost its CPU between reading two clocks must not take the
// delay for a new time of day.
func TestADelayIsNoNewTimeOfDay(t *testing.T) {
	clock := &delayed{}
	a := New(Options{Run: &metric.Run{}, Clock: clock})
	clock.delay = int64(20 * time.Millisecond)
	if a.followWall() {
		t.Error("20 ms between two clocks are taken for a new time of day")
	}
	clock.delay, clock.set = 0, int64(20*time.Millisecond)
	if !a.followWall() || a.followWall() {
		t.Error("a new time of day is followed not once")
	}
}

// delayed is a clock that stands still but for a delay at each Wall.
type delayed struct{ now, delay, set int64 }

func (c *delayed) Mono() int64  { return c.now }
func (c *delayed) Wall() int64  { c.now += c.delay; return c.now + c.set }
func (c *delayed) Sleep(int64)  {}
func (c *delayed) Wake()        {}
func (c *delayed) Close() error { return nil }

func TestTheMachinesClockWakes(t *testing.T) {
	clock, err := newMachineClock()
	if err != nil {
		t.Fatal(err)
	}
	defer clock.Close()
	clock.Wake()
	clock.Sleep(0) // a Wake before it is not lost, or this never ends
	go clock.Wake()
	clock.Sleep(clock.Mono() + int64(time.Hour))
	until := clock.Mono() + int64(time.Millisecond)
	for clock.Mono() < until { // also ends when nobody wakes it
		clock.Sleep(until)
	}
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"rezolus/internal/metric"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble is the clock of a synctest bubble, whose time of day can be set.
type bubble struct {
	start time.Time
	set   atomic.Int64 // nanoseconds by which the time of day was set
	woken chan struct{}
}

func newBubble() *bubble { return &bubble{start: time.Now(), woken: make(chan struct{}, 1)} }

func (b *bubble) Mono() int64  { return int64(time.Since(b.start)) + 1 }
func (b *bubble) Wall() int64  { return time.Now().UnixNano() + b.set.Load() }
func (b *bubble) Close() error { return nil }

func (b *bubble) Sleep(until int64) {
	var timer <-chan time.Time
	if until != 0 {
		timer = time.After(time.Duration(until - b.Mono()))
	}
	select {
	case <-timer:
	case <-b.woken:
	}
}

func (b *bubble) Wake() {
	select {
	case b.woken <- struct{}{}:
	default:
	}
}

// fake is a source of one counter that counts its reads.
type fake struct {
	name   string
	schema *metric.Schema
	closed bool

	mu     sync.Mutex // of what changes while the agent runs
	reads  uint64
	takes  []time.Duration // the next reads, one after the other
	err    error
	panics bool
}

func newFake(name string) *fake {
	d := &metric.Desc{Name: "reads", Kind: metric.Counter, Keys: []string{"source"}, Sampler: "test"}
	schema, err := metric.NewSchema(name, []metric.Series{{Desc: d, Values: []string{name}}})
	if err != nil {
		panic(err)
	}
	return &fake{name: name, schema: schema}
}

func (s *fake) Name() string { return s.name }
func (s *fake) Close() error { s.closed = true; return nil }
func (s *fake) Read(f *metric.Frame) error {
	s.mu.Lock()
	var takes time.Duration
	if len(s.takes) > 0 {
		takes, s.takes = s.takes[0], s.takes[1:]
	}
	s.mu.Unlock()
	time.Sleep(takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.panics {
		panic("broken")
	}
	f.Schema = s.schema
	f.Resize(1)
	f.Values[0] = s.reads
	return s.err
}

// change changes how the source behaves from now on.
func (s *fake) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *fake) count() (n uint64) { s.change(func() { n = s.reads }); return n }

// run runs an agent in a bubble until f returns.
func run(t *testing.T, sources map[*fake]SourceOptions, f func(a *Agent)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{Run: &metric.Run{Version: "test"}, Clock: newBubble()})
		for s, o := range sources {
			a.Add(s, o)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		f(a)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func subscribe(t *testing.T, a *Agent, interval time.Duration, depth int) *Subscription {
	t.Helper()
	s, err := a.Subscribe("test", interval, depth)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// frame is the value of a source in a snapshot, and whether it has one.
func frame(s *metric.Snapshot, name string) (uint64, bool) {
	for _, f := range s.Frames {
		if f.Schema.Source == name {
			return f.Values[0], true
		}
	}
	return 0, false
}

func TestEveryConsumerHasItsOwnGrid(t *testing.T) {
	src := newFake("a")
	run(t, map[*fake]SourceOptions{src: {}}, func(a *Agent) {
		intervals := []time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second}
		var subs []*Subscription
		for _, i := range intervals {
			subs = append(subs, subscribe(t, a, i, 4000))
		}
		time.Sleep(3*time.Second + time.Millisecond/2)
		for i, s := range subs {
			want := int(3 * time.Second / intervals[i])
			if len(s.C()) != want {
				t.Errorf("%v: %d ticks in 3 s, want %d", intervals[i], len(s.C()), want)
			}
			last := int64(0)
			for n := uint64(1); len(s.C()) > 0; n++ {
				tick := <-s.C()
				if tick.Seq != n || tick.Missed != 0 || tick.Wall%int64(intervals[i]) != 0 ||
					last != 0 && tick.Mono-last != int64(intervals[i]) || tick.Interval != int64(intervals[i]) {
					t.Fatalf("%v: tick %d is number %d at %d (%d missed)", intervals[i], n, tick.Seq, tick.Wall, tick.Missed)
				}
				last = tick.Mono
				s.Release(tick)
			}
			s.Close()
		}
		// A tick nobody wants is not taken.
		reads := src.count()
		time.Sleep(time.Minute)
		if n := src.count() - reads; n != 0 {
			t.Errorf("%d reads in a minute that nobody wanted", n)
		}
	})
}

func TestALateLoopSkipsAndSays(t *testing.T) {
	src := newFake("a")
	src.takes = []time.Duration{35 * time.Millisecond}
	run(t, map[*fake]SourceOptions{src: {}}, func(a *Agent) {
		s := subscribe(t, a, 10*time.Millisecond, 100)
		slow, next := <-s.C(), <-s.C()
		if next.Missed != 2 || next.Mono-slow.Mono != int64(30*time.Millisecond) || next.Seq != slow.Seq+1 {
			t.Errorf("after 35 ms in a tick of 10: %d missed, %v later", next.Missed, time.Duration(next.Mono-slow.Mono))
		}
		if a.Status().Missed != 2 {
			t.Errorf("the status says %d missed, want 2", a.Status().Missed)
		}
	})
}

func TestAFullMailboxDropsForItsOwnerOnly(t *testing.T) {
	run(t, map[*fake]SourceOptions{newFake("a"): {}}, func(a *Agent) {
		slow, fast := subscribe(t, a, time.Second, 2), subscribe(t, a, time.Second, 10)
		time.Sleep(5*time.Second + time.Millisecond)
		if slow.Dropped() != 3 || fast.Dropped() != 0 || len(fast.C()) != 5 {
			t.Errorf("dropped %d and %d, want 3 and 0", slow.Dropped(), fast.Dropped())
		}
		for range 2 {
			slow.Release(<-slow.C())
		}
		if tick := <-slow.C(); tick.Seq != 6 {
			t.Errorf("after 3 drops the tick's number is %d, want 6: the hole shows them", tick.Seq)
		}
	})
}

func TestIntervalsAreBounded(t *testing.T) {
	a := New(Options{Run: &metric.Run{}})
	defer a.stop()
	for _, i := range []time.Duration{0, -time.Second, time.Microsecond, 2 * time.Hour} {
		if _, err := a.Subscribe("x", i, 1); err == nil || !strings.Contains(err.Error(), "want 1ms to 1h0m0s") {
			t.Errorf("interval %v: error %v", i, err)
		}
	}
}

func TestSourcesAreClosedAndMailboxesToo(t *testing.T) {
	src := newFake("a")
	a := New(Options{Run: &metric.Run{}})
	a.Add(src, SourceOptions{})
	s := subscribe(t, a, time.Second, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Run(ctx); err != nil {
		t.Error(err)
	}
	if _, open := <-s.C(); open || !src.closed {
		t.Errorf("after the agent ended: mailbox open %v, source closed %v", open, src.closed)
	}
	if _, err := a.Subscribe("late", time.Second, 1); err == nil {
		t.Error("an agent that ended takes consumers")
	}
}

// TestATurnAllocatesNothing has the whole loop in it: the sleep, the reads and
// a consumer.
func TestATurnAllocatesNothing(t *testing.T) {
	a := New(Options{Run: &metric.Run{}, Self: Self{KernelMemory: func() uint64 { return 1 }}})
	defer a.stop()
	a.Add(newFake("a"), SourceOptions{})
	a.Add(newFake("b"), SourceOptions{Every: 3 * time.Millisecond})
	fine, coarse := subscribe(t, a, time.Millisecond, 4), subscribe(t, a, 5*time.Millisecond, 4)
	ticks := func(n int) {
		for n > 0 {
			a.turn()
			for _, s := range []*Subscription{fine, coarse} {
				for len(s.C()) > 0 { // a mailbox grows with what is left in it
					s.Release(<-s.C())
					n--
				}
			}
		}
	}
	ticks(30)
	// The mean is rounded down, so many at once: one in 200 would show.
	if n := testing.AllocsPerRun(1, func() { ticks(200) }); n != 0 {
		t.Errorf("%v allocations in 200 ticks", n)
	}
}

func BenchmarkTick(b *testing.B) {
	a := New(Options{Run: &metric.Run{}})
	defer a.stop()
	s, err := a.Subscribe("x", time.Millisecond, 4)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s.next = a.clock.Mono()
		a.tick()
		s.Release(<-s.C())
	}
}

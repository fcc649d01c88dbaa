// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// bubble is the clock of a synctest bubble.
type bubble struct{ start time.Time }

func (b bubble) Mono() int64            { return int64(time.Since(b.start)) + 1 }
func (b bubble) Wall() int64            { return time.Now().UnixNano() }
func (b bubble) SleepUntil(until int64) { time.Sleep(time.Duration(until - b.Mono())) }

// fake is a source of one counter that counts its reads.
type fake struct {
	name   string
	schema *metric.Schema
	reads  uint64
	takes  []time.Duration // the next reads, one after the other
	err    error
	panics bool
	closed bool
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
	if len(s.takes) > 0 {
		time.Sleep(s.takes[0])
		s.takes = s.takes[1:]
	}
	s.reads++
	if s.panics {
		panic("broken")
	}
	f.Schema = s.schema
	f.Resize(1)
	f.Values[0] = s.reads
	return s.err
}

// run runs an agent in a bubble until f returns.
func run(t *testing.T, sources map[*fake]SourceOptions, f func(a *Agent)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{Run: &metric.Run{Version: "test"}, Clock: bubble{time.Now()}})
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
		reads := src.reads
		time.Sleep(time.Minute)
		if src.reads > reads+1 {
			t.Errorf("%d reads in a minute that nobody wanted", src.reads-reads)
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

func TestIntervalsAreBounded(t *testing.T) {
	a := New(Options{Run: &metric.Run{}})
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

func TestATickAllocatesNothing(t *testing.T) {
	a := New(Options{Run: &metric.Run{}, Self: Self{KernelMemory: func() uint64 { return 1 }}})
	a.Add(newFake("a"), SourceOptions{})
	s := subscribe(t, a, time.Millisecond, 4)
	tick := func() {
		for a.clock.Mono() < s.next {
		}
		a.takeDue()
		s.Release(<-s.C())
	}
	for range 20 {
		tick()
	}
	// The mean is rounded down, so many at once: one in 200 would show.
	if n := testing.AllocsPerRun(1, func() {
		for range 200 {
			tick()
		}
	}); n != 0 {
		t.Errorf("%v allocations in 200 ticks", n)
	}
}

func TestStreamIsARecording(t *testing.T) {
	a := New(Options{Run: &metric.Run{Host: "here"}})
	a.Add(newFake("a"), SourceOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	server := httptest.NewServer(a.StreamHandler())
	defer server.Close()
	response, err := http.Get(server.URL + "?interval=2ms")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	d := store.NewDecoder(response.Body)
	for n := uint64(1); n <= 5; n++ {
		tick, err := d.Next()
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := frame(tick, "a"); !ok || v == 0 || tick.Seq != n || tick.Run.Host != "here" {
			t.Errorf("tick %d of the stream: number %d, value %d", n, tick.Seq, v)
		}
	}
	cancel()
	for err == nil {
		_, err = d.Next()
	}
	if !errors.Is(err, io.EOF) || !d.Closed() {
		t.Errorf("the stream of an agent that stopped ends with %v, closed %v", err, d.Closed())
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, query := range []string{"?interval=x", "?interval=1ns"} {
		if response, err := http.Get(server.URL + query); err != nil || response.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %v, %v; want 400", query, response.Status, err)
		}
	}
}

func BenchmarkTick(b *testing.B) {
	a := New(Options{Run: &metric.Run{}})
	s, err := a.Subscribe("x", time.Millisecond, 4)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s.next = a.clock.Mono()
		a.takeDue()
		s.Release(<-s.C())
	}
}

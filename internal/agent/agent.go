// SPDX-License-Identifier: Apache-2.0

// Package agent is the tick: it reads all sources when any consumer is due and
// gives each consumer its own copy. Nobody waits for anybody: a consumer that
// does not keep up loses ticks and is told so, a source that hangs is left
// behind.
//
// It knows neither probes nor formats; cmd/rezolus gives it its sources.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// The intervals a consumer may ask for.
const (
	MinInterval = time.Millisecond
	MaxInterval = time.Hour
)

// Source is anything that is read.
type Source interface {
	// Name is the name of the source's schemas, unique in an agent.
	Name() string
	// Read sets every field of f. It is never called twice at once, and
	// allocates nothing while the membership is steady.
	Read(f *metric.Frame) error
	Close() error
}

// SourceOptions say how a source is read.
type SourceOptions struct {
	Every    time.Duration // at most this often; 0: at every tick
	Blocking bool          // it may hang: it is read in a goroutine of its own
}

// Options of an agent. Only Run must be set.
type Options struct {
	Run  *metric.Run
	Log  *slog.Logger
	Self Self
	// Clock is for tests.
	Clock Clock
}

// Clock is time as the loop sees it.
type Clock interface {
	Mono() int64      // CLOCK_MONOTONIC
	Wall() int64      // Unix nanoseconds
	SleepUntil(int64) // returns soon after that moment of Mono
}

// Agent runs the loop. Sources are added before Run.
type Agent struct {
	run     *metric.Run
	log     *slog.Logger
	clock   Clock
	started int64
	sources []*reader
	offset  int64           // wall minus mono, as ticks are stamped
	tick    metric.Snapshot // its frames are the readers' own memory
	whole   metric.Snapshot // what Latest read last

	stats stats

	mu       sync.Mutex
	subs     []*Subscription
	closed   bool
	wake     chan struct{}
	requests chan request
}

// stats is what the loop counts of itself.
type stats struct {
	ticks, missed, dropped atomic.Uint64
	followers              atomic.Int64
	durations              []atomic.Uint64 // of ticks, by bucket
}

// New returns an agent without sources but its own.
func New(o Options) *Agent {
	a := &Agent{run: o.Run, log: o.Log, clock: o.Clock, wake: make(chan struct{}, 1), requests: make(chan request)}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.clock == nil {
		a.clock = systemClock{}
	}
	a.started = a.clock.Mono()
	a.offset = a.clock.Wall() - a.started
	a.stats.durations = make([]atomic.Uint64, tickPower.Buckets())
	if !o.Self.Off {
		a.Add(newSelf(a, o.Self), SourceOptions{})
	}
	return a
}

// Add adds a source. It must not be called once Run was.
func (a *Agent) Add(s Source, o SourceOptions) {
	a.sources = append(a.sources, newReader(s, o, a.clock))
}

// Subscription is a consumer's mailbox.
type Subscription struct {
	agent    *Agent
	name     string
	interval int64
	next     int64 // moment of Mono it is due
	seq      uint64
	missed   uint64 // ticks the loop skipped since the last one delivered
	dropped  atomic.Uint64
	free     chan *metric.Snapshot
	out      chan *metric.Snapshot
}

// Subscribe has a consumer get a snapshot at every multiple of interval. The
// mailbox holds depth of them; when it is full, ticks are dropped.
func (a *Agent) Subscribe(name string, interval time.Duration, depth int) (*Subscription, error) {
	if interval < MinInterval || interval > MaxInterval {
		return nil, fmt.Errorf("interval %v: want %v to %v", interval, MinInterval, MaxInterval)
	}
	s := &Subscription{agent: a, name: name, interval: int64(interval),
		free: make(chan *metric.Snapshot, depth), out: make(chan *metric.Snapshot, depth)}
	for range depth {
		s.free <- new(metric.Snapshot)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, errors.New("the agent has stopped")
	}
	// The next moment whose time of day is a multiple of the interval.
	wall := a.clock.Mono() + a.offset
	s.next = wall - wall%s.interval + s.interval - a.offset
	a.subs = append(a.subs, s)
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return s, nil
}

// C has the snapshots. It is closed when the agent ends.
func (s *Subscription) C() <-chan *metric.Snapshot { return s.out }

// Release gives a snapshot back, whose memory the next one will take.
func (s *Subscription) Release(snapshot *metric.Snapshot) { s.free <- snapshot }

// Dropped counts the ticks that found the mailbox full.
func (s *Subscription) Dropped() uint64 { return s.dropped.Load() }

// Close ends the subscription; a tick that only it wanted is taken no more.
func (s *Subscription) Close() {
	s.agent.mu.Lock()
	defer s.agent.mu.Unlock()
	s.agent.subs = slices.DeleteFunc(s.agent.subs, func(o *Subscription) bool { return o == s })
}

// Run takes ticks until ctx ends, then closes the sources.
func (a *Agent) Run(ctx context.Context) error {
	// A thread of its own wakes more exactly than the runtime's timers,
	// which are of a millisecond (docs/journal/2026-11-21-tick-loop.md).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for ctx.Err() == nil {
		a.wait(ctx, a.nextDue())
		a.takeDue()
	}
	a.mu.Lock()
	a.closed = true
	for _, s := range a.subs {
		close(s.out)
	}
	a.subs = nil
	a.mu.Unlock()
	var errs []error
	for _, r := range a.sources {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}

// nextDue is the moment the next consumer is due, or 0 when there is none.
func (a *Agent) nextDue() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := int64(0)
	for _, s := range a.subs {
		if next == 0 || s.next < next {
			next = s.next
		}
	}
	return next
}

// near is how close a tick must be for the thread to sleep up to it. Until
// then the loop hears of new consumers and requests.
const near = int64(4 * time.Millisecond)

func (a *Agent) wait(ctx context.Context, until int64) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	if until != 0 {
		left := until - a.clock.Mono()
		if left <= near {
			a.clock.SleepUntil(until)
			a.serveNow()
			return
		}
		timer.Reset(time.Duration(left - near))
	}
	select {
	case <-ctx.Done():
	case <-a.wake:
	case r := <-a.requests:
		a.serve(r)
	case <-timer.C:
	}
}

// takeDue takes one tick for all consumers that are due.
func (a *Agent) takeDue() {
	now := a.clock.Mono()
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := false
	for _, s := range a.subs {
		if s.next > now {
			continue
		}
		if !taken {
			a.take(s.next)
			taken = true
		}
		a.deliver(s, now)
	}
	if taken {
		took := a.clock.Mono() - now
		a.stats.ticks.Add(1)
		a.stats.durations[tickPower.Index(uint64(max(0, took)))].Add(1)
	}
}

// take reads the sources that are due at moment m.
func (a *Agent) take(m int64) {
	if offset := a.clock.Wall() - a.clock.Mono(); offset-a.offset > int64(time.Millisecond) || a.offset-offset > int64(time.Millisecond) {
		a.offset = offset // the time of day was set
	}
	frames := a.tick.Grow(len(a.sources))
	n := 0
	for _, r := range a.sources {
		if r.due(m+a.offset) && r.read(&frames[n]) {
			n++
		}
	}
	a.tick.Frames = frames[:n]
}

// deliver puts the tick into a mailbox.
func (a *Agent) deliver(s *Subscription, now int64) {
	late := (now - s.next) / s.interval
	scheduled := s.next + late*s.interval
	s.next = scheduled + s.interval
	s.missed += uint64(late)
	a.stats.missed.Add(uint64(late))
	s.seq++
	select {
	case to := <-s.free:
		to.CopyFrom(&a.tick)
		to.Run, to.Seq, to.Missed = a.run, s.seq, s.missed
		to.Mono, to.Wall, to.Interval = scheduled, scheduled+a.offset, s.interval
		s.missed = 0
		s.out <- to
	default:
		s.dropped.Add(1)
		a.stats.dropped.Add(1)
	}
}

// systemClock is the machine's.
type systemClock struct{}

func (systemClock) Mono() int64 { return host.Mono() }
func (systemClock) Wall() int64 { return host.Wall() }

// SleepUntil sleeps in the kernel, to within its timer slack of 50 us.
func (systemClock) SleepUntil(until int64) {
	ts := unix.NsecToTimespec(until)
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil) == unix.EINTR {
	}
}

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
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
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
	// Realtime is the longest interval whose ticks go before the machine's
	// other work; 0: none do.
	Realtime time.Duration
	// Clock is for tests.
	Clock Clock
}

// Agent runs the loop. Sources are added before anything else is asked of it.
//
// The loop takes no lock while it reads or copies, so that whoever asks how
// the agent fares hears it from a loop that hangs, too.
type Agent struct {
	run     *metric.Run
	log     *slog.Logger
	clock   Clock
	slept   func() time.Duration // host.Slept, but for tests
	failed  error                // of New, told by Run
	started int64
	sources []*reader
	stats   stats
	streams streams

	// The loop's own.
	due      []*Subscription // scratch
	taken    int64           // Mono when sources were read last; 0: never
	least    time.Duration   // the shortest interval of a consumer
	realtime realtime

	mu     sync.Mutex
	offset int64 // wall minus mono, as ticks are stamped; set by the loop alone
	subs   []*Subscription
	asked  []request
	closed bool
}

// stats is what the loop counts of itself.
type stats struct {
	ticks, missed, dropped atomic.Uint64
	followers              atomic.Int64
	durations              []atomic.Uint64 // of ticks, by bucket
}

var errStopped = errors.New("the agent has stopped")

// selfPace is how often the agent looks at itself: two system calls, which a
// tick every millisecond would feel.
const selfPace = 100 * time.Millisecond

// New returns an agent without sources but its own.
func New(o Options) *Agent {
	a := &Agent{run: o.Run, log: o.Log, clock: o.Clock, slept: host.Slept,
		realtime: realtime{up: o.Realtime, set: schedule}}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.clock == nil {
		a.clock, a.failed = newMachineClock()
	}
	a.started = a.clock.Mono()
	a.offset = a.clock.Wall() - a.started
	a.stats.durations = make([]atomic.Uint64, tickPower.Buckets())
	if !o.Self.Off {
		a.Add(newSelf(a, o.Self), SourceOptions{Every: selfPace})
	}
	return a
}

// Add adds a source.
func (a *Agent) Add(s Source, o SourceOptions) {
	a.sources = append(a.sources, newReader(s, o, a.clock, a.log))
}

// SetPace changes how often the source of that name is read at most; 0: at
// every tick; negative: not at all, and so it has no frames. It may be called
// at any time, and says whether there is such a source.
func (a *Agent) SetPace(source string, every time.Duration) bool {
	found := false
	for _, r := range a.sources {
		if r.Name() == source {
			r.every.Store(int64(every))
			found = true
		}
	}
	return found
}

// Run takes ticks until ctx ends, then closes the sources. It runs once.
func (a *Agent) Run(ctx context.Context) error {
	if a.failed != nil {
		return a.failed
	}
	for _, r := range a.sources {
		r.start()
	}
	defer context.AfterFunc(ctx, a.wake)()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// The thread ends with this goroutine, and its timer slack with
		// it: 50 us by default, half the error of a tick of 1 ms
		// (docs/journal/2026-11-21-tick-loop.md). Refusal costs only that.
		runtime.LockOSThread()
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		for ctx.Err() == nil {
			a.turn()
		}
	}()
	<-ended
	return a.stop()
}

func (a *Agent) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.clock.Wake()
	}
}

// turn is one round of the loop.
func (a *Agent) turn() {
	a.answer()
	a.clock.Sleep(a.next())
	a.tick()
}

func (a *Agent) stop() error {
	a.mu.Lock()
	a.closed = true
	for _, s := range a.subs {
		close(s.out)
	}
	for _, r := range a.asked {
		close(r.reply)
	}
	a.subs, a.asked = nil, nil
	errs := []error{a.clock.Close()}
	a.mu.Unlock()
	for _, r := range a.sources {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}

// next is the moment the next consumer is due, or 0 when there is none.
func (a *Agent) next() int64 {
	var next int64
	next, a.least = a.soonest()
	if err := a.realtime.follow(a.least); err != nil {
		a.log.Info("fast ticks may be late on a busy machine", "reason", err)
	}
	return next
}

// soonest is the moment the next consumer is due, and the shortest interval of
// any; 0 when there is none.
func (a *Agent) soonest() (next int64, least time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.subs {
		if next == 0 || s.next < next {
			next = s.next
		}
		if i := time.Duration(s.interval); least == 0 || i < least {
			least = i
		}
	}
	return next, least
}

// tick reads the sources for all consumers that are due, and serves them.
func (a *Agent) tick() {
	now := a.clock.Mono()
	clear(a.due) // some may have been closed since
	a.due = a.due[:0]
	a.mu.Lock()
	for _, s := range a.subs {
		if s.next <= now {
			a.due = append(a.due, s)
		}
	}
	a.mu.Unlock()
	if len(a.due) == 0 {
		return
	}
	set := a.followWall()
	a.take(now, a.least/2)
	for _, s := range a.due {
		s.deliver(now)
	}
	if set {
		a.align(now)
	}
	a.stats.ticks.Add(1)
	a.stats.durations[tickPower.Index(uint64(max(0, a.clock.Mono()-now)))].Add(1)
}

// take reads the sources that are due. Once those with a pace of their own have
// taken all the room, half of the shortest interval, the rest of them is left to
// the next tick, and with it their frames: /proc and /sys of a tenth of a second
// take longer than a tick of 1 ms has.
func (a *Agent) take(now int64, room time.Duration) {
	late := false
	for _, r := range a.sources {
		paced := r.ask == nil && r.every.Load() > 0
		if paced && late {
			continue
		}
		if r.take(now, now+a.offset) && paced {
			late = a.clock.Mono()-now > int64(room)
		}
	}
	a.taken = now
}

// followWall notes when the time of day was set, and tells whether it was.
// (Where it is slewed, CLOCK_MONOTONIC is slewed alike.)
func (a *Agent) followWall() bool {
	before := a.clock.Mono()
	wall := a.clock.Wall()
	after := a.clock.Mono()
	// A thread that lost its CPU between two clocks cannot compare them.
	if after-before > int64(100*time.Microsecond) {
		return false
	}
	offset := wall - before - (after-before)/2
	if d := offset - a.offset; -step < d && d < step {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.offset = offset
	return true
}

// step is the least change of the time of day that ticks follow.
const step = int64(time.Millisecond)

// align puts all consumers on the grid of a new time of day.
func (a *Agent) align(now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.subs {
		s.next = following(now, a.offset, s.interval)
	}
}

// following is the first moment of Mono after now whose time of day is a
// multiple of interval.
func following(now, offset, interval int64) int64 {
	wall := now + offset
	return wall - wall%interval + interval - offset
}

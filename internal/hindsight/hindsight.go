// SPDX-License-Identifier: Apache-2.0

// Package hindsight keeps the latest ticks of an agent on disk while it goes
// on, whatever the disk does: it opens the ring when it can, marks what is
// missing and why, and gives back any part of it as a recording.
//
// The ring itself is internal/ring. This package knows when ticks are missing,
// who wants to read them, and how to say how it fares.
package hindsight

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/ring"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// Options say what is kept. Ring.Dir and Name must be set.
type Options struct {
	Name string // of the ring: "main" or "fine"
	FS   vfs.FS // nil: vfs.OS
	Ring ring.Options
	// Reserve is the space that is left to others on a file system of a
	// size, in bytes; 0: the ring's own. nil: the same.
	Reserve func(total int64) int64
	Log     *slog.Logger // nil: silent
	// Hole is the reason of ticks that are missing in their numbers. Empty:
	// "the disk did not keep up".
	Hole string
	// Slept is how long the machine has been suspended since it booted
	// (CLOCK_BOOTTIME less CLOCK_MONOTONIC). nil: it is not asked.
	Slept func() time.Duration
}

const (
	// again is the time from one attempt to open the ring to the next. An
	// agent that ends as the next begins holds its ring for a moment.
	again = 2 * time.Second
	// hangs is how long the disk may take for a tick before it is said to
	// hang, and the ring is asked no more.
	hangs = 3 * time.Second
	// clockStep is the least step of the time of day that is told of.
	clockStep = time.Second
	// quiet is the time from one line in the log to the next.
	quiet = time.Minute
)

// errNotOpen is what a keeper without a ring says.
var errNotOpen = errors.New("the ring is not open yet")

// Keeper keeps one ring. One goroutine may call Put and Break; everything else
// is safe for concurrent use, and waits for no disk unless it says so.
type Keeper struct {
	o     Options
	began time.Time
	slept func() time.Duration
	hangs time.Duration // the constant, but for tests

	open   atomic.Pointer[ring.Ring]
	state  atomic.Pointer[ring.Status] // as of a moment ago
	busy   atomic.Int64                // ns since began at which the present Put began; 0: none
	ticks  atomic.Uint64
	lost   atomic.Uint64
	errors atomic.Uint64 // times that it went from well to not

	mu      sync.Mutex
	trouble error // why ticks are not kept at present; nil: they are
	said    time.Time
	closed  bool

	// Of whoever puts.
	tried  time.Time
	last   tick   // the one before
	reason string // of the gap that is to be marked before the next
}

// tick is when a tick was.
type tick struct {
	wall, mono, interval int64
	seq, missed          uint64
	run                  [16]byte
	slept                time.Duration
}

// New returns a keeper. It touches nothing before the first Put.
func New(o Options) *Keeper {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Hole == "" {
		o.Hole = "the disk did not keep up"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{o: o, began: time.Now(), hangs: hangs, slept: o.Slept, trouble: errNotOpen}
	if k.slept == nil {
		k.slept = func() time.Duration { return 0 }
	}
	return k
}

// Put keeps a tick. It waits for the disk as long as that takes; what is wrong
// is said in Status and the log, and counted.
func (k *Keeper) Put(s *metric.Snapshot) {
	k.busy.Store(int64(time.Since(k.began)) | 1)
	defer k.busy.Store(0)
	now := tick{wall: s.Wall, mono: s.Mono, interval: s.Interval, seq: s.Seq, missed: s.Missed, slept: k.slept()}
	if s.Run != nil {
		now.run = s.Run.ID
	}
	if ahead := now.wall - k.last.wall - (now.mono - k.last.mono); ahead < int64(now.slept-k.last.slept)/2 && k.last.interval != 0 {
		now.slept = k.last.slept // this tick was taken before the machine slept
	}
	r, err := k.ring()
	if err == nil {
		err = k.mark(r, now)
	}
	if r != nil {
		before := r.Lost()
		err = errors.Join(err, r.Put(s))
		if r.Lost() == before {
			k.ticks.Add(1)
		} else {
			k.lost.Add(1)
		}
	} else {
		k.lost.Add(1)
	}
	k.last, k.reason = now, ""
	k.fares(err)
}

// Open opens the ring before the first tick, and returns the time of the newest
// one that it has; 0: none.
func (k *Keeper) Open() int64 {
	_, err := k.ring()
	if err != nil {
		k.fares(err)
	}
	return k.newest()
}

// Break says that the next tick does not follow the last one, and why.
func (k *Keeper) Break(reason string) { k.reason = reason }

// ring is the open ring, or opens it if it is time to.
func (k *Keeper) ring() (*ring.Ring, error) {
	if r := k.open.Load(); r != nil {
		return r, nil
	}
	k.mu.Lock()
	closed, trouble := k.closed, k.trouble
	k.mu.Unlock()
	if closed || !k.tried.IsZero() && time.Since(k.tried) < again {
		return nil, trouble
	}
	k.tried = time.Now()
	o := k.o.Ring
	if k.o.Reserve != nil {
		if err := k.o.FS.Mkdir(o.Dir); err != nil {
			return nil, fmt.Errorf("make the ring's directory: %w", err)
		}
		total, _, err := k.o.FS.Space(o.Dir)
		if err != nil {
			return nil, fmt.Errorf("ask for the space on the ring's file system: %w", err)
		}
		o.Reserve = k.o.Reserve(total)
	}
	r, err := ring.Open(k.o.FS, o)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, errors.Join(errNotOpen, r.Close())
	}
	k.open.Store(r)
	go k.watch(r)
	return r, nil
}

// mark writes what is missing before a tick, and that the clock was set.
func (k *Keeper) mark(r *ring.Ring, now tick) error {
	last := k.last
	if last.interval == 0 {
		return nil // nothing before it; the ring tells of what it adopted
	}
	slept := now.slept - last.slept
	step := time.Duration(now.wall-last.wall-(now.mono-last.mono)) - slept
	if k.reason == store.Suspended {
		step = 0 // the machine elsewhere
	}
	gap := store.Tick{Wall: now.wall, Interval: now.interval, Missed: now.missed}.GapFrom(last.wall+last.interval, k.reason)
	switch {
	case k.reason != "":
	case slept >= time.Duration(now.interval):
		gap.Reason = store.Suspended
	case now.run == last.run && now.seq > last.seq+1:
		gap.Reason, gap.Ticks = k.o.Hole, now.seq-last.seq-1
	}
	var err error
	if gap.Reason != "" && gap.Ticks > 0 {
		err = r.Gap(gap)
	}
	if now.run == last.run && (step >= clockStep || step <= -clockStep) {
		text := fmt.Sprintf("the clock was set ahead by %v", step.Round(time.Millisecond))
		if step < 0 {
			text = fmt.Sprintf("the clock was set back by %v", (-step).Round(time.Millisecond))
		}
		err = errors.Join(err, r.Event(store.Event{Time: now.wall, Text: text}))
	}
	return err
}

// fares takes in how the last tick went, and says so once.
func (k *Keeper) fares(err error) {
	k.mu.Lock()
	before := k.trouble
	k.trouble = err
	speak := time.Since(k.said) >= quiet
	if err != nil && (before == nil || before == errNotOpen) {
		k.errors.Add(1)
		if speak {
			k.said = time.Now()
		}
	}
	k.mu.Unlock()
	switch {
	case err != nil && (before == nil || before == errNotOpen) && speak:
		k.o.Log.Warn("the ring keeps no ticks; the agent goes on without", "ring", k.o.Name, "path", k.o.Ring.Dir, "error", err)
	case err == nil && before != nil && before != errNotOpen:
		k.o.Log.Info("the ring keeps ticks again", "ring", k.o.Name, "path", k.o.Ring.Dir)
	}
}

// watch looks at the ring every second, where a disk that hangs holds up
// nobody else.
func (k *Keeper) watch(r *ring.Ring) {
	for k.open.Load() == r {
		s := r.Status()
		k.state.Store(&s)
		time.Sleep(time.Second)
	}
}

// Event keeps a line of text with a time. It waits for the disk, if that does
// not hang.
func (k *Keeper) Event(e store.Event) error {
	r, err := k.reachable()
	if err != nil {
		return err
	}
	return r.Event(e)
}

// Each gives every tick that the ring has and that is later than after, Unix
// nanoseconds.
func (k *Keeper) Each(after int64, f func(*metric.Snapshot) error) error {
	r, err := k.reachable()
	if err != nil {
		return err
	}
	return r.Each(context.Background(), after+1, math.MaxInt64, f)
}

// reachable is the ring, if it is open and answers.
func (k *Keeper) reachable() (*ring.Ring, error) {
	r := k.open.Load()
	if r == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		return nil, k.trouble
	}
	if d := k.hangsFor(); d >= k.hangs {
		return nil, fmt.Errorf("the ring's disk has not answered for %v", d.Round(time.Second))
	}
	return r, nil
}

// hangsFor is how long the present Put has taken.
func (k *Keeper) hangsFor() time.Duration {
	if since := k.busy.Load(); since != 0 {
		return time.Since(k.began) - time.Duration(since)
	}
	return 0
}

// Close closes the ring, when nobody puts any more. It does not wait for a disk
// that hangs: what was put is there, as after a crash.
func (k *Keeper) Close() error {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	r := k.open.Swap(nil)
	if r == nil {
		return nil
	}
	hung := fmt.Errorf("close the ring in %s: the disk does not answer", k.o.Ring.Dir)
	if k.busy.Load() != 0 {
		return hung // the last Put did not come back
	}
	done := make(chan error, 1)
	go func() { done <- r.Close() }()
	select {
	case err := <-done:
		return err
	case <-time.After(2 * k.hangs):
		return hung
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package gather makes one run of ticks out of several endpoints: agents that
// are followed and endpoints that are scraped, each in a goroutine of its own,
// so that one which comes, goes, hangs or restarts disturbs no other.
//
// Agents tick when the time of day is a multiple of the interval, and so the
// ticks of all of them meet; what an endpoint has not sent within a while is
// not in the tick. The series of an endpoint have its labels; those of one
// that went away end. How each fares is in the ticks, too.
package gather

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"rezolus/internal/follow"
	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source/scrape"
	"rezolus/internal/store"
)

// Endpoint is one place to read. With both Agent and Scrape it is tried as an
// agent first.
type Endpoint struct {
	// Name, Source and Role become the labels endpoint, source and role; an
	// empty one does not. Name and Source together are unique.
	Name, Source, Role string
	Agent              *follow.Options // nil: it is no agent; the interval and State are set here
	Scrape             *scrape.Endpoint
}

// Options say what is gathered.
type Options struct {
	Interval  time.Duration
	Run       *metric.Run // of whoever gathers
	Endpoints []Endpoint
	Wait      bool // for endpoints, if none answers at first; else that is an error
	// Put takes a tick, which may be read until it returns; Gap what is
	// missing before the next; Event what happened to an endpoint. They are
	// not called at once. After an error of Put the tick is lost.
	Put   func(*metric.Snapshot) error
	Gap   func(store.Gap)
	Event func(store.Event)
}

// The most that is waited for an endpoint before a tick is given without it.
const (
	patience = 2 * time.Second
	// pending is how many words may wait: the memory of it.
	pending = 1 << 20
	// leastScrape is the time from one scrape to the next at least.
	leastScrape = 100 * time.Millisecond
)

// Gatherer gathers. New makes it.
type Gatherer struct {
	o      Options
	ends   []*end
	in     chan arrival
	offset int64 // wall minus mono, for good: the clock that ticks are put at

	slots   []*slot // ascending
	free    []*slot
	words   int           // in slots
	loose   []*loan       // frames of scrapes that came after their tick
	emitted int64         // wall of the last tick
	mono    func() int64  // for tests
	missed  atomic.Uint64 // ticks that endpoints did not send
	seq     uint64
	out     metric.Snapshot
	self    self
}

// slot is a tick that is not whole yet.
type slot struct {
	wall  int64
	loans []*loan
}

// loan is what an endpoint sent for a tick; its memory goes back to it.
type loan struct {
	e    *end
	snap metric.Snapshot
}

// arrival is what an endpoint's goroutine tells.
type arrival struct {
	e      *end
	loan   *loan         // a tick
	missed uint64        // and how many did not come before it
	down   error         // it went away
	up     bool          // it came
	text   string        // what happened
	every  time.Duration // it is scraped, so often
}

// New returns a gatherer.
func New(o Options) (*Gatherer, error) {
	g := &Gatherer{o: o, in: make(chan arrival, 4*len(o.Endpoints)), mono: host.Mono}
	g.offset = host.Wall() - host.Mono()
	for _, e := range o.Endpoints {
		n, err := newEnd(e, o)
		if err != nil {
			return nil, err
		}
		g.ends = append(g.ends, n)
	}
	return g, g.self.init(g.ends, o.Run.Started)
}

// Missed is how many ticks endpoints did not send while they were there.
func (g *Gatherer) Missed() uint64 { return g.missed.Load() }

func (g *Gatherer) now() int64 { return g.mono() + g.offset }

// Run gathers until ctx ends. It fails at once if no endpoint answers.
func (g *Gatherer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	live := make(chan struct{})
	for _, e := range g.ends {
		go func() {
			defer func() { live <- struct{}{} }()
			e.run(ctx, g.offset, g.in)
		}()
	}
	err := g.loop(ctx)
	cancel()
	for left := len(g.ends); left > 0; {
		select {
		case <-g.in: // nobody may be held up by telling
		case <-live:
			left--
		}
	}
	return err
}

func (g *Gatherer) loop(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if len(g.slots) > 0 {
			timer.Reset(max(time.Millisecond, time.Duration(g.deadline()-g.now())))
		}
		select {
		case <-ctx.Done():
			g.emit(func(*slot) bool { return true })
			return nil
		case <-timer.C:
		case a := <-g.in:
			g.take(a)
			if err := g.nobody(); err != nil {
				return err
			}
		}
		now := g.now()
		g.emit(func(s *slot) bool { return g.words > pending || !g.owed(s, now) })
	}
}

// nobody fails if each endpoint was tried and none ever answered.
func (g *Gatherer) nobody() error {
	if g.o.Wait {
		return nil
	}
	var errs []error
	for _, e := range g.ends {
		if e.came || e.failed == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("no answer from %s: %w", e.Name, e.failed))
	}
	return errors.Join(errs...)
}

// deadline is when the first slot is given whatever is missing.
func (g *Gatherer) deadline() int64 {
	next := g.now() + int64(patience)
	for _, e := range g.ends {
		if at := g.slots[0].wall + int64(e.grace); at > g.now() && e.waited {
			next = min(next, at)
		}
	}
	return next
}

// owed reports whether an endpoint is still to send something for the slot.
func (g *Gatherer) owed(s *slot, now int64) bool {
	for _, e := range g.ends {
		if !e.waited || e.upTo >= s.wall || e.scraped && s.wall%int64(e.every) != 0 {
			continue
		}
		if now < s.wall+int64(e.grace) {
			return true
		}
		if !e.scraped { // it is waited for again when it has caught up
			e.waited = false
			if e.down {
				e.end()
			}
		}
	}
	return false
}

// take takes what an endpoint tells.
func (g *Gatherer) take(a arrival) {
	e := a.e
	if a.text != "" {
		g.o.Event(store.Event{Time: g.now(), Text: fmt.Sprintf("%s: %s", e.Name, a.text)})
	}
	switch {
	case a.every > 0:
		e.scraped, e.every, e.grace = true, a.every, min(a.every/2, patience)
	case a.down != nil:
		if e.came && !e.down || !e.came && e.failed == nil {
			g.o.Event(store.Event{Time: g.now(), Text: fmt.Sprintf("%s cannot be read: %v", e.Name, a.down)})
		}
		e.down, e.failed = true, a.down
		if !e.waited {
			e.end()
		}
	case a.up:
		if e.came && e.down {
			e.returns++
			g.o.Event(store.Event{Time: g.now(), Text: e.Name + " is read again"})
		}
		e.came, e.down, e.failed = true, false, nil
	case a.loan != nil:
		g.missed.Add(a.missed)
		e.missed += a.missed
		g.place(a.loan)
	}
}

// place puts a tick into its slot.
func (g *Gatherer) place(l *loan) {
	e, wall := l.e, l.snap.Wall
	e.upTo = max(e.upTo, wall)
	if wall <= g.emitted {
		if !e.scraped {
			e.missed++
			g.missed.Add(1)
			e.giveBack(l)
			return
		}
		g.loose = append(g.loose, l)
		return
	}
	e.waited = true
	at := len(g.slots)
	for at > 0 && g.slots[at-1].wall >= wall {
		at--
	}
	if at == len(g.slots) || g.slots[at].wall != wall {
		s := &slot{}
		if n := len(g.free); n > 0 {
			s, g.free = g.free[n-1], g.free[:n-1]
		}
		s.wall = wall
		g.slots = append(g.slots, nil)
		copy(g.slots[at+1:], g.slots[at:])
		g.slots[at] = s
	}
	g.slots[at].loans = append(g.slots[at].loans, l)
	g.words += l.words()
}

func (l *loan) words() (n int) {
	for i := range l.snap.Frames {
		n += len(l.snap.Frames[i].Values)
	}
	return n
}

// emit gives ticks from the first on, as long as they are ready.
func (g *Gatherer) emit(ready func(*slot) bool) {
	for len(g.slots) > 0 && ready(g.slots[0]) {
		s := g.slots[0]
		copy(g.slots, g.slots[1:])
		g.slots = g.slots[:len(g.slots)-1]
		g.give(s)
		for _, l := range s.loans {
			g.words -= l.words()
			l.e.giveBack(l)
		}
		clear(s.loans)
		s.loans = s.loans[:0]
		g.free = append(g.free, s)
	}
}

// give gives a tick.
func (g *Gatherer) give(s *slot) {
	interval := int64(g.o.Interval)
	steps := uint64(1)
	if g.emitted != 0 {
		steps = max(1, uint64((s.wall-g.emitted)/interval))
		if steps > 1 {
			g.o.Gap(store.Gap{From: g.emitted + interval, To: s.wall - interval, Ticks: steps - 1, Reason: "no endpoint sent anything"})
		}
	}
	g.seq += steps
	g.emitted = s.wall
	frames := g.out.Frames[:0]
	g.out = metric.Snapshot{Run: g.o.Run, Seq: g.seq, Wall: s.wall, Mono: s.wall - g.offset, Interval: interval}
	for _, l := range append(s.loans, g.loose...) {
		for i := range l.snap.Frames {
			f := l.snap.Frames[i]
			// Times of reading were kept relative to the tick.
			f.Begin, f.End = f.Begin+l.snap.Wall-g.offset, f.End+l.snap.Wall-g.offset
			frames = append(frames, f)
			l.e.sources[f.Schema.Source] = f.Schema
		}
		l.e.ticks++
	}
	for _, e := range g.ends {
		frames = e.appendEnded(frames)
	}
	frames = dedupe(append(frames, g.self.frame(g.ends, g.out.Mono)))
	g.out.Frames = frames
	if err := g.o.Put(&g.out); err != nil {
		g.missed.Add(1)
	}
	for _, l := range g.loose {
		l.e.giveBack(l)
	}
	g.loose = g.loose[:0]
}

// dedupe keeps the last frame of each source: a scrape may come with the one
// that was late.
func dedupe(frames []metric.Frame) []metric.Frame {
	for i := 0; i < len(frames); i++ {
		for k := i + 1; k < len(frames); k++ {
			if frames[k].Schema.Source == frames[i].Schema.Source {
				frames = append(frames[:i], frames[i+1:]...)
				i--
				break
			}
		}
	}
	return frames
}

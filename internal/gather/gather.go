// SPDX-License-Identifier: Apache-2.0

// Package gather makes one run of ticks out of several endpoints: agents that
// are followed and endpoints that are scraped, each in a goroutine of its own,
// so that one which comes, goes, hangs or restarts disturbs no other.
//
// Agents tick when the time of day is a multiple of the interval, and so the
// ticks of all of them meet; what an endpoint has not sent within a while is
// not in the tick. For an agent that was cut off ticks wait longer: it has them
// still, and they can only be put where they belong before later ones. The
// series of an endpoint have its labels; those of one that went away end. How
// each fares is in the ticks, too.
package gather

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

const (
	// patience is the most that is waited for a scrape before a tick is given
	// without it, and for an agent that ended.
	patience = 2 * time.Second
	// hold is the same for an agent that does not say why it is silent. As
	// long as ticks wait they are not in the recording, so that somebody who
	// kills the recorder meanwhile loses them: a minute outlasts a switch or a
	// firewall that starts anew, and no more is at stake.
	hold = time.Minute
	// pending is how many words may wait, 8 MiB: a minute of two agents with all
	// samplers at 10 ms. Where that is not enough nobody is waited for any longer.
	pending = 1 << 20
	// shelved is how many of them wait as they came. What comes then is encoded.
	shelved = pending / 2
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
	words   int           // in slots, and in shelves
	loose   []*loan       // frames of scrapes that came after their tick
	emitted int64         // wall of the last tick
	mono    func() int64  // for tests
	hold    time.Duration // the constant, but for tests
	missed  atomic.Uint64 // ticks that endpoints did not send
	seq     uint64
	out     metric.Snapshot
	self    self
}

// slot is a tick that is not whole yet.
type slot struct {
	wall  int64
	loans []*loan
	aside []*end // that have theirs in their shelves
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
	g := &Gatherer{o: o, in: make(chan arrival, 4*len(o.Endpoints)), mono: host.Mono, hold: hold}
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
		g.due()
	}
}

// due gives the ticks that are whole, or late.
func (g *Gatherer) due() {
	now := g.now()
	g.emit(func(s *slot) bool { return !g.owed(s, now) || g.words > pending })
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
		if at := g.slots[0].wall + int64(g.grace(e)); at > g.now() && e.waited {
			next = min(next, at)
		}
	}
	return next
}

// grace is how long a tick waits for an endpoint.
func (g *Gatherer) grace(e *end) time.Duration {
	switch {
	case e.scraped:
		return e.grace
	case e.ended || g.words > pending:
		return patience
	}
	return g.hold
}

// owed reports whether an endpoint is still to send something for the slot.
func (g *Gatherer) owed(s *slot, now int64) bool {
	for _, e := range g.ends {
		if !e.waited || e.upTo >= s.wall || e.scraped && s.wall%int64(e.every) != 0 {
			continue
		}
		if now < s.wall+int64(g.grace(e)) {
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
		e.down, e.failed, e.ended = true, a.down, e.ended || errors.Is(a.down, follow.ErrEnded)
		if !e.waited {
			e.end()
		}
	case a.up:
		if e.came && e.down {
			e.returns++
			g.o.Event(store.Event{Time: g.now(), Text: e.Name + " is read again"})
		}
		e.came, e.down, e.ended, e.failed = true, false, false, nil
	case a.loan != nil:
		g.missed.Add(a.missed)
		e.missed += a.missed
		g.place(a.loan)
	}
}

// place puts a tick into its slot.
func (g *Gatherer) place(l *loan) {
	e, wall := l.e, l.snap.Wall
	l.snap.Mono = wall - g.offset
	for i := range l.snap.Frames { // times of reading were kept relative to the tick
		f := &l.snap.Frames[i]
		f.Begin, f.End = f.Begin+l.snap.Mono, f.End+l.snap.Mono
	}
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
	s := g.slot(wall)
	if g.words > shelved && g.putAside(l) {
		s.aside = append(s.aside, e)
		return
	}
	s.loans = append(s.loans, l)
	g.words += l.words()
}

// slot is that of a time of day.
func (g *Gatherer) slot(wall int64) *slot {
	at, found := slices.BinarySearchFunc(g.slots, wall, func(s *slot, wall int64) int { return cmp.Compare(s.wall, wall) })
	if !found {
		s := &slot{}
		if n := len(g.free); n > 0 {
			s, g.free = g.free[n-1], g.free[:n-1]
		}
		s.wall = wall
		g.slots = slices.Insert(g.slots, at, s)
	}
	return g.slots[at]
}

// putAside puts a tick into its endpoint's shelf, and reports whether it could.
func (g *Gatherer) putAside(l *loan) bool {
	e := l.e
	if e.shelf == nil {
		e.shelf = newShelf(g.o)
	}
	l.snap.Run, l.snap.Interval = g.o.Run, int64(g.o.Interval) // a scrape has none
	before := e.shelf.words()
	if !e.shelf.put(&l.snap) {
		return false
	}
	g.words += e.shelf.words() - before
	e.giveBack(l)
	return true
}

// words is what a tick takes, and what there is of it besides its values.
func (l *loan) words() int {
	n := 32
	for i := range l.snap.Frames {
		n += len(l.snap.Frames[i].Values) + 16
	}
	return n
}

// emit gives ticks from the first on, as long as they are ready.
func (g *Gatherer) emit(ready func(*slot) bool) {
	given := 0
	for ; given < len(g.slots) && ready(g.slots[given]); given++ {
		s := g.slots[given]
		g.give(s)
		for _, l := range s.loans {
			g.words -= l.words()
			l.e.giveBack(l)
		}
		clear(s.loans)
		s.loans, s.aside = s.loans[:0], s.aside[:0]
		if len(g.free) < 64 {
			g.free = append(g.free, s)
		}
	}
	g.slots = slices.Delete(g.slots, 0, given)
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
	for _, l := range s.loans {
		frames = l.e.given(frames, &l.snap)
	}
	for _, e := range s.aside {
		before := e.shelf.words()
		if tick, err := e.shelf.take(s.wall); err == nil {
			frames = e.given(frames, tick)
		} else {
			g.o.Event(store.Event{Time: s.wall, Text: fmt.Sprintf("%s: a tick that waited is lost: %v", e.Name, err)})
			e.missed++
			g.missed.Add(1)
		}
		g.words += e.shelf.words() - before
	}
	for _, l := range g.loose {
		frames = l.e.given(frames, &l.snap)
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

// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"rezolus/internal/follow"
	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source/scrape"
	"rezolus/internal/store"
)

// end is an endpoint. Its first fields are of its goroutine, the others of the
// gatherer's.
type end struct {
	Endpoint
	interval time.Duration
	prefix   string // of the names of its sources
	labels   []label
	schemas  map[string]renamed // by the source's own name
	shift    int64              // what is added to its times of day
	last     store.Tick
	scrapes  bool

	mu   sync.Mutex
	free []*loan

	scraped bool          // it turned out to be scraped
	every   time.Duration // a scrape
	grace   time.Duration // what a tick waits for its scrape
	came    bool          // it answered once
	down    bool          // it does not now
	failed  error         // why
	ended   bool          // on purpose, so that it has nothing more to say
	waited  bool          // ticks wait for it
	upTo    int64         // wall of its last tick
	sources map[string]*metric.Schema
	ending  []*metric.Schema // empty ones, for the next tick
	ticks   uint64
	missed  uint64
	returns uint64
	shelf   *shelf // nil: nothing had to wait for long yet
}

func newEnd(e Endpoint, o Options) (*end, error) {
	if e.Agent == nil && e.Scrape == nil {
		return nil, fmt.Errorf("endpoint %s is neither an agent nor to be scraped", e.Name)
	}
	n := &end{Endpoint: e, interval: o.Interval, schemas: map[string]renamed{}, sources: map[string]*metric.Schema{}}
	n.prefix = cmp.Or(e.Source, "-") + "@" + e.Name + "/"
	for _, l := range []label{{"endpoint", e.Name}, {"role", e.Role}, {"source", e.Source}} {
		if l.value != "" {
			n.labels = append(n.labels, l)
		}
	}
	return n, nil
}

// lend is memory for a tick.
func (e *end) lend() *loan {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.free); n > 0 {
		l := e.free[n-1]
		e.free = e.free[:n-1]
		return l
	}
	return &loan{e: e}
}

func (e *end) giveBack(l *loan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.free) < 8 {
		e.free = append(e.free, l)
	}
}

// given appends the frames of a tick that is given.
func (e *end) given(frames []metric.Frame, s *metric.Snapshot) []metric.Frame {
	for i := range s.Frames {
		e.sources[s.Frames[i].Schema.Source] = s.Frames[i].Schema
	}
	e.ticks++
	return append(frames, s.Frames...)
}

// end has all series of the endpoint end with the next tick.
func (e *end) end() {
	for name := range e.sources {
		if s, err := metric.NewSchema(name, nil); err == nil {
			e.ending = append(e.ending, s)
		}
	}
	clear(e.sources)
}

// appendEnded appends the frames that end series, unless they live again.
func (e *end) appendEnded(frames []metric.Frame) []metric.Frame {
	for _, s := range e.ending {
		if e.sources[s.Source] == nil {
			frames = append(frames, metric.Frame{Schema: s, Begin: 0, End: 0})
		}
	}
	e.ending = e.ending[:0]
	return frames
}

// run reads the endpoint until ctx ends.
func (e *end) run(ctx context.Context, offset int64, out chan<- arrival) {
	tell := func(a arrival) {
		a.e = e
		select {
		case out <- a:
		case <-ctx.Done():
		}
	}
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, time.Second) {
		if e.Agent == nil {
			e.scrape(ctx, offset, tell)
			return
		}
		o := *e.Agent
		o.Interval = e.interval
		o.State = func(err error) { tell(arrival{down: err, up: err == nil}) }
		s, err := follow.Open(ctx, o)
		if err == nil {
			tell(arrival{up: true})
			e.follow(s, tell)
			return
		}
		if errors.Is(err, follow.ErrNoAgent) && e.Scrape != nil {
			e.Agent = nil
			continue
		}
		tell(arrival{down: err})
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// feed is a stream's bytes, for a decoder.
type feed struct {
	s    *follow.Stream
	rest []byte
	last follow.Tick
	err  error // that ended it
}

func (f *feed) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		if f.last, f.err = f.s.Next(); f.err != nil {
			return 0, f.err
		}
		f.rest = f.last.Raw
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// follow gives an agent's ticks until the stream's context ends.
func (e *end) follow(s *follow.Stream, tell func(arrival)) {
	defer s.Close()
	for {
		in := &feed{s: s, rest: store.Header()}
		d := store.NewDecoder(in)
		e.clock(s.Clock(), tell)
		for {
			snap, err := d.Next()
			if in.err != nil {
				return
			}
			for _, g := range d.Gaps() {
				if g.Reason == store.Suspended && in.last.Gap == nil { // others are in the numbers, too
					in.last.Gap = &g
				}
			}
			if err == nil {
				err = e.tick(snap, in.last, tell)
			}
			if err != nil { // not what it should be: it is asked for anew
				tell(arrival{text: fmt.Sprintf("its stream is taken up anew: %v", err)})
				s.Restart()
				break
			}
		}
	}
}

// clock puts the ticks of an endpoint whose clock is set differently at ours.
func (e *end) clock(ahead time.Duration, tell func(arrival)) {
	if ahead.Abs() < 500*time.Millisecond {
		return
	}
	e.shift = -int64(ahead.Round(e.interval))
	tell(arrival{text: fmt.Sprintf("its clock is %v ahead of ours; its ticks are put at ours", ahead.Round(time.Millisecond))})
}

// tick gives one tick of an agent.
func (e *end) tick(s *metric.Snapshot, t follow.Tick, tell func(arrival)) error {
	missed := t.Missed
	if e.last.Seq != 0 && t.Gap == nil && t.Seq > e.last.Seq {
		missed += t.Seq - e.last.Seq - 1
		// Where its clock was set, ours was not.
		if set := t.Wall - e.last.Wall - int64(t.Seq-e.last.Seq+t.Missed)*t.Interval; set != 0 && t.Missed == 0 {
			e.shift -= set
			tell(arrival{text: fmt.Sprintf("its clock was set by %v", time.Duration(set))})
		}
	} else if t.Gap != nil {
		missed += t.Gap.Ticks
		tell(arrival{text: t.Gap.Reason})
	}
	e.last = t.Tick
	l := e.lend()
	l.snap.CopyFrom(s)
	l.snap.Wall += e.shift
	for i := range l.snap.Frames {
		f := &l.snap.Frames[i]
		var err error
		if f.Schema, err = e.rename(f.Schema); err != nil {
			return err
		}
		f.Begin, f.End = f.Begin-s.Mono, f.End-s.Mono
	}
	tell(arrival{loan: l, missed: missed})
	return nil
}

// scrape gives a tick whenever the time of day is a multiple of the interval.
func (e *end) scrape(ctx context.Context, offset int64, tell func(arrival)) {
	e.scrapes = true
	every := max(e.interval, (leastScrape+e.interval-1)/e.interval*e.interval)
	tell(arrival{every: every})
	o := *e.Scrape
	o.Name, o.Interval = e.Name, every
	o.Timeout = min(10*time.Second, max(2*time.Second, 2*every))
	src, err := scrape.New(o, nil)
	if err != nil {
		tell(arrival{down: err})
		return
	}
	defer src.Close()
	defer context.AfterFunc(ctx, func() { src.Close() })()
	for {
		now := host.Mono() + offset
		next := now - now%int64(every) + int64(every)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(next - now)):
		}
		l := e.lend()
		l.snap.Frames = l.snap.Grow(1)
		f := &l.snap.Frames[0]
		switch err := src.Read(f); {
		case err != nil:
			e.giveBack(l)
			tell(arrival{down: err})
			continue
		case len(f.Schema.Series) > 0:
			tell(arrival{up: true})
		}
		l.snap.Wall = next
		f.Begin, f.End = f.Begin-(next-offset), f.End-(next-offset)
		if f.Schema, err = e.rename(f.Schema); err != nil {
			e.giveBack(l)
			tell(arrival{down: err})
			continue
		}
		tell(arrival{loan: l})
	}
}

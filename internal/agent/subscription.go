// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// The intervals a consumer may ask for.
const (
	MinInterval = time.Millisecond
	MaxInterval = time.Hour
)

// maxEvents is how many events a consumer may be behind.
const maxEvents = 16

// Subscription is a consumer's mailbox.
type Subscription struct {
	agent    *Agent
	name     string
	interval int64
	dropped  atomic.Uint64
	out      chan *metric.Snapshot
	events   chan store.Event // for those who look

	// The loop's own.
	next   int64 // moment of Mono it is due
	seq    uint64
	missed uint64   // ticks the loop skipped since the last one delivered
	seen   []uint64 // the number of the frame it has, for each source

	// What was released last is taken next, so that a consumer who keeps up
	// costs the memory of one tick and not of a mailbox of them.
	mu   sync.Mutex
	free []*metric.Snapshot
}

// Subscribe has a consumer get a snapshot whenever the time of day is a
// multiple of interval. The mailbox holds depth of them; when it is full,
// ticks are dropped.
func (a *Agent) Subscribe(name string, interval time.Duration, depth int) (*Subscription, error) {
	if interval < MinInterval || interval > MaxInterval {
		return nil, fmt.Errorf("interval %v: want %v to %v", interval, MinInterval, MaxInterval)
	}
	s := &Subscription{agent: a, name: name, interval: int64(interval), out: make(chan *metric.Snapshot, depth),
		events: make(chan store.Event, maxEvents),
		seen:   make([]uint64, len(a.sources)), free: make([]*metric.Snapshot, depth)}
	for i := range s.free {
		s.free[i] = new(metric.Snapshot)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, errStopped
	}
	s.next = following(a.clock.Mono(), a.offset, s.interval)
	a.subs = append(a.subs, s)
	a.clock.Wake()
	return s, nil
}

// C has the snapshots. It is closed when the agent ends.
func (s *Subscription) C() <-chan *metric.Snapshot { return s.out }

// Tell gives everybody who follows a stream a line of text with a time. Who is
// far behind does not get it.
func (a *Agent) Tell(e store.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.subs {
		select {
		case s.events <- e:
		default:
		}
	}
}

// calm is how long Each lets ticks gather. To wake a thread for each tick costs
// more than the tick does.
const calm = 10 * time.Millisecond

// Each gives f every snapshot until the agent ends or f fails. Of ticks that
// come faster than every 10 ms it gives several at once, so the mailbox must
// hold as many (Depth).
func (s *Subscription) Each(f func(*metric.Snapshot) error) error {
	for snapshot := range s.out {
		err := f(snapshot)
		s.Release(snapshot)
		if err != nil {
			return err
		}
		if s.interval < int64(calm) && len(s.out) == 0 {
			time.Sleep(calm)
		}
	}
	return nil
}

// Depth is how many ticks a consumer at an interval may be behind: a second of
// them, within bounds. On a busy machine its thread waits for a CPU that long.
func Depth(interval time.Duration) int {
	return int(min(128, max(8, time.Second/max(interval, MinInterval))))
}

// Release gives a snapshot back, whose memory the next one will take.
func (s *Subscription) Release(snapshot *metric.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, snapshot)
}

// latest empties the mailbox and is its last snapshot, or old where it is empty.
// What was read for those before and not for that one goes with it.
func (s *Subscription) latest(old *metric.Snapshot) *metric.Snapshot {
	for len(s.out) > 0 {
		snapshot, open := <-s.out
		if !open {
			return old
		}
		n := len(snapshot.Frames)
		for i := range old.Frames {
			if f := &old.Frames[i]; !has(snapshot.Frames[:n], f.Schema.Source) {
				snapshot.Frames = append(snapshot.Frames, metric.Frame{})
				snapshot.Frames[len(snapshot.Frames)-1].CopyFrom(f)
			}
		}
		s.Release(old)
		old = snapshot
	}
	return old
}

func has(frames []metric.Frame, source string) bool {
	return slices.ContainsFunc(frames, func(f metric.Frame) bool { return f.Schema.Source == source })
}

// Dropped counts the ticks that found the mailbox full.
func (s *Subscription) Dropped() uint64 { return s.dropped.Load() }

// Close ends the subscription; a tick that only it wanted is taken no more.
func (s *Subscription) Close() {
	s.agent.mu.Lock()
	defer s.agent.mu.Unlock()
	s.agent.subs = slices.DeleteFunc(s.agent.subs, func(o *Subscription) bool { return o == s })
}

// deliver puts the tick that was read at now into the mailbox, as the one
// that was due last. Others that were due before now are missed.
func (s *Subscription) deliver(now int64) {
	late := (now - s.next) / s.interval
	scheduled := s.next + late*s.interval
	s.next = scheduled + s.interval
	s.missed += uint64(late)
	s.agent.stats.missed.Add(uint64(late))
	s.seq++
	to := s.take()
	if to == nil {
		s.dropped.Add(1)
		s.agent.stats.dropped.Add(1)
		return
	}
	s.fill(to, now)
	to.Run, to.Seq, to.Missed = s.agent.run, s.seq, s.missed
	to.Mono, to.Wall, to.Interval = scheduled, scheduled+s.agent.offset, s.interval
	s.missed = 0
	s.out <- to // has room for all there are
}

func (s *Subscription) take() *metric.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.free) - 1
	if n < 0 {
		return nil
	}
	to := s.free[n]
	s.free = s.free[:n]
	return to
}

// fill copies the frames that this consumer has not had. So one at 1.5 s gets
// the frame of a source that is read at every full second.
func (s *Subscription) fill(to *metric.Snapshot, now int64) {
	frames := to.Grow(len(s.seen))
	n := 0
	for i, r := range s.agent.sources[:len(s.seen)] {
		if r.number == s.seen[i] || !r.current(now, s.interval) {
			continue
		}
		s.seen[i] = r.number
		reuse(frames[n:], r.frame.Schema.Source)
		frames[n].CopyFrom(&r.frame)
		n++
	}
	to.Frames = frames[:n]
}

// reuse brings the frame to the front that held the same source before. Else
// each place would grow to the largest source's size as frames come and go.
func reuse(frames []metric.Frame, source string) {
	for i := range frames {
		if f := frames[i].Schema; f == nil || f.Source == source {
			frames[0], frames[i] = frames[i], frames[0]
			return
		}
	}
}

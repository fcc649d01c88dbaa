// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"time"

	"rezolus/internal/metric"
)

// Backfill has ticks of the past, for followers that were away: the live
// window, a ring on disk.
type Backfill interface {
	// Each calls f for every tick it has that is later than after, Unix
	// nanoseconds, in ascending order, and ends with the first error of f. A
	// snapshot may be read until f returns.
	Each(after int64, f func(*metric.Snapshot) error) error
}

// SetBackfill has followers that come back get what they missed: at an interval
// from what of gives for it. It is called before there are any.
func (a *Agent) SetBackfill(of func(interval time.Duration) Backfill) { a.streams.past = of }

// errReached ends a walk through the past where the present begins.
var errReached = errors.New("the present is reached")

// behind is how long those who keep the past may be behind: they have mailboxes
// of their own, and a disk.
const behind = 500 * time.Millisecond

// catchUp sends a follower the ticks between the last one it has and the first
// of its new mailbox, and numbers the mailbox's so that what is missing is
// missing in their numbers. Where the past is long the mailbox is full before it
// is sent; then that is past, too. The tick that comes next is returned. Errors
// are those of the connection, which the next send meets, too.
func (a *Agent) catchUp(f wish, s *stream, live *metric.Snapshot, out *outlet) *metric.Snapshot {
	c := catcher{s: s, interval: int64(f.interval), run: f.run, last: f.since, at: f.after, seen: f.after}
	if a.streams.past == nil {
		c.torn = true
	} else {
		live = c.follow(a.streams.past(f.interval), live, out)
	}
	number, missed := c.number(live)
	if number > live.Seq {
		s.base = number - live.Seq
		live.Missed = max(live.Missed, missed)
	}
	if c.torn { // the hole in the numbers has those, too
		live.Missed = 0
	}
	return live
}

// catcher thins the past to a follower's interval.
type catcher struct {
	s        *stream
	interval int64

	tick metric.Snapshot // with the latest frame of each source since the tick before
	run  [16]byte        // of the last tick that the follower has
	last uint64          // its number
	at   int64           // and its time of day
	seen int64           // time of the last tick of the past that was looked at
	torn bool            // ticks are missing since the last one that was sent, which were taken
}

// follow sends the past until nothing is missing before the first tick of the
// mailbox, and returns that.
func (c *catcher) follow(past Backfill, live *metric.Snapshot, out *outlet) *metric.Snapshot {
	for moved := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		before := c.seen
		var failed error
		err := past.Each(c.seen, func(s *metric.Snapshot) error {
			if s.Wall > live.Wall {
				return errReached
			}
			c.join(s)
			if s.Wall == live.Wall {
				return errReached
			}
			if c.take(s) {
				failed = c.send(out)
			}
			return failed
		})
		reached := errors.Is(err, errReached)
		if failed != nil || err != nil && !reached {
			c.torn = true
			return live
		}
		switch mailbox := c.s.sub.C(); {
		case len(mailbox) == cap(mailbox):
			live = c.s.sub.latest(live)
		case reached || c.seen >= live.Wall-c.interval:
			return live
		}
		if now := time.Now(); c.seen > before {
			moved = now
		} else if now.Sub(moved) >= behind {
			c.torn = true // nobody has it
			return live
		}
	}
}

// join notes whether a tick follows the one that was looked at before, but for
// those that the agent missed.
func (c *catcher) join(s *metric.Snapshot) {
	if s.Run.ID == c.run && s.Wall-s.Interval*int64(1+s.Missed) > c.seen {
		c.torn = true
	}
	c.seen = s.Wall
}

// take adds a tick, and reports whether one is due with it.
func (c *catcher) take(past *metric.Snapshot) bool {
	for i := range past.Frames {
		c.frame(&past.Frames[i])
	}
	if past.Wall%c.interval != 0 {
		return false
	}
	frames := c.tick.Frames
	c.tick = *past
	c.tick.Frames, c.tick.Interval = frames, c.interval
	c.tick.Seq, c.tick.Missed = c.number(past)
	return true
}

func (c *catcher) frame(f *metric.Frame) {
	for i := range c.tick.Frames {
		if c.tick.Frames[i].Schema.Source == f.Schema.Source {
			c.tick.Frames[i].CopyFrom(f)
			return
		}
	}
	c.tick.Frames = append(c.tick.Frames, metric.Frame{})
	c.tick.Frames[len(c.tick.Frames)-1].CopyFrom(f)
}

// number is the number of the tick that follows the last one, and how many the
// agent missed between: those are no hole in the numbers, as in a mailbox.
func (c *catcher) number(s *metric.Snapshot) (seq, missed uint64) {
	if s.Run.ID != c.run { // another life: its numbers begin with 1
		c.run, c.last, c.at, c.torn = s.Run.ID, 0, s.Wall-c.interval, false
	}
	steps := uint64(max(1, (s.Wall-c.at)/c.interval))
	if c.torn {
		return c.last + steps, 0
	}
	return c.last + 1, steps - 1
}

func (c *catcher) send(out *outlet) error {
	var err error
	if c.s.buf, err = c.s.encoder.Append(c.s.buf[:0], &c.tick); err != nil {
		return err
	}
	c.last, c.at, c.torn = c.tick.Seq, c.tick.Wall, false
	b := c.s.keep(c.tick.Seq)
	c.tick.Frames = c.tick.Frames[:0]
	return out.send(b)
}

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

// SetBackfill has followers that come back get what they missed from b. It is
// called before there are any.
func (a *Agent) SetBackfill(b Backfill) { a.streams.past = b }

// errReached ends a walk through the past where the present begins.
var errReached = errors.New("the present is reached")

// catchUp sends a follower the ticks between the last one it has and the first
// of its new mailbox, and numbers the mailbox's so that what is missing is
// missing in their numbers. Errors are those of the connection, which the
// next send meets, too.
func (a *Agent) catchUp(f wish, s *stream, live *metric.Snapshot, out *outlet) {
	c := catcher{wish: f, s: s, last: f.since, run: f.run}
	from := f.after
	// Those who keep the past have their own mailboxes, and may be a
	// moment behind this one.
	for range 5 {
		if a.streams.past == nil {
			break
		}
		var failed error
		err := a.streams.past.Each(from, func(past *metric.Snapshot) error {
			if past.Wall >= live.Wall {
				return errReached
			}
			from = past.Wall
			if c.take(past) {
				failed = c.send(out)
			}
			return failed
		})
		if failed != nil || err != nil && !errors.Is(err, errReached) {
			break
		}
		if from >= live.Wall-int64(f.interval) {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	if number := c.number(live.Wall, live.Run); number > live.Seq {
		s.base = number - live.Seq
	}
}

// catcher thins the past to a follower's interval.
type catcher struct {
	wish
	s *stream

	tick  metric.Snapshot // with the latest frame of each source since the tick before
	last  uint64          // number of the last tick sent
	run   [16]byte        // of that one
	first int64           // time before the first of a run of which the follower has none
}

// take adds a tick, and reports whether one is due with it.
func (c *catcher) take(past *metric.Snapshot) bool {
	for i := range past.Frames {
		c.frame(&past.Frames[i])
	}
	if past.Wall%int64(c.interval) != 0 {
		return false
	}
	frames := c.tick.Frames
	c.tick = *past
	c.tick.Frames, c.tick.Missed, c.tick.Interval = frames, 0, int64(c.interval)
	c.tick.Seq = c.number(past.Wall, past.Run)
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

// number is the number of the tick at a time: as many intervals after the last
// one the follower has as the time is.
func (c *catcher) number(wall int64, run *metric.Run) uint64 {
	if run.ID != c.run { // another life: its numbers begin with 1
		c.run, c.first, c.last = run.ID, wall-int64(c.interval), 0
	}
	from, base := c.first, uint64(0)
	if c.run == c.wish.run {
		from, base = c.after, c.since
	}
	return max(base+uint64(max(0, (wall-from)/int64(c.interval))), c.last+1)
}

func (c *catcher) send(out *outlet) error {
	var err error
	if c.s.buf, err = c.s.encoder.Append(c.s.buf[:0], &c.tick); err != nil {
		return err
	}
	c.last = c.tick.Seq
	b := c.s.keep(c.tick.Seq)
	c.tick.Frames = c.tick.Frames[:0]
	return out.send(b)
}

// SPDX-License-Identifier: Apache-2.0

package store

import (
	"math"
	"slices"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// column is a column being built. Its samples are n frames of a timeline in
// a row, as long as they are.
type column struct {
	metric.Column
	line   *timeline
	at, n  int
	own    bool // Time is its own, as the frames are not in a row
	starts []startRun
	live   bool        // the last sample is not followed by an end
	last   []uint64    // the buckets of the last sample
	slots  []hist.Slot // of last, in a native histogram
	round  int
	over   []int64 // starts of lives that do not count any more
}

// startRun is a start that so many samples have.
type startRun struct {
	start int64
	n     int
}

// frames adds samples at frames of a timeline.
func (c *column) frames(l *timeline, at, n int, start int64) {
	if k := len(c.Gone); k > 0 && c.Gone[k-1] >= l.times[at] {
		// An end that was reckoned from the interval, and came out too late.
		if c.Gone[k-1] = l.times[at] - 1; c.lastTime() >= c.Gone[k-1] {
			c.Gone = c.Gone[:k-1]
		}
	}
	switch {
	case c.n == 0:
		c.line, c.at = l, at
	case !c.own && (c.line != l || c.at+c.n != at):
		c.Time, c.own = append(c.Time, c.line.times[c.at:c.at+c.n]...), true
	}
	if c.own {
		c.Time = append(c.Time, l.times[at:at+n]...)
	}
	c.n += n
	if k := len(c.starts); k > 0 && c.starts[k-1].start == start {
		c.starts[k-1].n += n
	} else {
		c.starts = append(c.starts, startRun{start, n})
	}
	c.live = true
}

func (c *column) lastTime() int64 {
	if c.own {
		return c.Time[len(c.Time)-1]
	}
	return c.line.times[c.at+c.n-1]
}

// add appends the sample of the last frame of a timeline. Frames between two
// samples that were decoded and not added leave words changed that are not
// dirty; pick.all says so.
func (c *column) add(l *timeline, p *pick, hint int) {
	c.frames(l, len(l.times)-1, 1, p.start)
	if !c.Desc.Kind.Buckets() {
		if c.Word == nil {
			c.Word = make([]uint64, 0, hint)
		}
		c.Word = append(c.Word, p.words[0])
		return
	}
	c.fit(p.slots, len(p.words))
	if p.all {
		for i := range p.words {
			c.step(p, int32(i))
		}
	} else {
		for _, i := range p.dirty {
			c.step(p, i)
		}
	}
	p.all = false
	c.End = append(c.End, len(c.Step))
}

func (c *column) step(p *pick, i int32) {
	if add := p.words[i] - c.last[i]; add != 0 {
		c.Step = append(c.Step, metric.Step{Bucket: c.bucket(i), Add: int64(add)})
		c.last[i] = p.words[i]
	}
}

// bucket is what a step calls a word: its number, or its slot.
func (c *column) bucket(word int32) int32 {
	if c.slots == nil {
		return word
	}
	return int32(c.slots[word])
}

// fit makes the buckets of the last sample those of the next, which has so
// many words. The slots of a native histogram may have become others: what
// has no word any more steps to zero.
func (c *column) fit(slots []hist.Slot, words int) {
	if c.last == nil || slots == nil {
		if c.slots = slots; c.last == nil {
			c.last = make([]uint64, words)
		}
		return
	}
	if &c.slots[0] == &slots[0] {
		return
	}
	if slices.Equal(c.slots, slots) {
		c.slots = slots
		return
	}
	last := make([]uint64, words)
	for i, s := range c.slots {
		if at, ok := slices.BinarySearch(slots, s); ok {
			last[at] = c.last[i]
		} else if v := c.last[i]; v != 0 {
			c.Step = append(c.Step, metric.Step{Bucket: int32(s), Add: -int64(v)})
		}
	}
	c.last, c.slots = last, slots
}

// extend appends the samples of a life from a frame of a timeline on. As many
// as hint may come: most series that are there for all of a segment stay.
func (c *column) extend(l *timeline, at int, life *partLife, hint int) {
	c.frames(l, at, life.until-life.from, life.start)
	if !c.Desc.Kind.Buckets() {
		if c.Word == nil && at+len(life.word) == len(l.times) {
			c.Word = make([]uint64, 0, max(hint, len(life.word)))
		}
		c.Word = append(c.Word, life.word...)
		return
	}
	c.fit(life.desc.Slots, life.desc.Words())
	// The first sample has its buckets as they are: take off what was before.
	now := make([]uint64, len(c.last))
	for _, s := range life.step[:life.end[0]] {
		now[s.Bucket] = uint64(s.Add)
	}
	for i, v := range now {
		if d := v - c.last[i]; d != 0 {
			c.Step = append(c.Step, metric.Step{Bucket: c.bucket(int32(i)), Add: int64(d)})
		}
	}
	base := len(c.Step) - life.end[0]
	for _, s := range life.step[life.end[0]:] {
		now[s.Bucket] += uint64(s.Add)
		c.Step = append(c.Step, metric.Step{Bucket: c.bucket(s.Bucket), Add: s.Add})
	}
	for _, e := range life.end {
		c.End = append(c.End, base+e)
	}
	c.last = now
}

// end says that the series was found to have ended, if it was there.
func (c *column) end(at, to int64) {
	if !c.live {
		return
	}
	c.live = false
	if last := c.lastTime(); at <= last {
		at = last + 1
	}
	if at <= to {
		c.Gone = append(c.Gone, at)
	}
}

// afterLast is when the tick after t would have been: there a series ends
// that nothing follows.
func afterLast(wall, interval int64) int64 {
	if interval <= 0 || wall > math.MaxInt64-interval {
		return wall
	}
	return wall + interval
}

// sharedStarts are slices of one start, for all columns that never had
// another.
type sharedStarts map[int64][]int64

func (s sharedStarts) of(start int64, n int) []int64 {
	if len(s[start]) < n {
		all := make([]int64, n)
		for i := range all {
			all[i] = start
		}
		s[start] = all
	}
	return s[start][:n:n]
}

// finish is the column as it is handed out. It shares its times with others
// of the source, and its starts with others of the same.
func (c *column) finish(shared sharedStarts) metric.Column {
	if !c.own {
		c.Time = c.line.times[c.at : c.at+c.n : c.at+c.n]
	}
	if len(c.starts) == 1 {
		c.Start = shared.of(c.starts[0].start, c.n)
		return c.Column
	}
	c.Start = make([]int64, 0, c.n)
	for _, r := range c.starts {
		for range r.n {
			c.Start = append(c.Start, r.start)
		}
	}
	return c.Column
}

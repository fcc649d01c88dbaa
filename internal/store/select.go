// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"maps"
	"math"
	"strings"

	"rezolus/internal/metric"
)

// stretch is a run of ticks that can be decoded without what came before:
// a key tick and those that follow it. Time ascends within it.
type stretch struct {
	first, last int64 // Unix nanoseconds of the first and last tick
	// hide is where a later stretch begins when the clock was set back:
	// from there on the newer ticks are the ones that count.
	hide int64
	// over is when the series ended because a gap, another run or the end
	// of the recording follows; 0 when nothing does.
	over  int64
	ticks uint64
}

// shows reports whether any of the stretch's ticks counts within [from, to].
func (s *stretch) shows(from, to int64) bool {
	return s.ticks > 0 && max(s.first, from) <= min(s.latest(), to)
}

// hideFrom lets the ticks of the stretch from wall on give way to newer
// ones, and reports whether there were any.
func (s *stretch) hideFrom(wall int64) bool {
	if s.latest() < wall {
		return false
	}
	s.hide = wall
	return true
}

// before lets the series of the stretch end before the next tick.
func (s *stretch) before(next int64) {
	if s.over >= next && next > s.last+1 {
		s.over = next - 1
	}
}

// latest is the last tick that counts.
func (s *stretch) latest() int64 { return min(s.last, s.hide-1) }

// lookup finds a schema of the present chain by its number. It is nil when
// the record was lost: whoever lost it says so, and its frames are skipped.
type lookup func(number uint64) *metric.Schema

// selection collects the columns of the wanted series from stretches given
// in order.
type selection struct {
	from, to int64
	want     func(*metric.Series) bool
	columns  map[string]*column
	chain    uint32
	hint     int                // ticks to come, as far as is known
	picked   map[uint64]*picked // by schema number within the chain
	current  map[string]*picked // by source: its last frame's
	round    int
	unpack   unpacker
}

// picked is what is wanted of one schema.
type picked struct {
	source string // empty: the schema is lost
	words  int
	picks  []pick
}

// pick is one wanted series of a schema: its column, its words as of the
// last frame, and which of them changed in that frame.
type pick struct {
	off   int
	start int64
	words []uint64
	dirty []int32
	all   bool // the column does not know how the words came to be
	col   *column
}

func newSelection(hint int, from, to int64, want func(*metric.Series) bool) *selection {
	return &selection{hint: hint, from: from, to: to, want: want, columns: map[string]*column{},
		picked: map[uint64]*picked{}, current: map[string]*picked{}}
}

// begin says that the stretch that follows is part of the given chain.
func (s *selection) begin(chain uint32) {
	if chain != s.chain {
		s.chain, s.picked = chain, map[uint64]*picked{}
	}
}

// record takes in the next record of a stretch. It is done with the stretch
// when a tick is too late. After an error the rest of the stretch is
// unknown, and the next stretch may follow.
func (s *selection) record(rec Record, hide int64, find lookup) (done bool, err error) {
	if rec.Type != TypeTick {
		return false, nil
	}
	t, err := parseTick(rec)
	if err != nil {
		return false, err
	}
	if t.wall > s.to || t.wall >= hide {
		return true, nil
	}
	return false, s.tick(&t, rec.body, find)
}

func (s *selection) tick(t *tickFront, body []byte, find lookup) error {
	body, err := s.unpack.body(t, body)
	if err != nil {
		return err
	}
	if t.key {
		for _, p := range s.picked {
			for i := range p.picks {
				clear(p.picks[i].words)
				p.picks[i].all = true
			}
		}
	}
	for c := (cursor{b: body}); len(c.b) > 0; {
		f, err := nextFrame(&c, t.mono)
		if err != nil {
			return err
		}
		p := s.picked[f.number]
		if p == nil {
			p = s.pick(find(f.number))
			s.picked[f.number] = p
		}
		if p.source == "" {
			continue
		}
		if err := p.take(f.words); err != nil {
			return err
		}
		if t.wall >= s.from {
			s.emit(p, t.wall)
		}
	}
	return nil
}

// pick finds what is wanted of a schema.
func (s *selection) pick(schema *metric.Schema) *picked {
	if schema == nil {
		return &picked{}
	}
	// A schema takes the place of the one its source had.
	maps.DeleteFunc(s.picked, func(_ uint64, old *picked) bool { return old.source == schema.Source })
	p := &picked{source: schema.Source, words: schema.Words}
	for i := range schema.Series {
		e := &schema.Series[i]
		if !s.want(e) {
			continue
		}
		id := identity(e)
		col := s.columns[id]
		if col == nil {
			col = &column{Column: metric.Column{Desc: e.Desc, Labels: e.Values}}
			s.columns[id] = col
		}
		p.picks = append(p.picks, pick{off: e.Off, start: e.Start, words: make([]uint64, e.Desc.Words()), all: true, col: col})
	}
	return p
}

// identity is name and labels, and what must agree for two series to share
// a column at all.
func identity(e *metric.Series) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\x00%d %d %v", e.Desc.Name, e.Desc.Kind, e.Desc.Power, e.Desc.Float)
	for i, k := range e.Desc.Keys {
		fmt.Fprintf(&b, "\x00%q=%q", k, e.Values[i])
	}
	return b.String()
}

// take adds a frame's differences to the wanted words. It does not look at
// what follows the last of them.
func (p *picked) take(tokens []byte) error {
	if len(p.picks) == 0 {
		return nil
	}
	for i := range p.picks {
		p.picks[i].dirty = p.picks[i].dirty[:0]
	}
	at := 0
	cur := &p.picks[0]
	return eachDelta(tokens, p.words, func(i int, d uint64) bool {
		for i >= cur.off+len(cur.words) {
			if at++; at == len(p.picks) {
				return false
			}
			cur = &p.picks[at]
		}
		if i >= cur.off {
			cur.words[i-cur.off] += d
			cur.dirty = append(cur.dirty, int32(i-cur.off))
		}
		return true
	})
}

// emit gives the present words to the columns, and ends those that the
// source's last frame had and this one has not.
func (s *selection) emit(p *picked, wall int64) {
	if old := s.current[p.source]; old != p {
		s.round++
		for i := range p.picks {
			p.picks[i].col.round = s.round
			p.picks[i].all = true
		}
		if old != nil {
			for i := range old.picks {
				if col := old.picks[i].col; col.round != s.round {
					col.end(wall, s.to)
				}
			}
		}
		s.current[p.source] = p
	}
	for i := range p.picks {
		p.picks[i].col.add(wall, &p.picks[i], min(s.hint, 4096))
	}
}

// over ends every series that is still there.
func (s *selection) over(at int64) {
	for _, c := range s.columns {
		c.end(at, s.to)
	}
	clear(s.current)
}

// result is the columns that have a sample.
func (s *selection) result() []metric.Column {
	out := make([]metric.Column, 0, len(s.columns))
	for _, c := range s.columns {
		if len(c.Time) > 0 {
			out = append(out, c.Column)
		}
	}
	return out
}

// column is a column being built.
type column struct {
	metric.Column
	live  bool     // the last sample is not followed by an end
	last  []uint64 // the buckets of the last sample
	round int
}

// add appends a sample. Frames between two samples that were decoded and not
// added leave words changed that are not dirty; pick.all says so.
func (c *column) add(wall int64, p *pick, hint int) {
	if n := len(c.Time); n > 0 && wall <= c.Time[n-1] {
		p.all = true
		return
	}
	if n := len(c.Gone); n > 0 && c.Gone[n-1] >= wall {
		// An end that was reckoned from the interval, and came out too late.
		if c.Gone[n-1] = wall - 1; c.Time[len(c.Time)-1] >= wall-1 {
			c.Gone = c.Gone[:n-1]
		}
	}
	c.live = true
	if c.Time == nil {
		c.Time, c.Start = make([]int64, 0, hint), make([]int64, 0, hint)
	}
	c.Time = append(c.Time, wall)
	c.Start = append(c.Start, p.start)
	if c.Desc.Kind != metric.Histogram {
		if c.Word == nil {
			c.Word = make([]uint64, 0, hint)
		}
		c.Word = append(c.Word, p.words[0])
		return
	}
	if c.last == nil {
		c.last = make([]uint64, len(p.words))
	}
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
		c.Step = append(c.Step, metric.Step{Bucket: i, Add: int64(add)})
		c.last[i] = p.words[i]
	}
}

// end says that the series was found to have ended, if it was there.
func (c *column) end(at, to int64) {
	if !c.live {
		return
	}
	c.live = false
	if last := c.Time[len(c.Time)-1]; at <= last {
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

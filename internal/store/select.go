// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"rezolus/internal/hist"
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
	chain    uint32
	hint     int                // ticks to come, as far as is known
	picked   map[uint64]*picked // by schema number within the chain
	lines    map[string]*timeline
	round    int
	unpack   unpacker

	mu      sync.Mutex // segments are decoded ahead, several at once
	columns map[string]*column
	wants   map[*metric.Schema][]wanted
}

// wanted is a series of a schema that is wanted: its number there, and the
// column it belongs to.
type wanted struct {
	number int
	series *metric.Series
	col    *column
}

// timeline is the frames of a source. Columns of the source share its times.
type timeline struct {
	times []int64
	live  []*column // what the last frame had of what is wanted
	rows  *picked   // where that frame was a row
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
	off    int
	start  int64
	slots  []hist.Slot // of a native histogram
	words  []uint64
	dirty  []int32
	hidden bool // another life of it counts
	all    bool // the column does not know how the words came to be
	col    *column
}

func newSelection(hint int, from, to int64, want func(*metric.Series) bool) *selection {
	return &selection{hint: hint, from: from, to: to, want: want, columns: map[string]*column{},
		picked: map[uint64]*picked{}, lines: map[string]*timeline{}, wants: map[*metric.Schema][]wanted{}}
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
	body, err := s.unpack.tick(t, body)
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
	for _, w := range s.wanted(schema) {
		p.picks = append(p.picks, pick{off: w.series.Off, start: w.series.Start, slots: w.series.Desc.Slots,
			words: make([]uint64, w.series.Desc.Words()), all: true, col: w.col})
	}
	return p
}

// wanted finds the wanted series of a schema, and gives each its column.
func (s *selection) wanted(schema *metric.Schema) []wanted {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all, ok := s.wants[schema]; ok {
		return all
	}
	var all []wanted
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
		all = append(all, wanted{i, e, col})
	}
	s.wants[schema] = all
	return all
}

// line is the timeline of a source.
func (s *selection) line(source string) *timeline {
	l := s.lines[source]
	if l == nil {
		l = &timeline{}
		s.lines[source] = l
	}
	return l
}

// identity is name and labels, and what must agree for two series to share
// a column at all.
func identity(e *metric.Series) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\x00%d %d %v", e.Desc.Name, e.Desc.Kind, e.Desc.Power, e.Desc.Float)
	for i, k := range e.Desc.Keys {
		if e.Values[i] != "" { // the same as no such label
			fmt.Fprintf(&b, "\x00%q=%q", k, e.Values[i])
		}
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
	l := s.line(p.source)
	if n := len(l.times); n > 0 && wall <= l.times[n-1] {
		for i := range p.picks {
			p.picks[i].all = true
		}
		return
	}
	if l.times == nil {
		l.times = make([]int64, 0, min(s.hint, 4096))
	}
	l.times = append(l.times, wall)
	if l.rows != p {
		s.hide(p.picks)
		s.round++
		for i := range p.picks {
			if p.picks[i].all = true; !p.picks[i].hidden {
				p.picks[i].col.round = s.round
			}
		}
		s.endOthers(l, wall)
		for i := range p.picks {
			if !p.picks[i].hidden {
				l.live = append(l.live, p.picks[i].col)
			}
		}
		l.rows = p
	}
	for i := range p.picks {
		if !p.picks[i].hidden {
			p.picks[i].col.add(l, &p.picks[i], min(s.hint, 4096))
		}
	}
}

// endOthers ends what was live on a timeline and is not of this round.
func (s *selection) endOthers(l *timeline, wall int64) {
	for _, col := range l.live {
		if col.round != s.round {
			col.end(wall, s.to)
		}
	}
	l.live = l.live[:0]
}

// part gives a decoded segment to the columns.
func (s *selection) part(p *part) {
	for i := range p.sources {
		src := &p.sources[i]
		l := s.line(src.name)
		if n := len(l.times); n > 0 && src.times[0] <= l.times[n-1] {
			continue // hidden, or not made by a writer
		}
		l.rows = nil
		src.hide()
		if len(src.lives) == 0 {
			s.round++
			s.endOthers(l, src.times[0])
			continue
		}
		if l.times == nil {
			l.times = make([]int64, 0, s.hint)
		}
		at := len(l.times)
		l.times = append(l.times, src.times...)
		for _, frame := range src.changes() {
			s.round++
			for j := range src.lives {
				if src.lives[j].from <= frame && src.lives[j].until > frame {
					src.lives[j].col.round = s.round
				}
			}
			s.endOthers(l, src.times[frame])
			for j := range src.lives {
				life := &src.lives[j]
				if life.from == frame && !life.lost {
					life.col.extend(l, at+frame, life, s.hint)
				}
				if life.from <= frame && life.until > frame {
					l.live = append(l.live, life.col)
				}
			}
		}
	}
}

// changes are the frames at which other lives are there than before, and the
// first.
func (p *partSource) changes() []int {
	all := []int{0}
	for i := range p.lives {
		if f := p.lives[i].from; f > 0 {
			all = append(all, f)
		}
		if f := p.lives[i].until; f < len(p.times) {
			all = append(all, f)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// over ends every series that is still there.
func (s *selection) over(at int64) {
	for _, l := range s.lines {
		for _, col := range l.live {
			col.end(at, s.to)
		}
		l.live, l.rows = l.live[:0], nil
	}
}

// result is the columns that have a sample.
func (s *selection) result() []metric.Column {
	out := make([]metric.Column, 0, len(s.columns))
	starts := sharedStarts{}
	for _, c := range s.columns {
		if c.n > 0 {
			out = append(out, c.finish(starts))
		}
	}
	return out
}

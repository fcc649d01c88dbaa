// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"

	"rezolus/internal/metric"
)

// witnesses are how many columns of a source are looked at in a file of
// others, to tell a series that ended from a source that was not due.
const witnesses = 4

// picked is a series that is wanted: the columns that have it, of which there
// is more than one where its description became another.
type picked struct {
	metric.Column
	strands []*strand
	broken  int      // of the breaks, those that are behind
	live    bool     // the last sample is not followed by an end
	from    *strand  // of a histogram's last sample
	last    []uint64 // and its buckets
}

// strand is a column as it is selected.
type strand struct {
	*input
	life      *life
	start     int64
	begun     int // starts and ends that are used
	ended     int
	before    uint64   // the word of the last row
	now       []uint64 // a histogram's buckets as of the last row
	was       []uint64 // and as of the row group before
	seen      bool     // now is of the present row group
	synced    bool     // the last sample has them
	there     bool     // in the present row
	over      bool     // the life that began at until does not count any more
	until     int64
	witnesses []*input
}

// part is what was decoded of a row group.
type part struct {
	group  int
	times  block
	blocks map[*input]*block
	err    error
}

// Select implements query.Reader. Only the columns of the wanted series are
// read, of the row groups that have ticks then, on all processors.
func (f *File) Select(ctx context.Context, from, to int64, want func(*metric.Series) bool) ([]metric.Column, error) {
	s := &selecting{File: f, from: from, to: to, breaks: f.breaks()}
	s.pick(want)
	var groups []int
	for i, g := range f.footer.groups {
		if g.rows > 0 && g.max >= from && g.min <= to && g.min < f.earliest[i+1] {
			groups = append(groups, i)
		}
	}
	if len(s.picks) == 0 {
		return nil, nil
	}
	err := s.decode(ctx, groups)
	if err != nil {
		return nil, fmt.Errorf("select: %w", err)
	}
	var out []metric.Column
	for _, p := range s.picks {
		if len(p.Time) > 0 {
			out = append(out, p.Column)
		}
	}
	return out, nil
}

// selecting is a selection.
type selecting struct {
	*File
	from, to int64
	picks    []*picked
	inputs   []*input // all that are read, times aside
	breaks   []int64
	last     int64 // time of the row before
}

// pick finds the columns of what is wanted.
func (s *selecting) pick(want func(*metric.Series) bool) {
	by := map[string]*picked{}
	read := map[*input]bool{}
	take := func(in *input) {
		if !read[in] {
			read[in] = true
			s.inputs = append(s.inputs, in)
		}
	}
	for _, o := range s.origins {
		for _, in := range o.columns {
			if !want(&metric.Series{Desc: in.desc, Values: in.values}) {
				continue
			}
			id := Name(in.desc, in.values) + strconv.Itoa(int(in.desc.Kind)) + strconv.Itoa(int(in.desc.Power)) + strconv.FormatBool(in.desc.Float)
			p := by[id]
			if p == nil {
				p = &picked{Column: metric.Column{Desc: in.desc, Labels: in.values}}
				by[id] = p
				s.picks = append(s.picks, p)
			}
			st := &strand{input: in, life: s.lives[in.number]}
			take(in)
			if s.facts == nil {
				st.witnesses = o.columns[:min(witnesses, len(o.columns))]
				for _, w := range st.witnesses {
					take(w)
				}
			}
			p.strands = append(p.strands, st)
		}
	}
	slices.Sort(s.breaks)
}

// decode decodes row groups ahead of their use, on all processors.
func (s *selecting) decode(ctx context.Context, groups []int) error {
	ahead := runtime.GOMAXPROCS(0)
	parts := make([]chan *part, len(groups))
	free := make(chan *decoder, ahead)
	for range ahead {
		free <- &decoder{}
	}
	begin := func(k int) {
		parts[k] = make(chan *part, 1)
		go func() {
			d := <-free
			parts[k] <- s.part(ctx, d, groups[k])
			free <- d
		}()
	}
	for k := range groups {
		for next := k; next <= min(k+ahead, len(groups)-1); next++ {
			if parts[next] == nil {
				begin(next)
			}
		}
		p := <-parts[k]
		if p.err != nil {
			return p.err
		}
		s.take(p)
	}
	return nil
}

// part decodes what is wanted of a row group.
func (s *selecting) part(ctx context.Context, d *decoder, group int) *part {
	g := &s.footer.groups[group]
	out := &part{group: group, blocks: map[*input]*block{}}
	if out.err = ctx.Err(); out.err != nil {
		return out
	}
	at := map[int]*chunkAt{s.time.leaf.leaf: nil}
	for _, in := range s.inputs {
		at[in.leaf.leaf] = nil
	}
	left := len(at)
	out.err = s.footer.chunks(s.r, g, func(leaf int, c *chunkAt) bool {
		if _, wanted := at[leaf]; wanted {
			own := *c
			at[leaf] = &own
			left--
		}
		return left == 0
	})
	if out.err == nil {
		out.err = d.try(s.File, s.time, at[s.time.leaf.leaf], int(g.rows), &out.times)
	}
	for _, in := range s.inputs {
		if out.err != nil {
			return out
		}
		b := &block{}
		out.blocks[in] = b
		out.err = d.try(s.File, in, at[in.leaf.leaf], int(g.rows), b)
	}
	return out
}

// take gives a row group to the columns.
func (s *selecting) take(p *part) {
	rows := len(p.times.words)
	// Rows that a clock that was set back hides give way to newer ones.
	shows := make([]bool, rows)
	earliest := s.earliest[p.group+1]
	for i := rows - 1; i >= 0; i-- {
		t := int64(p.times.words[i]) * s.time.scale
		shows[i] = t < earliest && t >= s.from && t <= s.to
		earliest = min(earliest, t)
	}
	for _, c := range s.picks {
		s.column(c, p, shows)
	}
	s.last = int64(p.times.words[rows-1]) * s.time.scale
}

// column gives a row group to a column.
func (s *selecting) column(c *picked, p *part, shows []bool) {
	first, last := s.firsts[p.group], s.last
	for _, st := range c.strands {
		st.group()
	}
	for i := range len(shows) + 1 {
		row := first + int64(i)
		for ; c.broken < len(s.breaks) && s.breaks[c.broken] <= row; c.broken++ {
			c.end(afterLast(last, s.intervalAt(row-1)), s.to)
		}
		if i == len(shows) {
			break
		}
		t := int64(p.times.words[i]) * s.time.scale
		there, gone := false, false
		for _, st := range c.strands {
			gone = st.turn(row) || gone
			st.there = p.blocks[st.input].present[i]
			gone = gone || !st.there && st.passed(p, i)
		}
		c.supersede()
		for _, st := range c.strands {
			if st.there {
				over := st.over && st.start == st.until
				there = there || !over
				c.sample(st, p.blocks[st.input], i, moment{t, last, shows[i] && !over})
			}
		}
		if gone && !there {
			c.end(t, s.to)
		}
		last = t
	}
}

// supersede ends the lives that another, which began later, stands beside:
// for good, even where they outlast it. A recording does the same.
func (c *picked) supersede() {
	if len(c.strands) < 2 {
		return
	}
	var newest *strand
	for _, st := range c.strands {
		if st.there && st.life != nil && (newest == nil || st.start > newest.start) {
			newest = st
		}
	}
	for _, st := range c.strands {
		if st.there && st.life != nil && st.start < newest.start {
			st.over, st.until = true, st.start
		}
	}
}

// afterLast is when the tick after t would have been.
func afterLast(t, interval int64) int64 {
	if interval <= 0 || t > math.MaxInt64-interval {
		return t
	}
	return t + interval
}

// group begins a row group, whose histograms begin with all of their buckets.
func (st *strand) group() {
	if st.width == 0 {
		return
	}
	if st.seen {
		st.was = st.now
	}
	st.now, st.seen, st.synced = make([]uint64, st.width), false, false
}

// turn takes the starts up to a row, and reports whether the series ended.
func (st *strand) turn(row int64) (ended bool) {
	if st.life == nil {
		return false
	}
	for ; st.ended < len(st.life.ends) && st.life.ends[st.ended] <= row; st.ended++ {
		ended = true
	}
	for ; st.begun < len(st.life.starts) && st.life.starts[st.begun][0] <= row; st.begun++ {
		st.start = st.life.starts[st.begun][1]
	}
	return ended
}

// passed reports whether the source came without the series, as far as the
// witnesses know.
func (st *strand) passed(p *part, row int) bool {
	for _, w := range st.witnesses {
		if p.blocks[w].present[row] {
			return true
		}
	}
	return false
}

// advance brings a strand to a row, and reports whether it fell.
func (st *strand) advance(b *block, row int) (steps []metric.Step, fell bool) {
	if st.width == 0 {
		fell = st.desc.Kind == metric.Counter && b.words[row] < st.before
		st.before = b.words[row]
		return nil, fell
	}
	from := 0
	if row > 0 {
		from = b.end[row-1]
	}
	steps = b.step[from:b.end[row]]
	for _, s := range steps {
		st.now[s.Bucket] += uint64(s.Add)
		fell = fell || st.seen && s.Add < 0
	}
	if !st.seen && st.was != nil {
		for i, v := range st.now {
			fell = fell || v < st.was[i]
		}
	}
	st.seen = true
	return steps, fell
}

// moment is a row's time and that of the row before, and whether it shows.
type moment struct {
	t, last int64
	shows   bool
}

// sample takes a row of a strand.
func (c *picked) sample(st *strand, b *block, row int, m moment) {
	steps, fell := st.advance(b, row)
	if fell && st.life == nil {
		st.start = m.last // it was zero at some time since the row before
	}
	n := len(c.Time)
	if !m.shows || n > 0 && c.Time[n-1] >= m.t {
		st.synced = false
		return
	}
	if k := len(c.Gone); k > 0 && c.Gone[k-1] >= m.t {
		// An end that was reckoned from the interval, and came out too late.
		if c.Gone[k-1] = m.t - 1; c.Time[n-1] >= c.Gone[k-1] {
			c.Gone = c.Gone[:k-1]
		}
	}
	c.Time, c.Start, c.live = append(c.Time, m.t), append(c.Start, st.start), true
	if st.width == 0 {
		c.Word = append(c.Word, b.words[row])
		return
	}
	if c.from != st || !st.synced {
		c.turnTo(st)
	} else {
		for _, s := range steps {
			c.last[s.Bucket] = st.now[s.Bucket]
			c.Step = append(c.Step, metric.Step{Bucket: st.bucket(int(s.Bucket)), Add: s.Add})
		}
	}
	st.synced = true
	c.End = append(c.End, len(c.Step))
}

// bucket is what a step calls a bucket: its number, or its slot.
func (st *strand) bucket(i int) int32 {
	if st.desc.Kind.Native() {
		return int32(st.desc.Slots[i])
	}
	return int32(i)
}

// turnTo adds the steps from the last sample to what a strand has now.
func (c *picked) turnTo(st *strand) {
	if c.from != st {
		for i, v := range c.last {
			if v != 0 {
				c.Step = append(c.Step, metric.Step{Bucket: c.from.bucket(i), Add: -int64(v)})
			}
		}
		c.from, c.last = st, make([]uint64, st.width)
	}
	for i, v := range st.now {
		if v != c.last[i] {
			c.Step = append(c.Step, metric.Step{Bucket: st.bucket(i), Add: int64(v - c.last[i])})
			c.last[i] = v
		}
	}
}

// end says that the series was found to have ended, if it was there.
func (c *picked) end(at, to int64) {
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

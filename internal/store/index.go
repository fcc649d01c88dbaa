// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"math"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/vfs"
)

// Damage is a part of a recording that could not be read.
type Damage struct {
	Offset, Bytes int64
	Err           error // is ErrCorrupt or ErrTruncated
}

// maxDamage is how many damaged parts are remembered apart.
const maxDamage = 1024

// index says where the parts of a recording lie. It is made from the fronts
// of its records.
type index struct {
	stretches []located
	chains    []*chain
	marks     []mark
	damage    []Damage
	tail      *Damage // the end that is not, or not yet, a whole record
	end       int64   // where the next record begins
	closed    bool

	before  tickFront // the last tick of the open stretch
	open    bool      // the last stretch goes on
	ticks   uint64
	missed  uint64
	pending uint64 // ticks that gap records since the last tick tell of
	lastRun [16]byte
	lastSeq uint64
	series  int
	dicts   map[metric.Hash]*dictAt
}

// mark is a gap or an event, and how many stretches begin before it.
type mark struct {
	before int
	gap    Gap
	event  *Event // nil: it is a gap
}

// dictAt is a dictionary of a file.
type dictAt struct {
	dictFront
	off, size int64
	parsed    *metric.Schema
}

// located is a stretch of a file.
type located struct {
	stretch
	off, end int64
	interval int64 // of the last tick
	chain    *chain
	segment  *segmentFront // nil: the ticks are rows
	r        *Recording    // set where it leaves the index
	blocks   int64         // where the segment's blocks begin
}

// chain is what a run record begins.
type chain struct {
	runFront
	schemas  []*schemaAt
	byNumber map[uint64]*schemaAt
	bySource map[string]*schemaAt // those in force now
	series   int                  // of those
	words    uint64               // of those
}

// schemaAt is a schema of a chain, in force from one byte to another.
type schemaAt struct {
	schemaFront
	from, until int64
	size        int64
	parsed      *metric.Schema
	lost        bool // its record cannot be read
}

// scan takes in the records from x.end up to size. With bodies set it checks
// those too: a crash may have left any of them half written.
func (x *index) scan(f vfs.File, size int64, bodies bool) error {
	p := pages{f: f, size: size}
	if !bodies {
		p.step = 16 << 10 // what is passed over need not be read
	}
	x.tail = nil
	if x.end == 0 {
		if done, err := x.header(&p); done || err != nil {
			return err
		}
	}
	for x.end < size {
		rec, n, err := p.record(x.end, bodies)
		switch {
		case err == nil:
			if rec.Type == TypeSegment {
				n, err = x.takeSegment(rec, n, size, bodies)
			} else {
				err = x.take(rec, n)
			}
		case n > 0 && errors.Is(err, ErrCorrupt): // only the body: the next record is where it should be
			x.open = false
		}
		switch {
		case err == nil:
			x.end += n
		case errors.Is(err, ErrTruncated):
			x.tail = &Damage{x.end, size - x.end, err}
			return nil
		case !errors.Is(err, ErrCorrupt):
			return fmt.Errorf("record at byte %d: %w", x.end, err)
		case n > 0:
			x.hurt(Damage{x.end, n, err})
			x.end += n
		default:
			next, ok := p.resync(x.end + 1)
			if !ok {
				x.tail = &Damage{x.end, size - x.end, err}
				return nil
			}
			x.open = false
			x.hurt(Damage{x.end, next - x.end, err})
			x.end = next
		}
	}
	return nil
}

// header checks the file's first bytes. Damage within them does not keep the
// records from being read, as long as the magic is there.
func (x *index) header(p *pages) (done bool, err error) {
	b, err := p.at(0, int(min(p.size, headerSize)))
	if err != nil {
		return true, err
	}
	switch err := checkHeader(b); {
	case errors.Is(err, ErrTruncated):
		x.tail = &Damage{0, p.size, err}
		return true, nil
	case errors.Is(err, ErrCorrupt):
		x.hurt(Damage{0, headerSize, err})
	case err != nil:
		return true, err
	}
	x.end = headerSize
	return false, nil
}

// hurt remembers damage, next to the one before where they touch.
func (x *index) hurt(d Damage) {
	for i := range x.damage {
		if x.damage[i].Offset == d.Offset {
			return // found again
		}
	}
	if n := len(x.damage); n > 0 {
		if last := &x.damage[n-1]; last.Offset+last.Bytes == d.Offset || n >= maxDamage {
			last.Bytes += d.Bytes
			return
		}
	}
	x.damage = append(x.damage, d)
}

// take takes in one record of n bytes. ErrCorrupt says that the record is
// whole but of no use.
func (x *index) take(rec Record, n int64) error {
	if rec.Type != TypeEnd {
		x.closed = false
	}
	switch rec.Type {
	case TypeRun:
		r, err := parseRun(rec)
		if err != nil {
			return err
		}
		if k := len(x.chains); k > 0 && x.chains[k-1].run.ID != r.run.ID {
			x.over()
		}
		x.open = false
		x.chains = append(x.chains, &chain{runFront: r, byNumber: map[uint64]*schemaAt{}, bySource: map[string]*schemaAt{}})
	case TypeSchema:
		return x.takeSchema(rec, n)
	case TypeTick:
		return x.takeTick(rec, n)
	case TypeGap:
		g, err := parseGap(rec)
		if err != nil {
			return err
		}
		x.over()
		x.marks = append(x.marks, mark{before: len(x.stretches), gap: g})
		x.pending += g.Ticks
	case TypeEvent:
		e, err := parseEvent(rec)
		if err != nil {
			return err
		}
		x.marks = append(x.marks, mark{before: len(x.stretches), event: &e})
	case TypeDict:
		return x.takeDict(rec, n)
	case TypeEnd:
		if _, err := parseEnd(rec); err != nil {
			return err
		}
		if rec.flags&flagGoesOn == 0 {
			x.over()
		}
		x.open, x.closed = false, true
	}
	return nil
}

// over ends the series of the stretch before.
func (x *index) over() {
	x.open = false
	if n := len(x.stretches); n > 0 {
		x.stretches[n-1].ends()
	}
}

// ends ends the series of a stretch.
func (l *located) ends() {
	if l.over == 0 {
		l.over = afterLast(l.last, l.interval)
	}
}

// present is the chain with the given id, if it is the one in force.
func (x *index) present(id uint32) *chain {
	if n := len(x.chains); n > 0 && x.chains[n-1].chain == id {
		return x.chains[n-1]
	}
	return nil
}

func (x *index) takeSchema(rec Record, n int64) error {
	f, err := parseSchemaFront(rec)
	if err != nil {
		return err
	}
	c := x.present(f.chain)
	if c == nil {
		return fmt.Errorf("%w: schema %d of a chain whose beginning is missing", ErrCorrupt, f.number)
	}
	at := &schemaAt{schemaFront: f, from: x.end, until: math.MaxInt64, size: n}
	if old := c.bySource[f.source]; old != nil {
		old.until = x.end
		c.series -= int(old.series)
		c.words -= old.words
	}
	c.bySource[f.source], c.byNumber[f.number] = at, at
	c.schemas = append(c.schemas, at)
	c.series += int(f.series)
	if c.words += f.words; c.words > maxWords {
		at.lost = true
		return fmt.Errorf("%w: more than %d words", ErrCorrupt, maxWords)
	}
	x.series = max(x.series, c.series)
	return nil
}

func (x *index) takeTick(rec Record, n int64) error {
	t, err := parseTick(rec)
	if err != nil {
		return err
	}
	c := x.present(t.chain)
	if c == nil {
		return fmt.Errorf("%w: tick of a chain whose beginning is missing", ErrCorrupt)
	}
	if !t.key && (!x.open || !t.follows(&x.before)) {
		x.open = false
		return fmt.Errorf("%w: tick that needs one that is missing", ErrCorrupt)
	}
	if t.key {
		x.begin(located{off: x.end, chain: c, stretch: stretch{first: t.wall, hide: math.MaxInt64}})
	}
	s := &x.stretches[len(x.stretches)-1]
	s.last, s.interval, s.end = t.wall, t.interval, x.end+n
	s.ticks++
	x.before, x.open = t, true
	x.count(c, t.seq, t.seq, 1, t.missed)
	return nil
}

// begin begins a stretch.
func (x *index) begin(l located) { x.stretches = appendStretch(x.stretches, l) }

// appendStretch appends a stretch, which those before it give way to.
func appendStretch(all []located, l located) []located {
	if n := len(all); n > 0 {
		all[n-1].before(l.first)
	}
	for i := len(all) - 1; i >= 0 && all[i].hideFrom(l.first); i-- {
	}
	return append(all, l)
}

// count adds ticks to the totals.
func (x *index) count(c *chain, first, last, ticks, missed uint64) {
	hole := uint64(0)
	if c.run.ID == x.lastRun && x.ticks > 0 && first > x.lastSeq {
		hole = first - x.lastSeq - 1
	}
	if last-first >= ticks {
		missed += last - first - ticks + 1
	}
	x.ticks += ticks
	x.missed += missed + max(hole, x.pending)
	x.pending, x.lastRun, x.lastSeq = 0, c.run.ID, last
}

func (x *index) takeDict(rec Record, n int64) error {
	f, err := parseDict(rec)
	if err != nil {
		return err
	}
	if x.dicts == nil {
		x.dicts = map[metric.Hash]*dictAt{}
	}
	if x.dicts[f.hash] == nil {
		x.dicts[f.hash] = &dictAt{dictFront: f, off: x.end, size: n}
	}
	return nil
}

// takeSegment takes in a segment whose directory's record has n bytes, and
// returns how many are to be passed over. The blocks are left to be read when
// they are wanted, unless they are to be checked.
func (x *index) takeSegment(rec Record, n, size int64, bodies bool) (int64, error) {
	f, err := parseSegment(rec)
	if err != nil {
		return n, err
	}
	x.closed, x.open = false, false
	c := x.present(f.chain)
	if c == nil {
		return n, fmt.Errorf("%w: segment of a chain whose beginning is missing", ErrCorrupt)
	}
	if int64(f.follow) > size-x.end-n {
		return n, ErrTruncated
	}
	x.begin(located{off: x.end, end: x.end + n, blocks: x.end + n, interval: int64(f.interval), chain: c, segment: &f,
		stretch: stretch{first: f.first, last: f.last, ticks: f.ticks, hide: math.MaxInt64}})
	x.count(c, f.seq, f.lastSeq, f.ticks, f.missed)
	x.series = max(x.series, int(f.series))
	if bodies {
		return n, nil
	}
	return n + int64(f.follow), nil
}

// RunInfo is one run record of a recording.
type RunInfo struct {
	Run      metric.Run
	Meta     map[string]string
	Interval time.Duration // asked for
}

// Info is what a recording is, without its samples.
type Info struct {
	Runs     []RunInfo // one for each agent's life that follows another
	Ticks    uint64
	Missed   uint64 // ticks that were due and are not there
	First    int64  // Unix nanoseconds of the first and the last tick
	Last     int64
	Interval time.Duration // asked for at the last tick
	Series   int           // the most that lived at once
	Bytes    int64
	Closed   bool // it was closed and not cut off
	Gaps     []Gap
	Events   []Event
	Damage   []Damage // what could not be read; the last may be a torn end
}

func (x *index) info() Info {
	i := Info{Ticks: x.ticks, Missed: x.missed + x.pending, Series: x.series, Bytes: x.end, Closed: x.closed,
		Damage: append([]Damage(nil), x.damage...)}
	for _, m := range x.marks {
		if m.event != nil {
			i.Events = append(i.Events, *m.event)
		} else {
			i.Gaps = append(i.Gaps, m.gap)
		}
	}
	for _, c := range x.chains {
		if n := len(i.Runs); n == 0 || i.Runs[n-1].Run != c.run {
			i.Runs = append(i.Runs, RunInfo{c.run, c.meta, c.interval})
		}
	}
	if x.tail != nil {
		i.Damage = append(i.Damage, *x.tail)
		i.Bytes += x.tail.Bytes
	}
	i.First, i.Last = bounds(x.stretches)
	if n := len(x.stretches); n > 0 {
		i.Interval = time.Duration(x.stretches[n-1].interval)
	}
	return i
}

func bounds(all []located) (first, last int64) {
	for i := range all {
		s := &all[i]
		if i == 0 {
			first, last = s.first, s.latest()
		}
		first, last = min(first, s.first), max(last, s.latest())
	}
	return first, last
}

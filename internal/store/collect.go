// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"hash/maphash"
	"slices"

	"rezolus/internal/metric"
)

// Limits of a segment. A writer cuts before them; a reader refuses more.
const (
	maxTicks = 1<<16 - 1
	maxCells = 1 << 25 // ticks times series
)

// sealBytes is what the changes of a segment take in memory when it is sealed:
// half a million words. docs/journal/2026-11-21-bytes-of-columns.md has the
// measurement.
const sealBytes = 2 << 20

// sealFrames is how many frames a segment has at most, 2 MB of them: where
// hardly anything changes in a tick of 1 ms, they are what takes the memory.
const sealFrames = 1 << 16

// collector turns ticks, which are differences between rows, into columns:
// for each word, when it changed and by how much. It holds one segment, and
// what the words are at its end; memory follows the changes and not the
// words times the ticks.
type collector struct {
	limit   int // bytes of changes that make it full
	rows    []tickFront
	sources []*collected // in the order of a tick's frames
	words   int          // of all lives
	init    []uint64     // what each of them was at first
	now     []uint64     // and is now
	changes changeLog
	tmp     []uint64 // scratch
	byID    map[uint64]int32
	sealing sealing
}

// collected is one source of a segment.
type collected struct {
	name   string
	schema *metric.Schema // of its last frame
	lifeOf []int32        // whose the words of that schema are
	dirty  bool           // the next frame's differences are from zero
	frames []frameRow
	uses   []schemaUse
	lives  []life
	spare  []life // memory for the next segment's
	descs  map[string]*metric.Desc
	round  int // schemas so far
}

// frameRow is a frame without its words.
type frameRow struct {
	row        uint16 // of the tick
	begin, end int64
	lost       uint64
}

// schemaUse says that the frames from first on have these lives, in this
// order, until the next use.
type schemaUse struct {
	first int
	lives []int32
}

// life is a series as long as it is in every frame of its source.
type life struct {
	series metric.Series
	base   uint32 // its first word
	off    uint32 // that in the source's schema
	first  int    // frame of the source
	round  int    // of the last schema that has it
	track  track  // its changes
}

// full reports whether the next tick belongs into another segment.
func (c *collector) full() bool {
	series, frames := 0, 0
	for _, s := range c.sources {
		series += len(s.lives)
		frames += len(s.frames)
	}
	return c.changes.bytes >= c.limit || frames >= sealFrames || len(c.rows) >= maxTicks || len(c.rows)*series >= maxCells-series
}

// source is the collected source of a name.
func (c *collector) source(name string) (int, *collected) {
	i := slices.IndexFunc(c.sources, func(s *collected) bool { return s.name == name })
	if i < 0 {
		return i, nil
	}
	return i, c.sources[i]
}

// forget starts over: nothing is known of any word.
func (c *collector) forget() {
	clear(c.sources)
	c.sources = c.sources[:0]
	c.empty()
}

// empty leaves out what was collected. Its memory is for the next segment:
// what a recorder takes does not grow from one to the other.
func (c *collector) empty() {
	c.rows, c.words, c.init, c.now = c.rows[:0], 0, c.init[:0], c.now[:0]
	c.changes.reset()
}

// next begins another segment where this one ended.
func (c *collector) next() {
	was := append(c.tmp[:0], c.now...)
	c.tmp = was
	c.empty()
	for _, s := range c.sources {
		old, last := s.lives, s.uses[len(s.uses)-1].lives
		s.lives, s.spare = s.spare[:0], old
		s.frames, s.uses, s.round = s.frames[:0], s.uses[:0], 0
		clear(s.descs)
		for _, i := range last {
			c.live(s, &old[i].series, was[old[i].base:])
		}
		s.use(s.schema, 0, nil)
		clear(old) // of series that are no more nothing is kept
	}
}

// live adds a life with the given words to a source.
func (c *collector) live(s *collected, e *metric.Series, words []uint64) {
	s.lives = append(s.lives, life{series: *e, base: uint32(c.words), first: len(s.frames)})
	s.descs[e.Desc.Name] = e.Desc
	n := e.Desc.Words()
	c.words += n
	if words == nil {
		c.init = append(c.init, make([]uint64, n)...)
		c.now = append(c.now, make([]uint64, n)...)
		return
	}
	c.init = append(c.init, words[:n]...)
	c.now = append(c.now, words[:n]...)
}

// use puts a schema in force, whose series are the given lives; nil means
// all there are.
func (s *collected) use(schema *metric.Schema, first int, lives []int32) {
	if lives == nil {
		for i := range s.lives {
			lives = append(lives, int32(i))
		}
	}
	s.schema, s.lifeOf = schema, slices.Grow(s.lifeOf[:0], schema.Words)
	for _, i := range lives {
		e := &s.lives[i]
		e.off = uint32(len(s.lifeOf))
		for range e.series.Desc.Words() {
			s.lifeOf = append(s.lifeOf, i)
		}
	}
	if n := len(s.uses); n > 0 && s.uses[n-1].first == first {
		s.uses = s.uses[:n-1]
	}
	s.uses = append(s.uses, schemaUse{first, lives})
}

// fits reports whether a schema may stand in this segment together with those
// the source had: a metric has one description.
func (s *collected) fits(schema *metric.Schema) bool {
	var last *metric.Desc
	for i := range schema.Series {
		if d := schema.Series[i].Desc; d != last {
			last = d
			if known := s.descs[d.Name]; known != nil && !sameDesc(known, d) {
				return false
			}
		}
	}
	return true
}

func sameDesc(a, b *metric.Desc) bool {
	return a == b || a.Name == b.Name && a.Help == b.Help && a.Unit == b.Unit && a.Kind == b.Kind &&
		a.Float == b.Float && a.Power == b.Power && slices.Equal(a.Slots, b.Slots) && a.Sampler == b.Sampler && slices.Equal(a.Keys, b.Keys)
}

// change puts a schema in force. Series that go on keep their life.
func (c *collector) change(s *collected, schema *metric.Schema) {
	s.round++
	var old []int32
	if len(s.uses) > 0 {
		old = s.uses[len(s.uses)-1].lives
	}
	lives := make([]int32, 0, len(schema.Series))
	known := false // byID has those of old
	at := 0
	for i := range schema.Series {
		e := schema.Series[i]
		if d := s.descs[e.Desc.Name]; d != nil {
			e.Desc = d
		}
		if at >= len(old) || !s.goesOn(old[at], &e) { // most go on, and in the same order
			if !known {
				known = true
				c.number(s, old)
			}
			if j, ok := c.byID[idHash(&e)]; ok {
				at = int(j)
			}
		}
		if at < len(old) && s.goesOn(old[at], &e) {
			s.lives[old[at]].round = s.round
			lives = append(lives, old[at])
			at++
			continue
		}
		lives = append(lives, int32(len(s.lives)))
		c.live(s, &e, nil)
	}
	s.use(schema, len(s.frames), lives)
	s.dirty = true
}

// number notes where in a list of lives each is. Two of the same hash may hide
// one another: then a series has two lives, which costs a few bytes.
func (c *collector) number(s *collected, lives []int32) {
	if c.byID == nil {
		c.byID = map[uint64]int32{}
	}
	clear(c.byID)
	for j, l := range lives {
		c.byID[idHash(&s.lives[l].series)] = int32(j)
	}
}

var idSeed = maphash.MakeSeed()

// idHash is a hash of what makes a series the same in two schemas of a source.
func idHash(e *metric.Series) uint64 {
	var h maphash.Hash
	h.SetSeed(idSeed)
	_, _ = h.WriteString(e.Desc.Name) // it never fails
	for _, v := range e.Values {
		_ = h.WriteByte(0)
		_, _ = h.WriteString(v)
	}
	return h.Sum64()
}

// goesOn reports whether a life goes on as the series e.
func (s *collected) goesOn(l int32, e *metric.Series) bool {
	a := &s.lives[l]
	return a.round != s.round && a.series.Desc == e.Desc && a.series.Start == e.Start && slices.Equal(a.series.Values, e.Values)
}

// frame takes in a frame of a source: into the segment as part of the last
// row if keep is set, else only to know the words.
func (c *collector) frame(s *collected, f *frameFront, keep bool) error {
	fresh := len(s.frames) == 0 // the words are what they are at first
	at := len(s.frames)
	if s.dirty {
		if err := c.plain(s, f.words, at, keep && !fresh); err != nil {
			return err
		}
	} else {
		err := eachDelta(f.words, s.schema.Words, func(i int, d uint64) bool {
			e := &s.lives[s.lifeOf[i]]
			word := i - int(e.off)
			c.now[int(e.base)+word] += d
			if keep && !fresh {
				c.changes.add(&e.track, at, word, e.series.Desc.Words(), d)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	s.dirty = false
	if !keep {
		return nil
	}
	if fresh {
		for _, l := range s.uses[len(s.uses)-1].lives {
			e := &s.lives[l]
			copy(c.init[e.base:][:e.series.Desc.Words()], c.now[e.base:])
		}
	}
	s.frames = append(s.frames, frameRow{uint16(len(c.rows) - 1), f.begin, f.end, f.lost})
	return nil
}

// plain takes in a frame whose differences are from zero. Series that are in
// a frame for the first time have no step, but what they are at first.
func (c *collector) plain(s *collected, tokens []byte, at int, keep bool) error {
	c.tmp = slices.Grow(c.tmp[:0], s.schema.Words)[:s.schema.Words]
	clear(c.tmp)
	if err := addDeltas(tokens, c.tmp); err != nil {
		return err
	}
	uses := s.uses[len(s.uses)-1]
	n := 0
	for _, l := range uses.lives {
		e := &s.lives[l]
		born := e.first == at
		words := e.series.Desc.Words()
		for i := range words {
			w := e.base + uint32(i)
			v := c.tmp[n]
			n++
			if v == c.now[w] {
				continue
			}
			if born {
				c.init[w] = v
			} else if keep {
				c.changes.add(&e.track, at, i, words, v-c.now[w])
			}
			c.now[w] = v
		}
	}
	return nil
}

// tick takes in the frames of a tick, with the schema of each. Those that do
// not fit into the segment make it fail with errCut before anything is
// taken: a new one must be begun.
func (c *collector) tick(t *tickFront, frames []frameFront, schemas []*metric.Schema, keep bool) error {
	last := -1
	for _, schema := range schemas {
		j, s := c.source(schema.Source)
		if s == nil {
			j = last + 1
			s = &collected{name: schema.Source, descs: map[string]*metric.Desc{}}
			c.sources = slices.Insert(c.sources, j, s)
			c.change(s, schema)
		}
		if j <= last || s.schema != schema && !s.fits(schema) {
			return errCut
		}
		last = j
	}
	if t.key {
		for _, s := range c.sources {
			s.dirty = true
		}
	}
	if keep {
		c.rows = append(c.rows, *t)
	}
	for i := range frames {
		_, s := c.source(schemas[i].Source)
		if s.schema != schemas[i] {
			c.change(s, schemas[i])
		}
		if err := c.frame(s, &frames[i], keep); err != nil {
			return err
		}
	}
	return nil
}

// errCut says that a tick needs a segment of its own.
var errCut = errors.New("the tick does not fit into the segment")

// arrange makes the sources of a segment that has no ticks yet fit a tick.
func (c *collector) arrange(schemas []*metric.Schema) {
	sources := make([]*collected, 0, len(c.sources))
	for _, schema := range schemas {
		if _, s := c.source(schema.Source); s != nil && s.fits(schema) {
			sources = append(sources, s)
		}
	}
	for _, s := range c.sources {
		if !slices.ContainsFunc(schemas, func(schema *metric.Schema) bool { return schema.Source == s.name }) {
			sources = append(sources, s)
		}
	}
	c.sources = sources
}

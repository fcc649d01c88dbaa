// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"rezolus/internal/metric"
)

// sealer turns the records of a recording in the making into those of a
// sealed one: ticks become segments. It depends on nothing but the records:
// what was not sealed before a crash can be sealed after it.
type sealer struct {
	emit     func([]byte) error
	from, to int64 // the ticks that are kept
	known    map[metric.Hash]bool
	run      []byte // the present chain's record
	chain    uint32
	slots    map[uint64]*metric.Schema
	last     tickFront
	began    bool // the chain has a tick
	c        collector
	unpack   unpacker
	pack     packer
	buf      []byte
	body     []byte
	frames   []frameFront
	schemas  []*metric.Schema
	total    endFront
}

func newSealer(emit func([]byte) error) *sealer {
	return &sealer{emit: emit, from: math.MinInt64, to: math.MaxInt64, known: map[metric.Hash]bool{}, c: collector{limit: sealBytes}}
}

// record takes in the next record. After an error of emit the sealer is of
// no more use.
func (s *sealer) record(rec Record) error {
	switch rec.Type {
	case TypeRun:
		f, err := parseRun(rec)
		if err != nil {
			return err
		}
		if err := s.flush(); err != nil {
			return err
		}
		s.c.forget()
		s.run, s.chain = slices.Clone(rec.Raw), f.chain
		s.slots, s.began = map[uint64]*metric.Schema{}, false
	case TypeSchema:
		f, err := parseSchemaFront(rec)
		if err == nil {
			return s.schema(f, rec.body)
		}
		return err
	case TypeTick:
		return s.tick(rec)
	case TypeGap:
		return s.gap(rec)
	case TypeEvent:
		e, err := parseEvent(rec)
		if err == nil && e.Time >= s.from && e.Time <= s.to {
			err = s.emit(rec.Raw)
		}
		return err
	}
	return nil
}

func (s *sealer) schema(f schemaFront, body []byte) error {
	if f.chain != s.chain {
		return fmt.Errorf("%w: schema %d does not belong here", ErrCorrupt, f.number)
	}
	schema, err := parseSchema(f, body)
	if err != nil {
		return err
	}
	maps.DeleteFunc(s.slots, func(_ uint64, old *metric.Schema) bool { return old.Source == schema.Source })
	s.slots[f.number] = schema
	return nil
}

func (s *sealer) gap(rec Record) error {
	g, err := parseGap(rec)
	if err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return err
	}
	s.began = false // the next tick is a key tick
	if max(g.From, s.from) > min(g.To, s.to) {
		return nil
	}
	s.total.lost += g.Ticks
	return s.emit(rec.Raw)
}

// tick takes in a tick: into the segment, if it is to be kept.
func (s *sealer) tick(rec Record) error {
	t, err := parseTick(rec)
	if err != nil {
		return err
	}
	if t.chain != s.chain || !t.key && (!s.began || !t.follows(&s.last)) {
		return fmt.Errorf("%w: tick %d does not follow the one before", ErrCorrupt, t.n)
	}
	body, err := s.unpack.tick(&t, rec.body)
	if err != nil {
		return err
	}
	if err := s.split(body, t.mono); err != nil {
		return err
	}
	keep := t.wall >= s.from && t.wall <= s.to
	if n := len(s.c.rows); n > 0 && keep && (s.c.full() || t.wall <= s.c.rows[n-1].wall || t.n != s.c.rows[n-1].n+1) {
		if err := s.flush(); err != nil {
			return err
		}
	}
	err = s.c.tick(&t, s.frames, s.schemas, keep)
	if err == errCut {
		if err := s.flush(); err != nil {
			return err
		}
		s.c.arrange(s.schemas)
		err = s.c.tick(&t, s.frames, s.schemas, keep)
	}
	s.last, s.began = t, err == nil
	if err == nil && keep {
		s.total.ticks++
	}
	return err
}

// split finds the frames of a tick's body.
func (s *sealer) split(body []byte, mono int64) error {
	s.frames, s.schemas = s.frames[:0], s.schemas[:0]
	for c := (cursor{b: body}); len(c.b) > 0; {
		f, err := nextFrame(&c, mono)
		if err != nil {
			return err
		}
		schema := s.slots[f.number]
		if schema == nil || slices.Contains(s.schemas, schema) {
			return fmt.Errorf("%w: frame of schema %d", ErrCorrupt, f.number)
		}
		s.frames, s.schemas = append(s.frames, f), append(s.schemas, schema)
	}
	return nil
}

// flush emits the ticks so far as a segment.
func (s *sealer) flush() error {
	if len(s.c.rows) == 0 {
		return nil
	}
	s.buf = append(s.buf[:0], s.run...) // each time: without it a segment is lost
	segment, err := s.c.seal(&s.pack, s.dictionary)
	if err == nil {
		s.buf = segment.head(s.buf)
		if err = s.emit(s.buf); err == nil {
			err = s.emit(segment.blocks)
		}
	}
	s.c.next()
	return err
}

// whole emits a segment that is sealed already, all of whose sources have
// their dictionaries.
func (s *sealer) whole(f *segmentFront, d *directory, raw []byte) error {
	if err := s.flush(); err != nil {
		return err
	}
	s.buf = append(s.buf[:0], s.run...) // each time: without it a segment is lost
	for i := range d.sources {
		s.dictionary(d.sources[i].schema)
	}
	s.began = false
	s.total.ticks += f.ticks
	if err := s.emit(s.buf); err != nil {
		return err
	}
	return s.emit(raw)
}

// maxKnown bounds the dictionaries that a sealer remembers to be in the file:
// a recording may go on for months. Those that it forgets it may repeat.
const maxKnown = 4096

// dictionary appends the record of a dictionary that is not there yet.
func (s *sealer) dictionary(schema *metric.Schema) {
	if s.known[schema.Hash] {
		return
	}
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[schema.Hash] = true
	s.body = schema.AppendBinary(s.body[:0])
	f := dictFront{hash: schema.Hash, words: uint64(schema.Words), series: uint64(len(schema.Series)),
		size: uint64(len(s.body)), source: schema.Source}
	s.buf = s.pack.record(s.buf, TypeDict, f.append, s.body)
}

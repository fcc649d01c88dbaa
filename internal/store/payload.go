// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"rezolus/internal/metric"
)

// runFront is the front of a run record: the beginning of a chain.
type runFront struct {
	chain    uint32
	run      metric.Run
	interval time.Duration
	meta     map[string]string
}

func (r *runFront) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.chain)
	b = append(b, r.run.ID[:]...)
	b = append(b, r.run.Boot[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.run.Started))
	b = binary.AppendUvarint(b, uint64(r.interval))
	for _, s := range []string{r.run.Host, r.run.Kernel, r.run.Arch, r.run.Version} {
		b = appendString(b, s)
	}
	b = binary.AppendUvarint(b, uint64(len(r.meta)))
	for _, k := range slices.Sorted(maps.Keys(r.meta)) {
		b = appendString(appendString(b, k), r.meta[k])
	}
	return b
}

func parseRun(rec Record) (runFront, error) {
	c := cursor{b: rec.front}
	r := runFront{chain: c.u32()}
	r.run.ID, r.run.Boot = c.id(), c.id()
	r.run.Started, r.interval = int64(c.u64()), time.Duration(c.uvarint())
	for _, s := range []*string{&r.run.Host, &r.run.Kernel, &r.run.Arch, &r.run.Version} {
		*s = c.string()
	}
	for n := c.uvarint(); n > 0 && !c.bad; n-- {
		if r.meta == nil {
			r.meta = map[string]string{}
		}
		k := c.string()
		r.meta[k] = c.string()
	}
	return r, finished(&c, rec)
}

// schemaFront is the front of a schema record; its body is the schema's own
// encoding. Source, words and series are repeated here so that an index
// needs no bodies.
type schemaFront struct {
	chain         uint32
	number        uint64
	words, series uint64
	source        string
}

func (s *schemaFront) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, s.chain)
	b = binary.AppendUvarint(b, s.number)
	b = binary.AppendUvarint(b, s.words)
	b = binary.AppendUvarint(b, s.series)
	return appendString(b, s.source)
}

func parseSchemaFront(rec Record) (schemaFront, error) {
	c := cursor{b: rec.front}
	s := schemaFront{chain: c.u32(), number: c.uvarint(), words: c.uvarint(), series: c.uvarint()}
	s.source = c.string()
	if s.words > maxWords || s.series > metric.MaxSeries {
		c.fail()
	}
	return s, finished(&c, rec)
}

// parseSchema decodes a schema record's body and holds it against its front.
func parseSchema(f schemaFront, body []byte) (*metric.Schema, error) {
	if len(body) > maxSchema {
		return nil, fmt.Errorf("%w: schema %d has %d bytes", ErrCorrupt, f.number, len(body))
	}
	s, err := metric.ParseSchema(body)
	if err != nil {
		return nil, fmt.Errorf("%w: schema %d: %w", ErrCorrupt, f.number, err)
	}
	if s.Source != f.source || uint64(s.Words) != f.words || uint64(len(s.Series)) != f.series {
		return nil, fmt.Errorf("%w: schema %d is not what its front says", ErrCorrupt, f.number)
	}
	return s, nil
}

// tickFront is the front of a tick record; its body is the frames.
type tickFront struct {
	chain      uint32
	n          uint64 // of the tick in its chain, from 0
	seq        uint64
	wall, mono int64
	interval   int64
	missed     uint64
	size       uint64 // of the body before compression
	key, zstd  bool   // the record's flags
}

func (t *tickFront) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, t.chain)
	b = binary.AppendUvarint(b, t.n)
	b = binary.AppendUvarint(b, t.seq)
	b = binary.LittleEndian.AppendUint64(b, uint64(t.wall))
	b = binary.LittleEndian.AppendUint64(b, uint64(t.mono))
	b = binary.AppendUvarint(b, uint64(t.interval))
	b = binary.AppendUvarint(b, t.missed)
	return binary.AppendUvarint(b, t.size)
}

func (t *tickFront) flags() (f byte) {
	if t.key {
		f |= flagKey
	}
	if t.zstd {
		f |= flagZstd
	}
	return f
}

func parseTick(rec Record) (tickFront, error) {
	c := cursor{b: rec.front}
	t := tickFront{chain: c.u32(), n: c.uvarint(), seq: c.uvarint(), wall: int64(c.u64()), mono: int64(c.u64()),
		interval: int64(c.uvarint()), missed: c.uvarint(), size: c.uvarint(),
		key: rec.flags&flagKey != 0, zstd: rec.flags&flagZstd != 0}
	if t.size > maxBody {
		c.fail()
	}
	return t, finished(&c, rec)
}

// follows reports whether t can be decoded after the tick before it.
func (t *tickFront) follows(before *tickFront) bool {
	return t.chain == before.chain && t.n == before.n+1 && (t.key || t.wall > before.wall)
}

// Gap is a stretch of time whose ticks are known to be missing.
type Gap struct {
	From, To int64  // Unix nanoseconds: of the first and the last missing tick
	Ticks    uint64 // how many; 0: not known
	Reason   string // for people, in lower case
}

// GapFrom is what is missing before t where the first tick that is not there
// was due at from: all ticks since, but for those of which t itself says that
// they were missed, or they would count twice. Ticks is 0 where there was hardly
// time, or the clock was set back.
func (t Tick) GapFrom(from int64, reason string) Gap {
	g := Gap{From: from, To: t.Wall - t.Interval, Reason: reason}
	if g.To < from || t.Interval <= 0 {
		g.To = max(from, g.To)
		return g
	}
	due := uint64((g.To-from)/t.Interval) + 1
	told := min(t.Missed, due)
	g.Ticks, g.To = due-told, max(from, g.To-int64(told)*t.Interval)
	return g
}

// Suspended is the reason of a gap in which the machine slept: what the agent
// tells, and those who keep its ticks take for no setting of the clock.
const Suspended = "the machine was suspended"

func (g *Gap) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(g.From))
	b = binary.LittleEndian.AppendUint64(b, uint64(g.To))
	b = binary.AppendUvarint(b, g.Ticks)
	return appendString(b, g.Reason)
}

func parseGap(rec Record) (Gap, error) {
	c := cursor{b: rec.front}
	g := Gap{From: int64(c.u64()), To: int64(c.u64()), Ticks: c.uvarint()}
	g.Reason = c.string()
	return g, finished(&c, rec)
}

// endFront is the front of an end record: what the writer wrote.
type endFront struct {
	ticks, lost uint64
}

// endSize is the length of every end record: a reader finds it from the end
// of the file.
const endSize = recordHead + 16

func (e *endFront) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, e.ticks)
	return binary.LittleEndian.AppendUint64(b, e.lost)
}

func parseEnd(rec Record) (endFront, error) {
	c := cursor{b: rec.front}
	return endFront{ticks: c.u64(), lost: c.u64()}, finished(&c, rec)
}

// finished is the error of a front that was too short or too long.
func finished(c *cursor, rec Record) error {
	if c.bad || len(c.b) != 0 {
		return fmt.Errorf("%w: front of record type %d", ErrCorrupt, rec.Type)
	}
	return nil
}

// front appends a record that is all front.
func frontRecord(dst []byte, typ Type, flags byte, front func([]byte) []byte) []byte {
	dst, at := beginRecord(dst)
	dst = front(dst)
	finishRecord(dst, at, len(dst), typ, flags)
	return dst
}

// Event is a line of text with a time: something that happened and that the
// metrics do not say.
type Event struct {
	Time int64  // Unix nanoseconds
	Text string // one line
}

func (e *Event) append(b []byte) []byte {
	return appendString(binary.LittleEndian.AppendUint64(b, uint64(e.Time)), e.Text)
}

func parseEvent(rec Record) (Event, error) {
	c := cursor{b: rec.front}
	e := Event{Time: int64(c.u64())}
	e.Text = c.string()
	return e, finished(&c, rec)
}

// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/klauspost/compress/zstd"

	"rezolus/internal/metric"
)

// DefaultKeyEvery is how many ticks there are from one key tick to the next.
// docs/journal/2026-11-21-recording-first-form.md has the measurement.
const DefaultKeyEvery = 64

// EncoderOptions say how a chain of records is made. The zero value is good.
type EncoderOptions struct {
	Meta     map[string]string // stored in the run record
	Interval time.Duration     // the interval asked for; stored in the run record
	KeyEvery int               // 0: DefaultKeyEvery
	Plain    bool              // do not compress ticks; nor if Interval is below plainBelow
}

// plainBelow is the interval below which ticks are not compressed: zstd would
// be most of what they cost, for a few percent of the bytes, and in a
// recording they only live until they are sealed.
const plainBelow = 100 * time.Millisecond

// Encoder turns snapshots into the bytes of a recording. One consumer needs
// one encoder: ticks are differences from the tick before.
type Encoder struct {
	o      EncoderOptions
	headed bool // the file header is written
	open   bool // a chain is begun

	chain    uint32
	run      *metric.Run
	n        uint64 // ticks in the chain
	key      bool   // the next tick must be a key tick
	lastWall int64
	lastKey  uint64

	slots []*slot // one a source
	next  uint64  // number of the next schema
	words int     // of all slots
	frame []byte  // scratch: one frame
	body  []byte  // scratch: one tick
	zstd  *zstd.Encoder
	total endFront
}

// slot is what the encoder knows of one source.
type slot struct {
	schema *metric.Schema
	number uint64
	fresh  bool     // the schema record is not written yet
	prev   []uint64 // the words of the last frame
	stamps []uint64 // and its stamps; 0: not known
}

func (sl *slot) clear() {
	clear(sl.prev)
	clear(sl.stamps)
}

// NewEncoder returns an encoder at the beginning of a stream.
func NewEncoder(o EncoderOptions) *Encoder {
	if o.KeyEvery <= 0 {
		o.KeyEvery = DefaultKeyEvery
	}
	o.Plain = o.Plain || o.Interval > 0 && o.Interval < plainBelow
	return &Encoder{o: o, chain: rand.Uint32()}
}

// Append appends the tick to dst, preceded by the header, run and schema
// records that are due. On an error dst is returned as it was, and the tick
// is as if it had not been. Once schemas are steady it allocates only for a
// tick larger than any before, in dst as in its own scratch memory.
func (e *Encoder) Append(dst []byte, s *metric.Snapshot) ([]byte, error) {
	if err := e.admit(s); err != nil {
		return dst, err
	}
	if !e.headed {
		dst, e.headed = appendHeader(dst), true
	}
	if !e.open {
		dst, e.open = e.appendRun(dst), true
	}
	for _, sl := range e.slots {
		if sl.fresh {
			dst, sl.fresh = e.appendSchema(dst, sl), false
		}
	}
	return e.appendTick(dst, s), nil
}

// AppendGap appends a gap record. The tick after it is a key tick.
func (e *Encoder) AppendGap(dst []byte, g Gap) []byte {
	if !e.headed {
		dst, e.headed = appendHeader(dst), true
	}
	g.Reason = g.Reason[:min(len(g.Reason), 4096)]
	e.key = true
	e.total.lost += g.Ticks
	return frontRecord(dst, TypeGap, flagSkip, g.append)
}

// AppendEvent appends a line of text with a time. A recorder takes it only
// behind a tick.
func (e *Encoder) AppendEvent(dst []byte, event Event) []byte {
	if !e.headed {
		dst, e.headed = appendHeader(dst), true
	}
	event.Text = event.Text[:min(len(event.Text), 4096)]
	return frontRecord(dst, TypeEvent, flagSkip, event.append)
}

// AppendEnd appends the end record: the stream was closed on purpose.
func (e *Encoder) AppendEnd(dst []byte) []byte {
	if !e.headed {
		dst, e.headed = appendHeader(dst), true
	}
	e.Restart()
	return frontRecord(dst, TypeEnd, flagSkip, e.total.append)
}

// Restart makes the next Append begin a new chain, with everything a reader
// needs that has seen nothing before: for when bytes of the old one were
// lost on the way.
func (e *Encoder) Restart() {
	if e.open {
		e.open, e.chain = false, e.chain+1
	}
	e.slots, e.words, e.n, e.key = nil, 0, 0, true
}

// admit checks the snapshot and makes sure that every frame has its slot.
func (e *Encoder) admit(s *metric.Snapshot) error {
	if s.Run == nil {
		return fmt.Errorf("encode tick %d: it has no run", s.Seq)
	}
	for i := range s.Frames {
		f := &s.Frames[i]
		if f.Schema == nil || len(f.Values) != f.Schema.Words {
			return fmt.Errorf("encode tick %d: frame %d has %d words that are not its schema's", s.Seq, i, len(f.Values))
		}
		for j := range i {
			if s.Frames[j].Schema.Source == f.Schema.Source {
				return fmt.Errorf("encode tick %d: two frames of source %s", s.Seq, f.Schema.Source)
			}
		}
	}
	if e.run != s.Run && (e.run == nil || *e.run != *s.Run) {
		e.Restart()
		e.run = s.Run
	}
	if !e.open && len(e.appendRun(nil)) > recordHead+maxFront {
		return fmt.Errorf("encode tick %d: its run and the metadata take more than %d bytes", s.Seq, maxFront)
	}
	for i := range s.Frames {
		if err := e.enrol(i, s.Frames[i].Schema); err != nil {
			return fmt.Errorf("encode tick %d: %w", s.Seq, err)
		}
	}
	return nil
}

// find returns the slot of a schema, looking first where it was last time.
func (e *Encoder) find(hint int, s *metric.Schema) *slot {
	if hint < len(e.slots) && e.slots[hint].schema == s {
		return e.slots[hint]
	}
	for _, sl := range e.slots {
		if sl.schema == s {
			return sl
		}
	}
	return nil
}

// enrol gives a schema a number. It takes the place of the one its source
// had before, so that memory follows the sources and not their history.
func (e *Encoder) enrol(hint int, s *metric.Schema) error {
	if e.find(hint, s) != nil {
		return nil
	}
	var sl *slot
	for _, old := range e.slots {
		if old.schema.Source == s.Source {
			sl = old
		}
	}
	words := e.words + s.Words
	if sl != nil {
		words -= sl.schema.Words
	}
	e.body = s.AppendBinary(e.body[:0])
	if words > maxWords || len(e.body) > maxSchema || len(s.Source) > 4096 || len(e.slots) >= maxSources {
		return fmt.Errorf("source %.40q: more than %d words, %d sources or %d bytes of schema",
			s.Source, maxWords, maxSources, maxSchema)
	}
	if sl == nil {
		sl = &slot{}
		e.slots = append(e.slots, sl)
	}
	if cap(sl.prev) < s.Words {
		sl.prev, sl.stamps = make([]uint64, s.Words), make([]uint64, metric.Blocks(s.Words))
	}
	sl.prev, sl.stamps = sl.prev[:s.Words], sl.stamps[:metric.Blocks(s.Words)]
	sl.clear()
	e.words = words
	sl.schema, sl.number, sl.fresh = s, e.next, true
	e.next++
	return nil
}

func (e *Encoder) appendRun(dst []byte) []byte {
	r := runFront{chain: e.chain, run: *e.run, interval: e.o.Interval, meta: e.o.Meta}
	return frontRecord(dst, TypeRun, 0, r.append)
}

func (e *Encoder) appendSchema(dst []byte, sl *slot) []byte {
	f := schemaFront{chain: e.chain, number: sl.number, source: sl.schema.Source,
		words: uint64(sl.schema.Words), series: uint64(len(sl.schema.Series))}
	dst, at := beginRecord(dst)
	dst = f.append(dst)
	body := len(dst)
	dst = sl.schema.AppendBinary(dst)
	finishRecord(dst, at, body, TypeSchema, 0)
	return dst
}

// appendTick appends the tick record of a snapshot that was admitted.
func (e *Encoder) appendTick(dst []byte, s *metric.Snapshot) []byte {
	key := e.key || e.n == 0 || s.Wall <= e.lastWall || e.n-e.lastKey >= uint64(e.o.KeyEvery)
	if key {
		for _, sl := range e.slots {
			sl.clear()
		}
		e.lastKey = e.n
	}
	e.body = e.body[:0]
	for i := range s.Frames {
		e.body = e.appendFrame(e.body, i, s)
	}
	t := tickFront{chain: e.chain, n: e.n, seq: s.Seq, wall: s.Wall, mono: s.Mono, interval: s.Interval,
		missed: s.Missed, size: uint64(len(e.body)), key: key}
	dst, at := beginRecord(dst)
	dst = t.append(dst)
	body := len(dst)
	if dst, t.zstd = e.compress(dst, e.body); !t.zstd {
		dst = append(dst, e.body...)
	}
	finishRecord(dst, at, body, TypeTick, t.flags())
	e.n++
	e.key, e.lastWall = false, s.Wall
	e.total.ticks++
	return dst
}

// appendFrame appends one frame with its length before it: a reader skips
// a frame it does not want.
func (e *Encoder) appendFrame(dst []byte, i int, s *metric.Snapshot) []byte {
	f := &s.Frames[i]
	sl := e.find(i, f.Schema)
	b := binary.AppendVarint(e.frame[:0], f.Begin-s.Mono)
	b = binary.AppendVarint(b, f.End-f.Begin)
	b = binary.AppendUvarint(b, f.Lost)
	b = sl.appendDeltas(b, f)
	e.frame = b
	dst = binary.AppendUvarint(dst, sl.number)
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// minCompress is the smallest body worth compressing: below it the frame
// header of zstd costs more than it saves.
const minCompress = 128

// compress appends the body as zstd if that is allowed and smaller.
func (e *Encoder) compress(dst, body []byte) ([]byte, bool) {
	if e.o.Plain || len(body) < minCompress {
		return dst, false
	}
	if e.zstd == nil {
		// One at a time: no goroutines. Checksums are the record's.
		z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(128<<10))
		if err != nil {
			return dst, false
		}
		e.zstd = z
	}
	at := len(dst)
	out := e.zstd.EncodeAll(body, dst)
	if len(out)-at >= len(body) {
		return out[:at], false
	}
	return out, true
}

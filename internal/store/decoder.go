// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/klauspost/compress/zstd"

	"rezolus/internal/metric"
)

// Decoder reads a stream of records back into snapshots, strictly: a stream
// that lost or changed a byte is an error (Recording is the reader that
// makes the best of damage). Its memory is bounded whatever it reads.
type Decoder struct {
	records *Records
	run     *metric.Run
	front   runFront
	slots   map[uint64]*decoded
	words   uint64
	last    tickFront
	began   bool // the chain has a tick
	closed  bool
	gaps    []Gap
	events  []Event
	snap    metric.Snapshot
	unpack  unpacker
	dicts   map[metric.Hash]*metric.Schema
	rows    *rowReader // of the present segment; nil for none
	blocks  []byte     // of it
}

// decoded is one schema of the chain and the words of its last frame.
type decoded struct {
	schema *metric.Schema
	words  []uint64
	tick   uint64 // ordinal of the last tick with a frame, plus one
}

// NewDecoder returns a decoder of the stream r.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{records: NewRecords(r)} }

// Meta is the metadata of the present run record.
func (d *Decoder) Meta() map[string]string { return d.front.meta }

// Closed reports whether the end record was read: the writer closed on
// purpose and was not cut off.
func (d *Decoder) Closed() bool { return d.closed }

// Gaps are the gap records between the last two snapshots. They are valid
// until the next call of Next.
func (d *Decoder) Gaps() []Gap { return d.gaps }

// Events are the event records between the last two snapshots. They are valid
// until the next call of Next.
func (d *Decoder) Events() []Event { return d.events }

// Next returns the next snapshot, which may be read until the call after.
// The error is io.EOF at the end of a whole record, and otherwise one of the
// package's or the reader's own.
func (d *Decoder) Next() (*metric.Snapshot, error) {
	d.gaps, d.events = d.gaps[:0], d.events[:0]
	for {
		if d.rows != nil {
			if s, err := d.rows.next(); s != nil || err != nil {
				return s, err
			}
			d.rows = nil
		}
		at := d.records.off
		rec, err := d.records.Next()
		if err != nil {
			return nil, err
		}
		if rec.Type == TypeTick {
			err = d.tick(rec)
		} else {
			err = d.other(rec)
		}
		if err != nil {
			return nil, fmt.Errorf("record at byte %d: %w", at, err)
		}
		if rec.Type == TypeTick {
			return &d.snap, nil
		}
	}
}

// other takes in every record that is not a tick.
func (d *Decoder) other(rec Record) (err error) {
	d.closed = rec.Type == TypeEnd
	switch rec.Type {
	case TypeRun:
		if d.front, err = parseRun(rec); err != nil {
			return err
		}
		run := d.front.run
		if d.run == nil || *d.run != run {
			d.run = &run
		}
		d.slots, d.words, d.began = map[uint64]*decoded{}, 0, false
	case TypeSchema:
		return d.schema(rec)
	case TypeDict:
		return d.dict(rec)
	case TypeSegment:
		return d.segment(rec)
	case TypeBlock:
		return fmt.Errorf("%w: a block without its segment", ErrCorrupt)
	case TypeGap:
		g, err := parseGap(rec)
		if len(d.gaps) < 1024 {
			d.gaps = append(d.gaps, g)
		}
		return err
	case TypeEvent:
		e, err := parseEvent(rec)
		if len(d.events) < 1024 {
			d.events = append(d.events, e)
		}
		return err
	case TypeEnd:
		_, err = parseEnd(rec)
	}
	return err
}

func (d *Decoder) schema(rec Record) error {
	f, err := parseSchemaFront(rec)
	if err != nil {
		return err
	}
	if d.run == nil || f.chain != d.front.chain || d.slots[f.number] != nil {
		return fmt.Errorf("%w: schema %d does not belong here", ErrCorrupt, f.number)
	}
	s, err := parseSchema(f, rec.body)
	if err != nil {
		return err
	}
	maps.DeleteFunc(d.slots, func(_ uint64, old *decoded) bool {
		same := old.schema.Source == s.Source
		if same {
			d.words -= uint64(old.schema.Words)
		}
		return same
	})
	if d.words += f.words; d.words > maxWords || len(d.slots) >= maxSources {
		return fmt.Errorf("%w: more than %d words or %d sources", ErrCorrupt, maxWords, maxSources)
	}
	d.slots[f.number] = &decoded{schema: s, words: make([]uint64, s.Words)}
	return nil
}

// maxDicts bounds the dictionaries a stream may have in force.
const maxDicts = 1 << 16

func (d *Decoder) dict(rec Record) error {
	f, err := parseDict(rec)
	if err != nil {
		return err
	}
	body, err := d.unpack.body(rec.flags&flagZstd != 0, f.size, rec.body)
	if err != nil {
		return err
	}
	s, err := parseSchema(schemaFront{words: f.words, series: f.series, source: f.source}, body)
	if err != nil {
		return err
	}
	if d.dicts == nil || len(d.dicts) > maxDicts {
		d.dicts = map[metric.Hash]*metric.Schema{}
	}
	d.dicts[s.Hash] = s
	return nil
}

// segment reads the blocks that follow, too.
func (d *Decoder) segment(rec Record) error {
	f, err := parseSegment(rec)
	if err != nil {
		return err
	}
	if d.run == nil || f.chain != d.front.chain {
		return fmt.Errorf("%w: segment of another chain", ErrCorrupt)
	}
	dir := Record{Type: rec.Type, flags: rec.flags, body: slices.Clone(rec.body)}
	for d.blocks = d.blocks[:0]; uint64(len(d.blocks)) < f.follow; {
		b, err := d.records.Next()
		if err != nil {
			if err == io.EOF {
				err = ErrTruncated
			}
			return err
		}
		if b.Type != TypeBlock || uint64(len(d.blocks)+len(b.Raw)) > min(f.follow, maxBody) {
			return fmt.Errorf("%w: blocks of a segment", ErrCorrupt)
		}
		d.blocks = append(d.blocks, b.Raw...)
	}
	g := &segmentAt{front: f, body: func() (Record, error) { return dir, nil },
		dict: func(h metric.Hash) (*metric.Schema, error) {
			if s := d.dicts[h]; s != nil {
				return s, nil
			}
			return nil, fmt.Errorf("%w: dictionary %v is missing", ErrCorrupt, h)
		},
		read: func(k *segmentBlock, buf []byte) (Record, []byte, error) {
			rec, err := parseRecord(d.blocks[k.off:])
			return rec, buf, err
		}}
	if d.rows, err = g.rows(d.run, math.MinInt64, math.MaxInt64); err == nil {
		err = d.rows.bad // strictly: all or nothing
	}
	d.began = false
	return err
}

func (d *Decoder) tick(rec Record) error {
	t, err := parseTick(rec)
	if err != nil {
		return err
	}
	if d.run == nil || t.chain != d.front.chain || d.began && !t.follows(&d.last) || !d.began && !t.key {
		return fmt.Errorf("%w: tick %d does not follow the one before", ErrCorrupt, t.n)
	}
	body, err := d.unpack.tick(&t, rec.body)
	if err != nil {
		return err
	}
	if t.key {
		for _, sl := range d.slots {
			clear(sl.words)
		}
	}
	frames := d.snap.Frames[:0]
	for c := (cursor{b: body}); len(c.b) > 0; {
		f, err := nextFrame(&c, t.mono)
		if err != nil {
			return err
		}
		sl := d.slots[f.number]
		if sl == nil || sl.tick == t.n+1 {
			return fmt.Errorf("%w: frame of schema %d", ErrCorrupt, f.number)
		}
		sl.tick = t.n + 1
		if err := addDeltas(f.words, sl.words); err != nil {
			return err
		}
		frames = append(frames, metric.Frame{Schema: sl.schema, Begin: f.begin, End: f.end, Values: sl.words, Lost: f.lost})
	}
	d.snap = metric.Snapshot{Run: d.run, Seq: t.seq, Wall: t.wall, Mono: t.mono, Interval: t.interval,
		Missed: t.missed, Frames: frames}
	d.last, d.began, d.closed = t, true, false
	return nil
}

// addDeltas adds the tokens of a frame to its words.
func addDeltas(b []byte, words []uint64) error {
	return eachDelta(b, len(words), func(i int, d uint64) bool {
		words[i] += d
		return true
	})
}

// unpacker decompresses bodies, one at a time.
type unpacker struct {
	zstd *zstd.Decoder
	buf  []byte
}

// tick is the tick's body, decompressed if need be; valid until the next
// call.
func (u *unpacker) tick(t *tickFront, b []byte) ([]byte, error) {
	return u.body(t.zstd, t.size, b)
}

// body is a record's body as it was before compression; valid until the next
// call.
func (u *unpacker) body(packed bool, size uint64, b []byte) ([]byte, error) {
	if !packed {
		if uint64(len(b)) != size {
			return nil, fmt.Errorf("%w: size of a body", ErrCorrupt)
		}
		return b, nil
	}
	if u.zstd == nil {
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(maxBody))
		if err != nil {
			return nil, fmt.Errorf("start zstd: %w", err)
		}
		u.zstd = z
	}
	out, err := u.zstd.DecodeAll(b, u.buf[:0])
	if err != nil || uint64(len(out)) != size {
		return nil, fmt.Errorf("%w: compressed body: %v", ErrCorrupt, err)
	}
	u.buf = out
	return out, nil
}

// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"io"
	"maps"

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
	snap    metric.Snapshot
	unpack  unpacker
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

// Next returns the next snapshot, which may be read until the call after.
// The error is io.EOF at the end of a whole record, and otherwise one of the
// package's or the reader's own.
func (d *Decoder) Next() (*metric.Snapshot, error) {
	d.gaps = d.gaps[:0]
	for {
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
	case TypeGap:
		g, err := parseGap(rec)
		if len(d.gaps) < 1024 {
			d.gaps = append(d.gaps, g)
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

func (d *Decoder) tick(rec Record) error {
	t, err := parseTick(rec)
	if err != nil {
		return err
	}
	if d.run == nil || t.chain != d.front.chain || d.began && !t.follows(&d.last) || !d.began && !t.key {
		return fmt.Errorf("%w: tick %d does not follow the one before", ErrCorrupt, t.n)
	}
	body, err := d.unpack.body(&t, rec.body)
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

// unpacker decompresses the bodies of ticks, one at a time.
type unpacker struct {
	zstd *zstd.Decoder
	buf  []byte
}

// body is the tick's body, decompressed if need be; valid until the next
// call.
func (u *unpacker) body(t *tickFront, b []byte) ([]byte, error) {
	if !t.zstd {
		if uint64(len(b)) != t.size {
			return nil, fmt.Errorf("%w: size of a tick", ErrCorrupt)
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
	if err != nil || uint64(len(out)) != t.size {
		return nil, fmt.Errorf("%w: compressed tick: %v", ErrCorrupt, err)
	}
	u.buf = out
	return out, nil
}

// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"

	"rezolus/internal/metric"
)

// Tick is what stands in the front of a tick's record: enough to follow a
// stream without decoding it.
type Tick struct {
	Seq      uint64 // number in the run
	Wall     int64  // Unix nanoseconds of its scheduled moment
	Interval int64  // nanoseconds since the tick before, as asked for
	Missed   uint64 // ticks the agent skipped just before it
}

// Tick is the front of a tick's record.
func (r Record) Tick() (Tick, error) {
	t, err := parseTick(r)
	return Tick{Seq: t.seq, Wall: t.wall, Interval: t.interval, Missed: t.missed}, err
}

// Run is the run of a run record.
func (r Record) Run() (metric.Run, error) {
	f, err := parseRun(r)
	return f.run, err
}

// Header is what a stream of records begins with.
func Header() []byte { return appendHeader(nil) }

// wireWindow is how far back the compression of a stream looks: a key tick
// and its schemas of a large host.
const wireWindow = 512 << 10

// Compressor compresses a stream, for as long as a follower listens.
type Compressor struct{ z *zstd.Encoder }

// NewCompressor returns one that writes to w.
func NewCompressor(w io.Writer) (*Compressor, error) {
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(wireWindow))
	if err != nil {
		return nil, fmt.Errorf("start zstd: %w", err)
	}
	return &Compressor{z}, nil
}

// Write compresses b and hands all of it to the writer.
func (c *Compressor) Write(b []byte) (int, error) {
	n, err := c.z.Write(b)
	if err == nil {
		err = c.z.Flush()
	}
	return n, err
}

// Close ends the compressed stream.
func (c *Compressor) Close() error { return c.z.Close() }

// NewDecompressor reads what a Compressor wrote to r. It never takes more
// memory than a Compressor can make it.
func NewDecompressor(r io.Reader) (io.ReadCloser, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(2*wireWindow))
	if err != nil {
		return nil, fmt.Errorf("start zstd: %w", err)
	}
	return z.IOReadCloser(), nil
}

// Each calls f for every tick that is later than after, Unix nanoseconds, in
// ascending order. A snapshot may be read until f returns. Ticks that are put
// meanwhile may or may not be among them.
func (w *Window) Each(after int64, f func(*metric.Snapshot) error) error {
	if after == math.MaxInt64 {
		return nil
	}
	views, release := w.hold(after+1, math.MaxInt64)
	defer release()
	w.mu.Lock()
	run := w.enc.run
	w.mu.Unlock()
	for i := range views {
		if err := views[i].each(run, after, f); err != nil {
			return err
		}
	}
	return nil
}

// each decodes the block.
func (b *block) each(run *metric.Run, after int64, f func(*metric.Snapshot) error) error {
	d := Decoder{run: run, front: runFront{chain: b.chain}, slots: map[uint64]*decoded{}}
	for _, s := range b.schemas {
		d.slots[s.number] = &decoded{schema: s.schema, words: make([]uint64, s.schema.Words)}
	}
	data := b.data
	for _, k := range b.keys {
		if k.wall <= after {
			data = b.data[k.offset:]
		}
	}
	for len(data) > 0 {
		rec, err := parseRecord(data)
		if err == nil {
			err = d.tick(rec)
		}
		if err != nil {
			return fmt.Errorf("read the window: %w", err)
		}
		data = data[len(rec.Raw):]
		if d.snap.Wall <= after || d.snap.Wall >= b.hide {
			continue
		}
		if err := f(&d.snap); err != nil {
			return err
		}
	}
	return nil
}

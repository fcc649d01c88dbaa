// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"rezolus/internal/metric"
	"rezolus/internal/vfs"
)

// Excerpt is what recordings have of a range of time, laid out as a recording
// of its own before a byte of it is written: segments and rows that lie within
// the range are parts of the files they are in, as they are. Only where the
// range begins or ends within a segment, or begins between two key ticks, the
// ticks on this side are decoded and held in memory as rows. The recordings
// must stay open for as long as the excerpt is used; they may grow.
type Excerpt struct {
	Ticks       uint64
	Bytes       int64 // of the recording that it is
	First, Last int64 // Unix nanoseconds of the earliest tick and the latest; 0 without ticks

	from, to int64
	pieces   []piece
	known    map[metric.Hash]bool
	chain    *chain         // whose run record is in force, as rows need it
	given    map[int64]bool // its schemas that are there, by where they are in the file
	left     leftOut
	lost     uint64
}

// piece is a part of an excerpt: bytes in memory, or n of a recording's file.
type piece struct {
	bytes  []byte
	r      *Recording
	off, n int64
}

// leftOut are ticks between two that are in an excerpt, though they are not
// within its range: the clock was set back.
type leftOut struct {
	ticks       uint64
	first, last int64
}

// sendBytes is how much of an excerpt is sent or copied at once.
const sendBytes = 1 << 20

// NewExcerpt lays out the ticks of the recordings whose time is within [from,
// to], Unix nanoseconds, both inclusive, in the order in which they are given
// and were recorded. Where the clock was set back, a time of day is there
// twice and so are its ticks; a gap says how many between them are not, for
// being outside of the range. Segments are taken as they are, unread; of
// damaged rows the whole ticks are.
func NewExcerpt(ctx context.Context, from, to int64, recordings ...*Recording) (*Excerpt, error) {
	x := &Excerpt{from: from, to: to, known: map[metric.Hash]bool{}}
	x.add(appendHeader(nil))
	for _, r := range recordings {
		if err := x.recording(ctx, r); err != nil {
			return nil, fmt.Errorf("take a part of %s: %w", r.path, err)
		}
	}
	end := endFront{x.Ticks, x.lost}
	x.add(frontRecord(nil, TypeEnd, flagSkip, end.append))
	return x, nil
}

// add adds bytes.
func (x *Excerpt) add(b []byte) {
	x.Bytes += int64(len(b))
	if n := len(x.pieces); n > 0 && x.pieces[n-1].r == nil {
		x.pieces[n-1].bytes = append(x.pieces[n-1].bytes, b...)
		return
	}
	x.pieces = append(x.pieces, piece{bytes: slices.Clone(b)})
}

// file adds bytes of a recording's file.
func (x *Excerpt) file(r *Recording, off, n int64) {
	x.Bytes += n
	if k := len(x.pieces); k > 0 {
		if p := &x.pieces[k-1]; p.r == r && p.off+p.n == off {
			p.n += n
			return
		}
	}
	x.pieces = append(x.pieces, piece{r: r, off: off, n: n})
}

// recording takes what a recording has within the range.
func (x *Excerpt) recording(ctx context.Context, r *Recording) error {
	r.mu.Lock()
	marks := slices.Clone(r.index.marks)
	dicts := slices.SortedFunc(maps.Values(r.index.dicts), func(a, b *dictAt) int { return cmp.Compare(a.off, b.off) })
	r.mu.Unlock()
	for i, l := range r.all() {
		for len(marks) > 0 && marks[0].before <= i {
			x.mark(marks[0])
			marks = marks[1:]
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if max(l.first, x.from) > min(l.last, x.to) {
			x.skip(l.ticks, l.first, l.last)
			continue
		}
		if err := x.stretch(r, &l, dicts); damaged(err) {
			r.hurt(l.off, l.end-l.off, err)
			x.chain = nil
		} else if err != nil {
			return err
		}
	}
	for _, m := range marks {
		x.mark(m)
	}
	return nil
}

// mark adds a gap or an event, if it is within the range.
func (x *Excerpt) mark(m mark) {
	switch {
	case m.event != nil && m.event.Time >= x.from && m.event.Time <= x.to:
		x.add(frontRecord(nil, TypeEvent, flagSkip, m.event.append))
	case m.event == nil && max(m.gap.From, x.from) <= min(m.gap.To, x.to):
		x.gap(m.gap)
	}
}

func (x *Excerpt) gap(g Gap) {
	x.lost += g.Ticks
	x.add(frontRecord(nil, TypeGap, flagSkip, g.append))
}

// skip leaves out ticks that are not within the range. What follows them does
// not follow what is before them.
func (x *Excerpt) skip(ticks uint64, first, last int64) {
	x.chain = nil
	if x.Ticks == 0 || ticks == 0 {
		return
	}
	if x.left.ticks == 0 {
		x.left.first = first
	}
	x.left.ticks += ticks
	x.left.last = last
}

// keep takes in that ticks are added now, from one time to another.
func (x *Excerpt) keep(ticks uint64, first, last int64) {
	if x.left.ticks > 0 {
		x.gap(Gap{From: x.left.first, To: max(x.left.first, x.left.last), Ticks: x.left.ticks,
			Reason: "not within the time that was asked for; the clock was set"})
		x.left = leftOut{}
	}
	if x.Ticks == 0 {
		x.First, x.Last = first, last
	}
	x.Ticks += ticks
	x.First, x.Last = min(x.First, first), max(x.Last, last)
}

// stretch takes what a stretch has within the range.
func (x *Excerpt) stretch(r *Recording, l *located, dicts []*dictAt) error {
	switch {
	case l.segment != nil && l.first >= x.from && l.last <= x.to:
		x.keep(l.ticks, l.first, l.last)
		x.run(l.chain) // each time: without it a segment is lost
		x.chain = nil
		for _, d := range dicts {
			if d.off < l.off && !x.known[d.hash] {
				x.known[d.hash] = true
				x.file(r, d.off, d.size)
			}
		}
		x.file(r, l.off, l.blocks+int64(l.segment.follow)-l.off)
		return nil
	case l.segment == nil && l.first >= x.from:
		return x.rows(r, l)
	}
	return x.decoded(r, l)
}

// run adds the run record of a chain, behind which nothing is known of it.
func (x *Excerpt) run(c *chain) {
	x.chain, x.given = c, map[int64]bool{}
	x.add(frontRecord(nil, TypeRun, 0, c.append))
}

// rows takes the rows of a stretch, up to the range's end, as they are. Their
// differences are from the key tick that the stretch begins with.
func (x *Excerpt) rows(r *Recording, l *located) error {
	kept := uint64(0)
	p := pages{f: r.file, size: l.end}
	for at := l.off; at < l.end; {
		rec, n, err := p.record(at, true)
		if err != nil {
			return err
		}
		switch rec.Type {
		case TypeTick:
			t, err := parseTick(rec)
			if err != nil {
				return err
			}
			if t.wall > x.to { // and so are the others: time ascends
				x.skip(l.ticks-kept, t.wall, l.last)
				return nil
			}
			if x.keep(1, t.wall, t.wall); kept == 0 {
				x.schemas(r, l)
			}
			kept++
			x.file(r, at, n)
		case TypeSchema:
			x.given[at] = true
			x.file(r, at, n)
		}
		at += n
	}
	return nil
}

// schemas adds what the rows of a stretch need that stands before them.
func (x *Excerpt) schemas(r *Recording, l *located) {
	if x.chain != l.chain {
		x.run(l.chain)
	}
	for _, at := range l.chain.schemas {
		if at.from < l.off && at.until > l.off && !x.given[at.from] {
			x.given[at.from] = true
			x.file(r, at.from, at.size)
		}
	}
}

// decoded takes the ticks of a stretch that are within the range by decoding
// them, into rows of a chain of their own.
func (x *Excerpt) decoded(r *Recording, l *located) error {
	next, before, err := r.ticks(l, x.from, x.to)
	if err != nil {
		return err
	}
	e := NewEncoder(EncoderOptions{Meta: l.chain.meta, Interval: l.chain.interval, Plain: true})
	e.headed = true
	x.skip(before, l.first, l.first)
	var buf []byte
	last := l.last
	for left := l.ticks - before; ; left-- {
		s, err := next()
		switch {
		case err != nil:
			return err
		case s == nil || s.Wall > x.to: // the others are not wanted either: time ascends
			x.skip(left, last+l.interval, l.last)
			return nil
		case s.Wall < x.from:
			x.skip(1, s.Wall, s.Wall)
			continue
		}
		last = s.Wall
		x.keep(1, s.Wall, s.Wall)
		if buf, err = e.Append(buf[:0], s); err != nil {
			return err
		}
		x.add(buf)
	}
}

// WriteFile writes the excerpt into a new file, which appears under its name
// when it is whole, and is not waited for by the disk. fs.ErrExist if there is
// one already. Within a file system the kernel copies what lies in files.
func (x *Excerpt) WriteFile(ctx context.Context, fsys vfs.FS, path string) (err error) {
	out, err := newSealed(fsys, path)
	if err != nil {
		return err
	}
	head := int64(headerSize) // is there
	for _, p := range x.pieces {
		if p.r == nil {
			err = out.write(p.bytes[head:])
			head = 0
		}
		for n := int64(0); err == nil && n < p.n; n += sendBytes {
			step := min(sendBytes, p.n-n)
			if err = ctx.Err(); err == nil {
				err = vfs.CopyRange(out.file, p.r.file, p.off+n, step)
			}
		}
		if err != nil {
			return errors.Join(fmt.Errorf("write %s: %w", path, err), out.abandon())
		}
	}
	if err := out.publish(); err != nil {
		return errors.Join(fmt.Errorf("finish %s: %w", path, err), out.abandon())
	}
	if err := out.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", path, err)
	}
	return nil
}

// Send writes the excerpt to w, and calls before for every part of at most a
// mebibyte. A w that reads from files (io.ReaderFrom) gets the very files.
func (x *Excerpt) Send(w io.Writer, fsys vfs.FS, before func() error) error {
	for _, p := range x.pieces {
		for b := p.bytes; len(b) > 0; {
			n := min(len(b), sendBytes)
			if err := before(); err != nil {
				return err
			}
			if _, err := w.Write(b[:n]); err != nil {
				return err
			}
			b = b[n:]
		}
		if p.r == nil {
			continue
		}
		if err := p.send(w, fsys, before); err != nil {
			return fmt.Errorf("send a part of %s: %w", filepath.Base(p.r.path), err)
		}
	}
	return nil
}

// send sends a part that is in a file, opened once more: sendfile(2) needs a
// position of its own.
func (p *piece) send(w io.Writer, fsys vfs.FS, before func() error) error {
	f, err := fsys.Open(p.r.path)
	if err != nil {
		return err
	}
	defer f.Close()
	var from io.Reader = io.NewSectionReader(f, p.off, p.n)
	if s, ok := f.(io.ReadSeeker); ok {
		if _, err := s.Seek(p.off, io.SeekStart); err != nil {
			return err
		}
		from = s
	}
	for n := p.n; n > 0; {
		if err := before(); err != nil {
			return err
		}
		sent, err := io.CopyN(w, from, min(n, sendBytes))
		if err != nil {
			return err
		}
		n -= sent
	}
	return nil
}

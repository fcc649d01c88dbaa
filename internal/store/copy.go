// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"

	"rezolus/internal/vfs"
)

// CopyOptions say what is copied. The zero value is everything.
type CopyOptions struct {
	// From and To bound the ticks that are copied, in Unix nanoseconds,
	// both inclusive. Both zero: all ticks.
	From, To int64
	// GoesOn says that another file goes on where this one ends: series do
	// not end there.
	GoesOn bool
}

// Copied is what a copy has.
type Copied struct {
	Ticks uint64
	Bytes int64
}

// Copy writes ticks of recordings, which may still grow, into a new file, in
// columns and in the order in which they are given: the whole of one to
// repair it, a part to cut it, many to merge them. What is damaged is left
// out. The file appears under its name when it is whole and on the disk;
// fs.ErrExist if there is one already.
func Copy(ctx context.Context, fsys vfs.FS, path string, o CopyOptions, recordings ...*Recording) (Copied, error) {
	if o.From == 0 && o.To == 0 {
		o.From, o.To = math.MinInt64, math.MaxInt64
	}
	out, err := newSealed(fsys, path)
	if err != nil {
		return Copied{}, err
	}
	out.s.from, out.s.to = o.From, o.To
	for _, r := range recordings {
		if err := r.copyTo(ctx, out.s); err != nil {
			return Copied{}, errors.Join(fmt.Errorf("copy %s to %s: %w", r.path, path, err), out.abandon())
		}
	}
	total := func(end endFront) endFront { return end }
	if err := out.finish(total, o, out.publish); err != nil {
		return Copied{}, err
	}
	return Copied{out.s.total.ticks, out.size}, nil
}

// sealedFile is a sealed recording being written. It gets its name when it is
// whole.
type sealedFile struct {
	fs        vfs.FS
	file      vfs.File
	path, tmp string
	s         *sealer
	size      int64
}

// Unfinished is what follows the name of a file that is not whole yet. Without
// somebody who writes it, it is what a crash left.
const Unfinished = ".sealing"

func newSealed(fsys vfs.FS, path string) (*sealedFile, error) {
	f := &sealedFile{fs: fsys, path: path, tmp: path + Unfinished}
	file, err := fsys.Create(f.tmp)
	if errors.Is(err, fs.ErrExist) { // a crash left it: whoever owns path owns it too
		if err = fsys.Remove(f.tmp); err == nil {
			file, err = fsys.Create(f.tmp)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create recording: %w", err)
	}
	f.file = file
	f.s = newSealer(f.write)
	if err := f.write(appendHeader(nil)); err != nil {
		return nil, errors.Join(err, f.abandon())
	}
	return f, nil
}

func (f *sealedFile) write(b []byte) error {
	n, err := f.file.Write(b)
	f.size += int64(n)
	if err != nil {
		return fmt.Errorf("write %s: %w", f.tmp, err)
	}
	return nil
}

// abandon takes away what was written.
func (f *sealedFile) abandon() error {
	return errors.Join(f.file.Close(), f.fs.Remove(f.tmp))
}

// finish writes what is outstanding and the end record, syncs, and gives the
// file its name. After an error nothing is left of it.
func (f *sealedFile) finish(total func(endFront) endFront, o CopyOptions, name func() error) error {
	flags := flagSkip
	if o.GoesOn {
		flags |= flagGoesOn
	}
	err := f.s.flush()
	if err == nil {
		end := total(f.s.total)
		err = f.write(frontRecord(nil, TypeEnd, flags, end.append))
	}
	if err == nil {
		err = f.file.Sync()
	}
	if err == nil {
		err = name()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("finish %s: %w", f.path, err), f.abandon())
	}
	if err := f.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", f.path, err)
	}
	if err := f.fs.SyncDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("sync the directory of %s: %w", f.path, err)
	}
	return nil
}

// publish gives the file its name, if that is free.
func (f *sealedFile) publish() error {
	err := f.fs.Link(f.tmp, f.path)
	switch {
	case err == nil:
		return f.fs.Remove(f.tmp)
	case errors.Is(err, fs.ErrExist):
		return err
	}
	// A file system without links.
	if there, err := f.fs.Open(f.path); err == nil {
		return errors.Join(&fs.PathError{Op: "create", Path: f.path, Err: fs.ErrExist}, there.Close())
	}
	return f.replace()
}

// replace gives the file its name, in place of what has it.
func (f *sealedFile) replace() error { return f.fs.Rename(f.tmp, f.path) }

// copyTo gives all of the recording to a sealer.
func (r *Recording) copyTo(ctx context.Context, s *sealer) error {
	r.mu.Lock()
	marks := append([]mark(nil), r.index.marks...)
	r.mu.Unlock()
	c := copying{r: r, s: s}
	for i, l := range r.all() {
		for len(marks) > 0 && marks[0].before <= i {
			if err := c.mark(marks[0]); err != nil {
				return err
			}
			marks = marks[1:]
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if max(l.first, s.from) > min(l.last, s.to) {
			continue
		}
		if err := c.stretch(&l); err != nil {
			return err
		}
	}
	for _, m := range marks {
		if err := c.mark(m); err != nil {
			return err
		}
	}
	return nil
}

// copying is one recording on its way into a sealer.
type copying struct {
	r     *Recording
	s     *sealer
	chain *chain // the sealer has this one's run record
	given map[*schemaAt]bool
	buf   []byte
}

func (c *copying) mark(m mark) error {
	typ, front := TypeGap, m.gap.append
	if m.event != nil {
		typ, front = TypeEvent, m.event.append
	}
	return c.give(frontRecord(nil, typ, flagSkip, front))
}

// give gives whole records to the sealer.
func (c *copying) give(b []byte) error {
	for len(b) > 0 {
		rec, err := parseRecord(b)
		if err == nil {
			err = c.s.record(rec)
		}
		if err != nil {
			return err
		}
		b = b[len(rec.Raw):]
	}
	return nil
}

// stretch gives a stretch, as far as it is not damaged.
func (c *copying) stretch(l *located) error {
	if c.chain != l.chain {
		c.chain, c.given = l.chain, map[*schemaAt]bool{}
		if err := c.give(frontRecord(nil, TypeRun, 0, l.chain.append)); err != nil {
			return err
		}
	}
	var err error
	switch {
	case l.segment == nil:
		err = c.rows(l)
	case l.first >= c.s.from && l.last <= c.s.to:
		if err = c.segment(l); damaged(err) {
			c.r.hurt(l.off, l.end-l.off, err)
			err = c.part(l) // as much of it as can be read
		}
	default:
		err = c.part(l)
	}
	if damaged(err) {
		c.r.hurt(l.off, l.end-l.off, err)
		c.chain = nil // what the sealer knows of the chain may be half of it
		return nil
	}
	return err
}

// rows gives the records of ticks, and the schemas they need.
func (c *copying) rows(l *located) error {
	p := pages{f: c.r.file, size: l.end}
	for _, at := range l.chain.schemas {
		if at.from >= l.off || at.until <= l.off || c.given[at] {
			continue
		}
		c.given[at] = true
		if rec, _, err := p.record(at.from, true); err == nil {
			err = c.s.record(rec)
			if err != nil && !damaged(err) {
				return err
			}
		}
	}
	for at := l.off; at < l.end; {
		rec, n, err := p.record(at, true)
		if err != nil {
			return err
		}
		if rec.Type == TypeTick || rec.Type == TypeSchema {
			if err := c.s.record(rec); err != nil {
				return err
			}
		}
		at += n
	}
	return nil
}

// segment gives a segment as it is.
func (c *copying) segment(l *located) error {
	p := pages{f: c.r.file, size: l.blocks + int64(l.segment.follow), buf: c.buf[:0]}
	raw, err := p.at(l.off, int(p.size-l.off))
	if err != nil {
		return err
	}
	c.buf = p.buf
	for b := raw; len(b) > 0; {
		rec, err := parseRecord(b)
		if err != nil {
			return err
		}
		b = b[len(rec.Raw):]
	}
	d, err := c.r.segment(l).directory()
	if err != nil {
		return err
	}
	for i := range d.sources {
		schema, err := c.r.dict(d.sources[i].dict)
		if err != nil {
			return err
		}
		d.sources[i].schema = schema
	}
	return c.s.whole(l.segment, d, raw)
}

// part gives some ticks of a segment, by way of rows.
func (c *copying) part(l *located) error {
	rows, err := c.r.segment(l).rows(&l.chain.run, c.s.from, c.s.to)
	if err != nil {
		return err
	}
	e := NewEncoder(EncoderOptions{Meta: l.chain.meta, Interval: l.chain.interval, Plain: true, KeyEvery: math.MaxInt})
	e.headed = true
	var buf []byte
	for {
		s, err := rows.next()
		if s == nil || err != nil {
			c.chain = nil // the sealer has the encoder's
			return err
		}
		if s.Wall < c.s.from || s.Wall > c.s.to {
			continue
		}
		if buf, err = e.Append(buf[:0], s); err != nil {
			return err
		}
		if err := c.give(buf); err != nil {
			return err
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"rezolus/internal/metric"
	"rezolus/internal/vfs"
)

// Recording reads a .rzr file: a finished one, one that still grows
// (Refresh), or one that was cut or damaged, of which it gives every whole
// tick and says what is missing (Info). It is safe for concurrent use.
type Recording struct {
	file vfs.File
	path string

	mu    sync.Mutex
	index index
}

// Open opens a recording and makes an index of it, from the fronts of the
// records alone where it was closed properly. ErrForeign and ErrUnsupported
// are refused; damage is not.
func Open(fsys vfs.FS, path string) (*Recording, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open recording: %w", err)
	}
	r := &Recording{file: f, path: path}
	if err := r.Refresh(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// Close closes the file.
func (r *Recording) Close() error {
	if err := r.file.Close(); err != nil {
		return fmt.Errorf("close recording: %w", err)
	}
	return nil
}

// Refresh takes in what was appended since.
func (r *Recording) Refresh() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	size, err := r.file.Size()
	if err == nil {
		err = r.index.scan(r.file, size, !r.ended(size))
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", r.path, err)
	}
	return nil
}

// ended reports whether the file ends with an end record: then the writer
// synced all of it, and bodies need no check before they are wanted.
func (r *Recording) ended(size int64) bool {
	if size < headerSize+endSize {
		return false
	}
	p := pages{f: r.file, size: size}
	rec, _, err := p.record(size-endSize, true)
	return err == nil && rec.Type == TypeEnd
}

// Info says what the recording is.
func (r *Recording) Info() Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.index.info()
}

// Bounds implements query.Reader.
func (r *Recording) Bounds() (first, last int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bounds(r.index.stretches)
}

// all is the recording's stretches at this moment.
func (r *Recording) all() []located {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.index.stretches)
	for i := range all {
		all[i].r = r
	}
	return all
}

// beginsWithGap reports whether a gap stands before the first tick.
func (r *Recording) beginsWithGap() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.index.marks) > 0 && r.index.marks[0].event == nil && r.index.marks[0].before == 0
}

// dict is the dictionary of a hash.
func (r *Recording) dict(hash metric.Hash) (*metric.Schema, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.index.dicts[hash]
	if d == nil {
		return nil, fmt.Errorf("%w: dictionary %v is missing", ErrCorrupt, hash)
	}
	if d.parsed == nil {
		d.parsed = internedSchema(hash)
	}
	if d.parsed != nil {
		return d.parsed, nil
	}
	p := pages{f: r.file, size: d.off + d.size}
	rec, _, err := p.record(d.off, true)
	if err != nil {
		return nil, err
	}
	u := unpackers.Get().(*unpacker)
	defer unpackers.Put(u)
	b, err := u.body(rec.flags&flagZstd != 0, d.dictFront.size, rec.body)
	if err == nil {
		f := schemaFront{words: d.words, series: d.series, source: d.source}
		d.parsed, err = parseSchema(f, b)
	}
	if err == nil && d.parsed.Hash != hash {
		d.parsed, err = nil, fmt.Errorf("%w: dictionary %v is another", ErrCorrupt, hash)
	}
	if err == nil {
		d.parsed = intern(d.parsed)
	}
	return d.parsed, err
}

// segment is a stretch in columns.
func (r *Recording) segment(l *located) *segmentAt {
	return &segmentAt{front: *l.segment, dict: r.dict,
		body: func() (Record, error) {
			p := pages{f: r.file, size: l.end}
			rec, _, err := p.record(l.off, true)
			return rec, err
		},
		read: func(k *segmentBlock, buf []byte) (Record, []byte, error) {
			p := pages{f: r.file, size: l.blocks + k.off + k.bytes, buf: buf[:0]}
			rec, _, err := p.record(l.blocks+k.off, true)
			return rec, p.buf, err
		}}
}

// schemas returns the schemas of the chain that were in force within a
// stretch, read as far as they can be.
func (r *Recording) schemas(l *located) (out []*metric.Schema) {
	if l.segment != nil {
		return r.dictionaries(l)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range l.chain.schemas {
		if s.from < l.end && s.until > l.off && r.load(s) {
			out = append(out, s.parsed)
		}
	}
	return out
}

// dictionaries are the schemas of a segment.
func (r *Recording) dictionaries(l *located) (out []*metric.Schema) {
	d, err := r.segment(l).directory()
	if err != nil {
		r.hurt(l.off, l.end-l.off, err)
		return nil
	}
	for i := range d.sources {
		schema, err := r.dict(d.sources[i].dict)
		if err != nil {
			r.hurt(l.off, l.end-l.off, err)
			continue
		}
		out = append(out, schema)
	}
	return out
}

// hurt remembers damage that was found while reading.
func (r *Recording) hurt(off, bytes int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index.hurt(Damage{off, bytes, err})
}

// load makes sure that a schema is parsed, or known to be lost.
func (r *Recording) load(s *schemaAt) bool {
	if s.parsed != nil || s.lost {
		return !s.lost
	}
	p := pages{f: r.file, size: s.from + s.size}
	rec, _, err := p.record(s.from, true)
	if err == nil {
		s.parsed, err = parseSchema(s.schemaFront, rec.body)
	}
	if err != nil {
		s.lost = true
		r.index.hurt(Damage{s.from, s.size, err})
	}
	return err == nil
}

// find is the lookup of a chain.
func (r *Recording) find(c *chain) lookup {
	return func(number uint64) *metric.Schema {
		r.mu.Lock()
		defer r.mu.Unlock()
		if s := c.byNumber[number]; s != nil && r.load(s) {
			return s.parsed
		}
		return nil
	}
}

// Series implements query.Reader.
func (r *Recording) Series(from, to int64, yield func(*metric.Series) bool) error {
	return r.joined().Series(from, to, yield)
}

// Select implements query.Reader. What turns out to be damaged is left out
// and appears in Info. Segments are decoded on all processors.
func (r *Recording) Select(ctx context.Context, from, to int64, want func(*metric.Series) bool) ([]metric.Column, error) {
	return r.joined().Select(ctx, from, to, want)
}

func (r *Recording) joined() *Joined { return &Joined{r.all()} }

// walk gives a stretch's ticks to a selection, up to the first that is
// damaged: those after it need it.
func (r *Recording) walk(s *selection, l *located) error {
	s.begin(l.chain.chain)
	p := pages{f: r.file, size: l.end}
	find := r.find(l.chain)
	for at := l.off; at < l.end; {
		rec, n, err := p.record(at, true)
		done := false
		if err == nil {
			done, err = s.record(rec, l.hide, find)
		}
		if damaged(err) {
			r.hurt(at, l.end-at, err)
			return nil
		}
		if done || err != nil {
			return err
		}
		at += n
	}
	return nil
}

// damaged reports whether the bytes are to blame, and not the disk.
func damaged(err error) bool { return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrTruncated) }

// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
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
	return r.index.bounds()
}

// within returns the stretches from the first that has ticks in [from, to].
func (r *Recording) within(from, to int64) []located {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.index.stretches
	first, last := len(all), 0
	for i := range all {
		if all[i].shows(from, to) {
			first, last = min(first, i), i+1
		}
	}
	if first >= last {
		return nil
	}
	return append([]located(nil), all[first:last]...)
}

// schemas returns the schemas of the chain that were in force within a
// stretch, read as far as they can be.
func (r *Recording) schemas(l *located) (out []*metric.Schema) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range l.chain.schemas {
		if s.from < l.end && s.until > l.off && r.load(s) {
			out = append(out, s.parsed)
		}
	}
	return out
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
	seen := map[*metric.Schema]bool{}
	for _, l := range r.within(from, to) {
		if !l.shows(from, to) {
			continue
		}
		for _, s := range r.schemas(&l) {
			if seen[s] {
				continue
			}
			seen[s] = true
			for i := range s.Series {
				if !yield(&s.Series[i]) {
					return nil
				}
			}
		}
	}
	return nil
}

// Select implements query.Reader. Ticks that turn out to be damaged are
// left out and appear in Info.
func (r *Recording) Select(ctx context.Context, from, to int64, want func(*metric.Series) bool) ([]metric.Column, error) {
	stretches, ticks := r.within(from, to), 0
	for i := range stretches {
		ticks += int(stretches[i].ticks)
	}
	s := newSelection(ticks, from, to, want)
	p := pages{f: r.file}
	for _, l := range stretches {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("select from %s: %w", r.path, err)
		}
		if l.shows(from, to) {
			if err := r.walk(s, &p, &l); err != nil {
				return nil, fmt.Errorf("select from %s: %w", r.path, err)
			}
		}
		if l.over != 0 {
			s.over(l.over)
		}
	}
	return s.result(), nil
}

// walk gives a stretch's ticks to a selection, up to the first that is
// damaged: those after it need it.
func (r *Recording) walk(s *selection, p *pages, l *located) error {
	s.begin(l.chain.chain)
	p.size = l.end
	find := r.find(l.chain)
	for at := l.off; at < l.end; {
		rec, n, err := p.record(at, true)
		done := false
		if err == nil {
			done, err = s.record(rec, l.hide, find)
		}
		if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrTruncated) {
			r.mu.Lock()
			r.index.hurt(Damage{at, l.end - at, err})
			r.mu.Unlock()
			return nil
		}
		if done || err != nil {
			return err
		}
		at += n
	}
	return nil
}

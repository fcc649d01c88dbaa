// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"rezolus/internal/metric"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// The names of a ring's files are a number and one of these.
const (
	logExt    = ".log"
	sealedExt = ".rzr"
	tmpExt    = store.Unfinished // what a crash left of a file being sealed
)

// file is a file of the ring, in one of its two forms.
type file struct {
	number uint64
	log    bool
	writer *store.Writer // of a log that is full and to be closed; else nil
	broken bool          // that writer cannot write
	first  int64         // wall of its first tick
	until  mark          // its last tick; of the live log not known yet
	bytes  int64         // of the live log as of its last tick
	h      *handle
}

// handle is a name that readers may have open. When it is retired, it goes
// with the last of them.
type handle struct {
	path    string
	users   int   // with Ring.mu
	gone    bool  // what it was is not there any more; with Ring.mu
	retired bool  // with Ring.mu
	bytes   int64 // of one that is retired; with Ring.mu

	mu  sync.Mutex
	rec *store.Recording
}

// open opens the recording, or brings it up to date.
func (h *handle) open(fsys vfs.FS) (*store.Recording, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rec != nil {
		return h.rec, h.rec.Refresh()
	}
	rec, err := store.Open(fsys, h.path)
	if err != nil {
		return nil, err
	}
	h.rec = rec
	return rec, nil
}

func (h *handle) shut() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rec == nil {
		return nil
	}
	rec := h.rec
	h.rec = nil
	return rec.Close()
}

func (r *Ring) path(number uint64, ext string) string {
	return filepath.Join(r.o.Dir, fmt.Sprintf("%012d%s", number, ext))
}

// live is the log that is put into, with Ring.mu.
func (r *Ring) live() *file {
	if n := len(r.files); n > 0 && r.files[n-1].log && r.files[n-1].until == (mark{}) {
		return r.files[n-1]
	}
	return nil
}

// hold opens all files as they are at this moment, the oldest first. They
// may be read until release is called.
func (r *Ring) hold() (all []*store.Recording, release func(), err error) {
	r.mu.Lock()
	if gone := r.gone; gone != nil {
		r.mu.Unlock()
		return nil, nil, fmt.Errorf("read the ring: %w", gone)
	}
	var held []*handle
	for _, f := range r.files {
		f.h.users++
		held = append(held, f.h)
	}
	r.mu.Unlock()
	release = func() {
		for _, h := range held {
			r.letGo(h)
		}
	}
	for _, h := range held {
		rec, err := h.open(r.fs)
		if err != nil {
			release()
			return nil, nil, fmt.Errorf("read the ring: %w", err)
		}
		all = append(all, rec)
	}
	return all, release, nil
}

// letGo is one user less; the last one of a retired handle takes it away, and
// of one that is gone closes it.
func (r *Ring) letGo(h *handle) {
	r.mu.Lock()
	h.users--
	last, gone := h.users == 0, h.gone
	last = last && (h.retired || gone)
	r.mu.Unlock()
	if !last {
		return
	}
	if gone {
		_ = h.shut() // it was only read
		return
	}
	err := r.remove(h)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving -= h.bytes
	if err != nil {
		r.hindered = err
	}
}

// retire takes a file of so many bytes away when nobody reads it any more.
func (r *Ring) retire(h *handle, bytes int64) error {
	r.mu.Lock()
	h.retired = true
	last := h.users == 0
	if !last {
		h.bytes = bytes
		r.leaving += bytes
	}
	r.mu.Unlock()
	if last {
		return r.remove(h)
	}
	return nil
}

// remove removes a file. One that stays is adopted and dropped again when
// the ring is opened next; one that is not there was removed.
func (r *Ring) remove(h *handle) error {
	err := r.fs.Remove(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(h.shut(), err)
}

// adopt is what is in the directory, ascending, and the number from which on
// names are free.
func (r *Ring) adopt() (files []*file, next uint64, err error) {
	names, err := r.fs.List(r.o.Dir)
	if err != nil {
		return nil, 0, err
	}
	found := map[uint64]*file{}
	defer func() {
		if err != nil { // it will be tried again
			for _, f := range found {
				err = errors.Join(err, f.h.shut())
			}
		}
	}()
	for _, name := range names {
		path := filepath.Join(r.o.Dir, name)
		number, ext, ok := parseName(name)
		if !ok {
			continue
		}
		next = max(next, number+1)
		if ext == tmpExt {
			if err := r.fs.Remove(path); err != nil {
				return nil, 0, err
			}
			continue
		}
		f, err := r.inspect(number, path)
		if err != nil {
			return nil, 0, err
		}
		if f == nil {
			continue
		}
		// Sealing was done, and only the log not removed: the names are in
		// this order.
		if other := found[number]; other != nil {
			log := other
			if f.log {
				log, f = f, other
			}
			if err := r.retire(log.h, 0); err != nil {
				return nil, 0, errors.Join(err, f.h.shut())
			}
		}
		found[number] = f
	}
	for _, f := range found {
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b *file) int { return int(int64(a.number - b.number)) })
	return files, next, nil
}

// parseName takes the name of a ring's file apart.
func parseName(name string) (number uint64, ext string, ok bool) {
	digits, ext, _ := strings.Cut(name, ".")
	ext = "." + ext
	number, err := strconv.ParseUint(digits, 10, 62)
	if err != nil {
		return 0, "", false
	}
	if strings.HasSuffix(ext, tmpExt) {
		return number, tmpExt, true
	}
	return number, ext, ext == logExt || ext == sealedExt
}

// inspect looks at a file; nil if it is of no use. One without ticks is
// removed, and one that a newer rezolus made is left alone.
func (r *Ring) inspect(number uint64, path string) (*file, error) {
	h := &handle{path: path}
	rec, err := h.open(r.fs)
	switch {
	case errors.Is(err, store.ErrUnsupported):
		return nil, nil
	case errors.Is(err, store.ErrForeign):
		return nil, r.fs.Remove(path)
	case err != nil:
		return nil, err
	}
	info := rec.Info()
	if info.Ticks == 0 || filepath.Ext(path) == sealedExt && !info.Closed {
		return nil, r.retire(h, 0)
	}
	f := &file{number: number, log: filepath.Ext(path) == logExt, first: info.First, bytes: info.Bytes, h: h,
		until: mark{wall: info.Last, interval: int64(info.Interval), boot: info.Runs[len(info.Runs)-1].Run.Boot}}
	return f, nil
}

// Bounds implements query.Reader.
func (r *Ring) Bounds() (first, last int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.oldest(), r.newest.wall
}

// oldest is the first tick there is, with Ring.mu.
func (r *Ring) oldest() int64 {
	if len(r.files) == 0 {
		return 0
	}
	first := r.files[0].first
	for _, f := range r.files {
		first = min(first, f.first)
	}
	return first
}

// Series implements query.Reader.
func (r *Ring) Series(from, to int64, yield func(*metric.Series) bool) error {
	all, release, err := r.hold()
	if err != nil {
		return err
	}
	defer release()
	return store.Join(all...).Series(from, to, yield)
}

// Select implements query.Reader.
func (r *Ring) Select(ctx context.Context, from, to int64, want func(*metric.Series) bool) ([]metric.Column, error) {
	all, release, err := r.hold()
	if err != nil {
		return nil, err
	}
	defer release()
	return store.Join(all...).Select(ctx, from, to, want)
}

// Each calls f for every tick within [from, to], Unix nanoseconds, both
// inclusive, in the order in which they were put. A snapshot may be read
// until f returns. Putting goes on meanwhile.
func (r *Ring) Each(ctx context.Context, from, to int64, f func(*metric.Snapshot) error) error {
	all, release, err := r.hold()
	if err != nil {
		return err
	}
	defer release()
	for _, rec := range all {
		if err := rec.Each(ctx, from, to, f); err != nil {
			return err
		}
	}
	return nil
}

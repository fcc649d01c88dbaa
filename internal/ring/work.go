// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"rezolus/internal/store"
)

// work does what is due besides putting: it sees to the directory, prepares the
// next log, seals the full ones, and lets the oldest files go. What fails is
// tried again when it is called next.
func (r *Ring) work() {
	err := r.attend()
	if err == nil {
		err = r.turn()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hindered = err
	r.wanted = false // to be asked for again, if it is not there
}

// turn is work on the files that are there.
func (r *Ring) turn() (err error) {
	r.mu.Lock()
	prepare := r.wanted && r.spare == nil && !r.closing
	r.mu.Unlock()
	if prepare {
		var ready *spare
		if ready, err = r.prepare(); err == nil {
			r.mu.Lock()
			r.spare = ready
			r.mu.Unlock()
		}
	}
	for _, f := range r.unsealed() {
		if e := r.seal(f); e != nil {
			err = errors.Join(err, e)
			break // in order, and most likely for the same reason
		}
	}
	return errors.Join(err, r.limit())
}

// prepare makes a log that is ready to be the next.
func (r *Ring) prepare() (*spare, error) {
	for {
		r.mu.Lock()
		number := r.number
		r.number++
		r.mu.Unlock()
		w, err := store.Create(r.fs, r.path(number, logExt), store.WriterOptions{Rows: true, Sync: r.o.Sync,
			EncoderOptions: store.EncoderOptions{Interval: r.o.Interval, Meta: r.o.Meta}})
		if err == nil {
			return &spare{number, w}, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
}

// unsealed are the logs that are full.
func (r *Ring) unsealed() (all []*file) {
	r.mu.Lock()
	defer r.mu.Unlock()
	live := r.live()
	for _, f := range r.files {
		if f.log && f != live {
			all = append(all, f)
		}
	}
	return all
}

// endWriter closes a full log. All that is put is in it already; if its end
// cannot be written, it is read as one that was cut off.
func (f *file) endWriter() error {
	end := f.writer.GoOn
	if f.broken {
		end = f.writer.Abandon
	}
	f.writer = nil
	return end()
}

// seal puts a sealed file in the place of a log. The log is there until the
// other is on the disk under its name.
func (r *Ring) seal(f *file) error {
	if f.writer != nil {
		if err := f.endWriter(); err != nil {
			return err
		}
	}
	r.mu.Lock()
	log := f.h
	log.users++
	last := r.closing && r.files[len(r.files)-1] == f
	r.mu.Unlock()
	defer r.letGo(log)
	rows, err := log.open(r.fs)
	if err != nil {
		return err
	}
	path := r.path(f.number, sealedExt)
	got, err := store.Copy(context.Background(), r.fs, path, store.CopyOptions{GoesOn: !last}, rows)
	if errors.Is(err, fs.ErrExist) { // of a ring that was restored from somewhere
		if err = r.fs.Remove(path); err == nil {
			got, err = store.Copy(context.Background(), r.fs, path, store.CopyOptions{GoesOn: !last}, rows)
		}
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	rowBytes := f.bytes
	f.h, f.log, f.bytes = &handle{path: path}, false, got.Bytes
	r.mu.Unlock()
	return r.retire(log, rowBytes)
}

// space is the reserve, and what is free.
func (r *Ring) space() (reserve, free int64, err error) {
	total, free, err := r.fs.Space(r.o.Dir)
	if err != nil {
		return 0, 0, err
	}
	if r.o.Reserve > 0 {
		return r.o.Reserve, free, nil
	}
	return min(total/20, 1<<30), free, nil
}

// limit lets the oldest files go as long as there is more than there may be.
// The live log stays. A file that somebody reads goes when that is over: its
// space counts as free, or else a slow reader would have all others go.
func (r *Ring) limit() error {
	for {
		reserve, free, err := r.space()
		if err != nil {
			return err
		}
		h, bytes := r.drop(free, reserve)
		if h == nil {
			return nil
		}
		if err := r.retire(h, bytes); err != nil {
			return err
		}
	}
}

// drop takes the oldest file off the list, if it must go.
func (r *Ring) drop(free, reserve int64) (h *handle, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) == 0 || r.files[0] == r.live() || r.closing && len(r.files) == 1 {
		return nil, 0
	}
	sum := int64(0)
	for _, f := range r.files {
		sum += f.bytes
	}
	f := r.files[0]
	if free+r.leaving >= reserve && !r.tooOld(f) && (r.o.Bytes <= 0 || sum <= r.o.Bytes) {
		return nil, 0
	}
	r.files = slices.Delete(r.files, 0, 1)
	r.count.dropped++
	r.count.droppedBytes += f.bytes
	return f.h, f.bytes
}

// tooOld reports whether all of a file is older than the ring keeps. Within a
// life of the machine its age is that of the monotonic clock: a wall clock
// that was set ahead by an hour makes nothing older.
func (r *Ring) tooOld(f *file) bool {
	if r.o.Age <= 0 {
		return false
	}
	age := r.newest.wall - f.until.wall
	if f.until.mono != 0 && f.until.boot == r.newest.boot {
		age = r.newest.mono - f.until.mono
	}
	return time.Duration(age) > r.o.Age
}

// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// Why the ring is not where it was.
var (
	errRemoved  = errors.New("somebody removed the ring's directory")
	errReplaced = errors.New("another directory is in the place of the ring's")
	errMissing  = errors.New("somebody removed files of the ring")
	errAway     = errors.New("the ring's file system is not mounted")
)

// attend sees to it that the ring is where its name says: ticks that go into
// files which somebody took away are ticks that nobody will read. It leaves
// what is not there any more, and opens the ring anew where it may be.
func (r *Ring) attend() error {
	r.mu.Lock()
	gone, closing := r.gone, r.closing
	r.mu.Unlock()
	if closing {
		return gone
	}
	if gone == nil {
		why, err := r.changed()
		if why == nil || err != nil {
			return err
		}
		r.leave(why)
	}
	err := r.enter()
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.gone = err
	}
	return err
}

// changed is what happened to the directory since it was looked at last, if
// anything did.
func (r *Ring) changed() (why, err error) {
	r.mu.Lock()
	ours := []string{lockName}
	for _, f := range r.files {
		ours = append(ours, filepath.Base(f.h.path))
	}
	if r.spare != nil {
		ours = append(ours, filepath.Base(r.path(r.spare.number, logExt)))
	}
	r.mu.Unlock()
	here, err := r.fs.Identify(r.o.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errRemoved, nil
	case err != nil:
		return nil, err
	case here != r.home:
		return errReplaced, nil
	}
	names, err := r.fs.List(r.o.Dir)
	if err != nil {
		return nil, err
	}
	for _, name := range ours {
		if !slices.Contains(names, name) {
			return errMissing, nil
		}
	}
	return nil, nil
}

// leave closes all files and gives up the directory, or else a file system that
// was unmounted could be neither checked nor mounted again. Until the ring is
// entered again ticks are lost.
func (r *Ring) leave(why error) {
	r.putting.Lock()
	writer := r.writer
	broken := r.failing != 0
	if writer != nil && broken {
		r.lost = writer.Lost()
	}
	r.writer, r.failing, r.news = nil, 0, why
	r.mu.Lock()
	if live := r.live(); live != nil {
		live.until, live.writer, live.broken = r.last, writer, broken
	}
	ready := r.spare
	r.gone, r.spare = why, nil
	files := slices.Clone(r.files)
	r.mu.Unlock()
	r.putting.Unlock()
	// What does not end well is read as a file that was cut off, if it is ever
	// seen again.
	for _, f := range files {
		if f.writer != nil {
			_ = f.endWriter()
		}
		r.forget(f.h)
	}
	if ready != nil {
		_ = ready.writer.Abandon()
	}
	_ = r.release()
}

// forget closes a file, when nobody reads it any more, and leaves it where it is.
func (r *Ring) forget(h *handle) {
	r.mu.Lock()
	h.gone = true
	last := h.users == 0
	r.mu.Unlock()
	if last {
		_ = h.shut() // it was only read
	}
}

// release gives the directory to others.
func (r *Ring) release() error {
	lock := r.lock
	r.lock = nil
	if lock == nil {
		return nil
	}
	return lock.Close()
}

// enter takes the directory, which is made where it is missing, and the files
// that are in it.
func (r *Ring) enter() error {
	if err := r.allowed(); err != nil {
		return err
	}
	if err := r.fs.Mkdir(r.o.Dir); err != nil {
		return fmt.Errorf("make the ring's directory: %w", err)
	}
	lock, err := r.fs.Lock(filepath.Join(r.o.Dir, lockName))
	if err != nil {
		return fmt.Errorf("take the ring in %s: %w", r.o.Dir, err)
	}
	home, beneath, err := r.place()
	var files []*file
	var next uint64
	if err == nil {
		files, next, err = r.adopt()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open the ring in %s: %w", r.o.Dir, err), lock.Close())
	}
	r.lock, r.home, r.beneath = lock, home, beneath
	r.goOn(files, next)
	return nil
}

// allowed reports whether the ring may be opened where its name is now. The
// directory beneath a mount point is not its place: what is written there is
// hidden when the file system is back, and fills another one until then. On a
// file system that was not there before, one that came in the place of a broken
// one perhaps, the ring goes on if its directory is there.
func (r *Ring) allowed() error {
	if r.home == (vfs.ID{}) { // it is opened for the first time
		return nil
	}
	at := r.o.Dir
	id, err := r.fs.Identify(at)
	for errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at {
		at = filepath.Dir(at)
		id, err = r.fs.Identify(at)
	}
	switch {
	case err != nil:
		return fmt.Errorf("look for the ring's directory: %w", err)
	case id.Device == r.home.Device, at == r.o.Dir && !slices.Contains(r.beneath, id.Device):
		return nil
	}
	return fmt.Errorf("%w; mount it, or restart rezolus to use what is at %s now", errAway, r.o.Dir)
}

// place is the directory, and the devices of those above it that are others.
func (r *Ring) place() (home vfs.ID, beneath []uint64, err error) {
	home, err = r.fs.Identify(r.o.Dir)
	for at := r.o.Dir; err == nil && filepath.Dir(at) != at; {
		at = filepath.Dir(at)
		var id vfs.ID
		if id, err = r.fs.Identify(at); err == nil && id.Device != home.Device {
			beneath = append(beneath, id.Device)
		}
	}
	return home, beneath, err
}

// goOn goes on after the files that are there. Of what was put and is not in
// them the next log tells.
func (r *Ring) goOn(files []*file, next uint64) {
	r.putting.Lock()
	defer r.putting.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch n := len(files); {
	case r.last == mark{}: // nothing was put yet
		if n > 0 {
			r.last, r.restart = files[n-1].until, true
			r.newest = r.last
		}
	case n > 0:
		r.missSince(files[n-1].until.wall + r.last.interval)
	case len(r.files) > 0:
		r.missSince(r.oldest())
	}
	r.files, r.number, r.gone = files, max(r.number, next), nil
}

// missSince is told of by the next log: what was put from a time on is gone.
func (r *Ring) missSince(from int64) {
	if r.taken.Ticks > 0 { // the more of it
		from = min(from, r.taken.From)
	}
	if to := r.last.wall; from <= to {
		r.taken = store.Gap{From: from, To: to, Ticks: uint64((to-from)/max(1, r.last.interval)) + 1, Reason: "the ring's files were taken away"}
	}
}

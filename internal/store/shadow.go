// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"

	"rezolus/internal/vfs"
)

// shadowStep is how many bytes of rows are sealed at a time.
const shadowStep = 1 << 20

// shadow seals a recording while it is written, into a file beside it. The
// recording itself is only ever appended to: until the sealed file takes its
// place, which is one rename, it is all that counts. After a crash the shadow
// is garbage.
type shadow struct {
	fs   vfs.FS
	path string
	rows vfs.File
	off  int64 // up to here the rows were taken, or are being
	page pages // of the rows
	out  *sealedFile
	busy chan struct{} // closed when they were; nil: nothing was begun
	err  error
}

// follow is told the length of the whole records in the file. It never waits.
func (s *shadow) follow(size int64) {
	if size-s.off < shadowStep || s.running() || s.err != nil {
		return
	}
	off, done := s.off, make(chan struct{})
	s.off, s.busy = size, done
	go func() {
		defer close(done)
		s.err = s.take(off, size)
	}()
}

func (s *shadow) running() bool {
	if s.busy == nil {
		return false
	}
	select {
	case <-s.busy:
		return false
	default:
		return true
	}
}

// errYielded says that sealing was given up for the sake of the rows.
var errYielded = errors.New("the disk is full")

// yield gives up sealing: the space is needed for the rows.
func (s *shadow) yield() {
	if s.out == nil && s.busy == nil {
		return // it has taken none
	}
	if s.busy != nil {
		<-s.busy
	}
	if s.err = errYielded; s.out != nil {
		_ = s.out.abandon()
		s.out = nil
	}
}

// take seals the records from one byte to another.
func (s *shadow) take(off, size int64) error {
	if s.out == nil {
		out, err := newSealed(s.fs, s.path)
		if err != nil {
			return err
		}
		s.out = out
	}
	s.page.f, s.page.size = s.rows, size
	for off < size {
		rec, n, err := s.page.record(off, true)
		if err == nil {
			err = s.out.s.record(rec)
		}
		if err != nil {
			return err
		}
		off += n
	}
	return nil
}

// finish seals what is left, up to size, and puts the sealed file in the
// recording's place if the rows are good. It returns that file's length.
func (s *shadow) finish(good bool, size int64, end endFront, goesOn bool) (int64, bool) {
	if s.busy != nil {
		<-s.busy
	}
	if good && s.err == nil {
		s.err = s.take(s.off, size)
	}
	if damaged(s.err) { // rows that do not follow: a reader of files knows what to do
		s.err = s.again()
	}
	if s.out == nil {
		return 0, false
	}
	if !good || s.err != nil {
		// There is nothing to be done about a file that cannot be removed;
		// the next recording of this name does it.
		_ = s.out.abandon()
		return 0, false
	}
	total := func(endFront) endFront { return end }
	if err := s.out.finish(total, CopyOptions{GoesOn: goesOn}, s.out.replace); err != nil {
		return 0, false
	}
	return s.out.size, true
}

// again seals the whole recording anew.
func (s *shadow) again() error {
	if s.out != nil {
		_ = s.out.abandon()
		s.out = nil
	}
	r, err := Open(s.fs, s.path)
	if err != nil {
		return err
	}
	defer r.Close()
	if s.out, err = newSealed(s.fs, s.path); err != nil {
		return err
	}
	return r.copyTo(context.Background(), s.out.s)
}

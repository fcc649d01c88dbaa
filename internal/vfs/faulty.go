// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"io"
	"math"
	"sync"
	"syscall"
)

// Faulty is a file system whose operations fail when they are told to: the
// n-th one from now, or every write once the space is used up.
type Faulty struct {
	fs FS

	mu    sync.Mutex
	count int   // operations that changed or synced something so far
	at    int   // the operation that fails
	err   error // with this
	all   error // every operation fails with this
	space int64 // bytes that still fit
}

// NewFaulty wraps a file system. It fails nothing until told to.
func NewFaulty(fs FS) *Faulty {
	return &Faulty{fs: fs, space: math.MaxInt64}
}

// FailAt makes the n-th operation from now (1 is the next) fail with err.
// Operations are Create, Remove, Rename, Link, Mkdir, SyncDir, Write, Truncate
// and Sync.
func (f *Faulty) FailAt(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.err = f.count+n, err
}

// FailAll makes every operation fail with err, as on a disk that died or was
// mounted read-only, until it is called with nil.
func (f *Faulty) FailAll(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = err
}

// SetSpace leaves room for n more bytes. A write beyond them writes what
// fits and fails with ENOSPC, as a full disk does.
func (f *Faulty) SetSpace(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.space = n
}

// Count is the number of operations so far.
func (f *Faulty) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

func (f *Faulty) step() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count++; f.count == f.at {
		return f.err
	}
	return f.all
}

// take is how many of n bytes fit.
func (f *Faulty) take(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	fits := min(int64(n), max(f.space, 0))
	f.space -= fits
	return int(fits)
}

// Create implements FS.
func (f *Faulty) Create(name string) (File, error) {
	if err := f.step(); err != nil {
		return nil, err
	}
	file, err := f.fs.Create(name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{file, f}, nil
}

// Open implements FS. Reading does not fail.
func (f *Faulty) Open(name string) (File, error) { return f.fs.Open(name) }

// Remove implements FS.
func (f *Faulty) Remove(name string) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.fs.Remove(name)
}

// Rename implements FS.
func (f *Faulty) Rename(from, to string) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.fs.Rename(from, to)
}

// Link implements FS.
func (f *Faulty) Link(name, more string) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.fs.Link(name, more)
}

// List implements FS. Reading does not fail.
func (f *Faulty) List(dir string) ([]string, error) { return f.fs.List(dir) }

// Mkdir implements FS.
func (f *Faulty) Mkdir(dir string) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.fs.Mkdir(dir)
}

// Lock implements FS. It does not fail.
func (f *Faulty) Lock(name string) (io.Closer, error) { return f.fs.Lock(name) }

// Identify implements FS. Reading does not fail.
func (f *Faulty) Identify(name string) (ID, error) { return f.fs.Identify(name) }

// Space implements FS: what SetSpace has left, if that is less.
func (f *Faulty) Space(dir string) (total, free int64, err error) {
	total, free, err = f.fs.Space(dir)
	f.mu.Lock()
	defer f.mu.Unlock()
	return total, min(free, max(f.space, 0)), err
}

// SyncDir implements FS.
func (f *Faulty) SyncDir(dir string) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.fs.SyncDir(dir)
}

type faultyFile struct {
	File
	f *Faulty
}

func (w *faultyFile) Write(b []byte) (int, error) {
	if err := w.f.step(); err != nil {
		return 0, err
	}
	fits := w.f.take(len(b))
	n, err := w.File.Write(b[:fits])
	if err == nil && fits < len(b) {
		err = syscall.ENOSPC
	}
	return n, err
}

func (w *faultyFile) Truncate(size int64) error {
	if err := w.f.step(); err != nil {
		return err
	}
	return w.File.Truncate(size)
}

func (w *faultyFile) Sync() error {
	if err := w.f.step(); err != nil {
		return err
	}
	return w.File.Sync()
}

// SPDX-License-Identifier: Apache-2.0

// Package vfs is the seam between the store and the disk: the few file
// operations a recording needs, the operating system's (OS), one in memory
// that can crash (Mem) and one that fails on demand (Faulty).
//
// It knows nothing of what is written, and offers nothing that the store or
// its tests do not use.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process has taken a file.
var ErrLocked = errors.New("in use by another process")

// FS is a file system as far as recordings need one. Names are paths of the
// operating system. Errors satisfy errors.Is for fs.ErrExist, fs.ErrNotExist
// and the errno of the operation.
type FS interface {
	// Create makes a new file that is read and appended to. It never
	// touches a file that is already there: that is fs.ErrExist.
	Create(name string) (File, error)
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// Remove takes the name away.
	Remove(name string) error
	// Rename gives a file another name, in place of any file that has it.
	Rename(from, to string) error
	// Link gives a file one more name: fs.ErrExist if that is taken.
	Link(name, more string) error
	// List gives the names of the files within a directory, sorted and
	// without the directory.
	List(dir string) ([]string, error)
	// Mkdir makes a directory and those above it, where they are missing.
	Mkdir(dir string) error
	// Lock takes the file for this process until the closer is called, and
	// fails with ErrLocked where another process has it. The file is made if
	// it is missing, and stays.
	Lock(name string) (io.Closer, error)
	// Identify is what has the name at present, the end of links.
	Identify(name string) (ID, error)
	// Space is how many bytes the file system of a directory has in all,
	// and how many can still be written.
	Space(dir string) (total, free int64, err error)
	// SyncDir makes the names within the directory durable: a new file is
	// found after a crash only when its directory was synced.
	SyncDir(dir string) error
}

// ID tells a file or a directory from all others that are there at the time.
type ID struct {
	Device uint64 // the file system that it is on
	Inode  uint64
}

// File is an open file. Reads may run at the same time as one writer.
type File interface {
	io.ReaderAt
	// Write appends at the end. A short write has an error and leaves the
	// bytes it wrote.
	io.Writer
	// Truncate cuts the file to size bytes; the next Write follows there.
	Truncate(size int64) error
	// Sync returns when all that was written is on the disk.
	Sync() error
	// Size is the present length in bytes.
	Size() (int64, error)
	io.Closer
}

// OS is the file system of the operating system.
var OS FS = osFS{}

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	// O_APPEND: after a truncation the next write follows the new end.
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Open(name string) (File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }

func (osFS) Link(name, more string) error { return os.Link(name, more) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (osFS) Mkdir(dir string) error { return os.MkdirAll(dir, 0o755) }

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(&os.PathError{Op: "lock", Path: name, Err: err}, f.Close())
	}
	return f, nil // the lock goes with the descriptor, whatever ends the process
}

func (osFS) Identify(name string) (ID, error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return ID{}, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return ID{st.Dev, st.Ino}, nil
}

func (osFS) Space(dir string) (total, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	// Bavail: what is left without root's reserve.
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if st.IsDir() {
		return 0, fmt.Errorf("read %s: is a directory", f.Name())
	}
	return st.Size(), nil
}

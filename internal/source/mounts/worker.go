// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// worker asks one mount, in a goroutine that may hang.
type worker struct {
	mount     mount
	questions chan struct{}
	answers   chan said // holds one, so that the goroutine never waits for us

	// The reader's own.
	waiting bool // for the answer to a question
	hangs   bool // a read gave up waiting for it
	last    usage
	err     error
}

type said struct {
	usage usage
	err   error
}

// asker asks a mount. The path is its point, for the kernel.
type asker func(path []byte, m mount) (usage, error)

// cString is a string as the kernel wants it.
func cString(s string) []byte { return append([]byte(s), 0) }

func newWorker(m mount, ask asker) *worker {
	w := &worker{mount: m, questions: make(chan struct{}, 1), answers: make(chan said, 1)}
	go func() {
		path := cString(m.point)
		for range w.questions {
			u, err := ask(path, m)
			w.answers <- said{u, err}
		}
	}()
	return w
}

// begin asks, unless an answer is still to come.
func (w *worker) begin() {
	w.look()
	if !w.waiting {
		w.waiting = true
		w.questions <- struct{}{}
	}
}

// look takes an answer if there is one.
func (w *worker) look() {
	select {
	case a := <-w.answers:
		w.take(a)
	default:
	}
}

func (w *worker) take(a said) {
	w.waiting, w.hangs = false, false
	w.last, w.err = a.usage, a.err
}

var (
	errNotShown = errors.New("it has no space of its own to tell of")
	errCovered  = fmt.Errorf("another file system is mounted over it: %w", errNotShown)
)

// measure is what statfs says of a mount. A mount that another one hides is
// told by its number (statx(2), Linux 5.8): the path leads to the other.
//
// The calls are made directly, because package unix copies every path anew.
func measure(path []byte, m mount) (usage, error) {
	at := unix.AT_FDCWD
	fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(&path[0])), unix.O_PATH|unix.O_CLOEXEC, 0, 0, 0)
	if errno == unix.ENOENT {
		return usage{}, errCovered // with the folder that it is mounted on
	}
	if errno != 0 {
		return usage{}, errno
	}
	defer unix.Close(int(fd))
	var x unix.Statx_t
	_, _, errno = unix.Syscall6(unix.SYS_STATX, fd, uintptr(unsafe.Pointer(&path[len(path)-1])),
		unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, uintptr(unsafe.Pointer(&x)), 0)
	if errno != 0 {
		return usage{}, errno
	}
	if x.Mask&unix.STATX_MNT_ID != 0 && x.Mnt_id != m.id {
		return usage{}, errCovered
	}
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(fd), &s); err != nil {
		return usage{}, err
	}
	if s.Blocks == 0 && s.Files == 0 {
		return usage{}, errNotShown
	}
	// The unit of the counts is f_frsize (statvfs(3)), which some file
	// systems leave 0.
	unit := uint64(s.Frsize)
	if unit == 0 {
		unit = uint64(s.Bsize)
	}
	readOnly := uint64(s.Flags) & unix.ST_RDONLY
	return usage{s.Blocks * unit, s.Bfree * unit, s.Bavail * unit, s.Files, s.Ffree, readOnly}, nil
}

func readAt(f *os.File, b []byte, at int) (int, error) {
	for {
		n, err := unix.Pread(int(f.Fd()), b, int64(at))
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Folder is a folder with one file in it, on some file system.
type Folder struct {
	fd, file   int
	name       []byte // the file's path and a zero
	page, list []byte
}

// NewFolder makes dir and the file in it, which the test's end closes.
func NewFolder(t testing.TB, dir string) *Folder {
	t.Helper()
	name := filepath.Join(dir, "file")
	f := &Folder{name: append([]byte(name), 0), page: make([]byte, 4096), list: make([]byte, 4096)}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.file, err = unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(f.file) })
	if f.fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(f.fd) })
	return f
}

// Write writes a page n times, to the beginning of the file.
func (f *Folder) Write(n int) {
	for range n {
		PRead(unix.SYS_PWRITE64, f.file, f.page, 0)
	}
}

// Read reads a page n times.
func (f *Folder) Read(n int) {
	for range n {
		PRead(unix.SYS_PREAD64, f.file, f.page, 0)
	}
}

// Sync brings the file to its device n times.
func (f *Folder) Sync(n int) {
	for range n {
		raw(unix.SYS_FSYNC, uintptr(f.file), 0, 0)
	}
}

// Open opens the file n times, and closes it.
func (f *Folder) Open(n int) {
	const here = -100 // AT_FDCWD
	at := here
	for range n {
		fd := raw(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(&f.name[0])), unix.O_RDONLY)
		raw(unix.SYS_CLOSE, fd, 0, 0)
	}
}

// Stat asks n times what the file is.
func (f *Folder) Stat(n int) {
	var stat unix.Stat_t
	for range n {
		raw(unix.SYS_FSTAT, uintptr(f.file), uintptr(unsafe.Pointer(&stat)), 0)
	}
}

// List asks n times for the next names in the folder.
func (f *Folder) List(n int) {
	for range n {
		raw(unix.SYS_GETDENTS64, uintptr(f.fd), uintptr(unsafe.Pointer(&f.list[0])), uintptr(len(f.list)))
	}
}

// Mount mounts the device as a file system of a kind, until the test ends.
func (d *Disk) Mount(t testing.TB, kind string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount(filepath.Join("/dev", d.Name), dir, kind, 0, ""); err != nil {
		t.Fatalf("mount %s: %v", d.Name, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// Load gives the device its content, from the beginning.
func (d *Disk) Load(t testing.TB, content []byte) {
	t.Helper()
	if _, err := unix.Pwrite(d.memory, content, 0); err != nil {
		t.Fatalf("load %s: %v", d.Name, err)
	}
}

// Waiters is n threads that wait in read(2) for a pipe, until the test ends.
func Waiters(t testing.TB, n int) {
	t.Helper()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range n {
		all.Go(func() { _, _ = unix.Read(pipe[0], make([]byte, 1)) })
	}
	t.Cleanup(func() {
		unix.Close(pipe[1]) // the end of the file
		all.Wait()
		unix.Close(pipe[0])
	})
	call := fmt.Sprintf("%d %#x ", unix.SYS_READ, pipe[0])
	for {
		waiting := 0
		files, _ := filepath.Glob("/proc/self/task/*/syscall")
		for _, f := range files {
			if text, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(text), call) {
				waiting++
			}
		}
		if waiting == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

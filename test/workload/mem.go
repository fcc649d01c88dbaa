// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memory is a cgroup whose processes may have little memory, and no swap. It
// is removed after the test.
type Memory struct {
	// Path is the cgroup's path within the hierarchy that BPF programs
	// attribute to, as Cgroup's.
	Path string
	// Dir is its directory in the hierarchy of the memory controller.
	Dir string

	procs []int // open cgroup.procs files
}

// NewMemory makes the cgroup NAME with a limit in bytes.
func NewMemory(t testing.TB, name string, limit int) *Memory {
	t.Helper()
	m := &Memory{Path: fmt.Sprintf("/rezolus-memory-%d-%s", os.Getpid(), name)}
	mount, unified := memoryMount(t)
	mounts := map[string]bool{mount: true}
	for at := range maps.Values(cpuMounts(t)) {
		mounts[at] = true
	}
	for _, at := range slices.Sorted(maps.Keys(mounts)) {
		dir := filepath.Join(at, m.Path)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeCgroup(t, dir) })
		fd, err := unix.Open(filepath.Join(dir, "cgroup.procs"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		m.procs = append(m.procs, fd)
	}
	m.Dir = filepath.Join(mount, m.Path)
	file, swap := "memory.limit_in_bytes", ""
	if unified {
		file, swap = "memory.max", "memory.swap.max"
	}
	if err := write(filepath.Join(m.Dir, file), limit); err != nil {
		t.Fatal(err)
	}
	if swap != "" {
		if err := write(filepath.Join(m.Dir, swap), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return m
}

// memoryMount is where the memory controller is, and whether that is the
// unified hierarchy, in which it is switched on.
func memoryMount(t testing.TB) (mount string, unified bool) {
	t.Helper()
	text, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[2] == "cgroup" && strings.Contains(","+f[3]+",", ",memory,") {
			return f[1], false
		}
		if f[2] == "cgroup2" {
			mount = f[1]
		}
	}
	if mount == "" {
		t.Fatal("no memory controller is mounted")
	}
	if err := os.WriteFile(filepath.Join(mount, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
		t.Fatalf("switch on the memory controller: %v", err)
	}
	return mount, true
}

// Touch writes to each page in a process of its own inside the cgroup.
func (m *Memory) Touch(t testing.TB, pages []byte) unix.WaitStatus { return m.process(t, pages, 0, 0) }

// Read reads n pages of a file, one by one, in a process of its own inside the
// cgroup. The process ends with 1 where a page is not read whole.
func (m *Memory) Read(t testing.TB, fd, n int) unix.WaitStatus {
	return m.process(t, Pages(t, 1), fd, n)
}

func (m *Memory) process(t testing.TB, pages []byte, fd, n int) (status unix.WaitStatus) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid := raw(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
	if pid == 0 {
		child(m.procs, pages, fd, n)
	}
	for {
		if _, err := unix.Wait4(int(pid), &status, 0, nil); err != unix.EINTR {
			if err != nil {
				t.Fatal(err)
			}
			return status
		}
	}
}

var self = [1]byte{'0'} // to cgroup.procs: the process that writes it

// child is all that the process does. No function that it calls may look at the
// stack's limit: the runtime may have asked this goroutine to stop at that
// moment, and in the new process nobody would let it go on.
//
//go:nosplit
func child(procs []int, pages []byte, fd, n int) {
	var failed uintptr
	for _, p := range procs {
		syscall.RawSyscall(unix.SYS_WRITE, uintptr(p), uintptr(unsafe.Pointer(&self)), 1)
	}
	for i := 0; i < len(pages); i += 4096 {
		pages[i] = 1
	}
	for i := range n {
		r, _, _ := syscall.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&pages[0])), 4096, uintptr(i)*4096, 0, 0)
		if r != 4096 {
			failed = 1
		}
	}
	syscall.RawSyscall(unix.SYS_EXIT_GROUP, failed, 0, 0)
}

// Pages is n pages of memory that nobody touched, small ones, until the test
// ends.
func Pages(t testing.TB, n int) []byte {
	t.Helper()
	memory, err := unix.Mmap(-1, 0, n*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	// Without huge pages in the kernel there is nothing to advise against.
	_ = unix.Madvise(memory, unix.MADV_NOHUGEPAGE)
	return memory
}

// Touch writes to each page.
func Touch(pages []byte) {
	for i := 0; i < len(pages); i += 4096 {
		pages[i] = 1
	}
}

// Fill has the kernel write to each page: a read of a byte of /dev/zero.
func Fill(t testing.TB, pages []byte) func() {
	t.Helper()
	zero, err := unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(zero) })
	return func() {
		for i := 0; i < len(pages); i += os.Getpagesize() {
			raw(unix.SYS_READ, uintptr(zero), uintptr(unsafe.Pointer(&pages[i])), 1)
		}
	}
}

// Faults is how many page faults of the calling thread the kernel has counted:
// minor and major.
func Faults() (minor, major uint64) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		panic(err)
	}
	return uint64(usage.Minflt), uint64(usage.Majflt)
}

// Cached opens the disk for reading and writing through the page cache, with
// nothing of it cached and nothing read ahead.
func (d *Disk) Cached(t testing.TB) int {
	t.Helper()
	fd, err := unix.Open(filepath.Join("/dev", d.Name), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	const flush = 0x1261 // BLKFLSBUF, linux/fs.h
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), flush, 0); errno != 0 {
		t.Fatalf("flush %s: %v", d.Name, errno)
	}
	if err := unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM); err != nil {
		t.Fatal(err)
	}
	return fd
}

// ReadPages reads n pages one by one.
func ReadPages(fd, n int, to []byte) { eachPage(unix.SYS_PREAD64, fd, n, to) }

// WritePages writes n pages one by one.
func WritePages(fd, n int, from []byte) { eachPage(unix.SYS_PWRITE64, fd, n, from) }

func eachPage(call uintptr, fd, n int, b []byte) {
	for i := range n {
		if at := i * 4096; PRead(call, fd, b[:4096], at) != 4096 {
			panic("a page was not moved whole")
		}
	}
}

// PRead is one pread or pwrite, by its number.
func PRead(call uintptr, fd int, b []byte, at int) int {
	r, _, errno := unix.RawSyscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(at), 0, 0)
	if errno != 0 {
		panic(errno)
	}
	return int(r)
}

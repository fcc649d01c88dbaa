// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Disk is a block device of its own whose requests nobody else makes: a loop
// device over memory. It reads and writes past the page cache, so that each
// call is one request.
type Disk struct {
	Name string // loop7
	// Dev is its number, as the kernel has it: major << 20 | minor.
	Dev    uint64
	fd     int
	memory int // the file of it
	page   []byte
}

// NewDisk attaches size bytes of memory to a free loop device until the test
// ends.
func NewDisk(t testing.TB, size int64) *Disk {
	t.Helper()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	control, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must("open /dev/loop-control", err)
	defer unix.Close(control)
	d := &Disk{}
	d.memory, err = unix.MemfdCreate("disk", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	must("make memory", err)
	must("size memory", unix.Ftruncate(d.memory, size))
	for range 100 {
		number, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
		must("get a free loop device", err)
		d.Name = fmt.Sprintf("loop%d", number)
		d.fd, err = unix.Open(filepath.Join("/dev", d.Name), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
		must("open "+d.Name, err)
		if err = unix.IoctlSetInt(d.fd, unix.LOOP_SET_FD, d.memory); err != unix.EBUSY {
			must("attach "+d.Name, err)
			break
		}
		must("close", unix.Close(d.fd)) // another test had it since
		d.fd = -1
	}
	t.Cleanup(func() {
		must("detach "+d.Name, unix.IoctlSetInt(d.fd, unix.LOOP_CLR_FD, 0))
		must("close", unix.Close(d.fd))
		must("close", unix.Close(d.memory))
	})
	var stat unix.Stat_t
	must("stat", unix.Fstat(d.fd, &stat))
	d.Dev = uint64(unix.Major(uint64(stat.Rdev)))<<20 | uint64(unix.Minor(uint64(stat.Rdev)))
	// O_DIRECT wants memory that begins on a block.
	d.page, err = unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	must("map memory", err)
	t.Cleanup(func() { must("unmap", unix.Munmap(d.page)) })
	return d
}

// Occupy has all of the disk's memory taken at once, by the test. Where there is
// none yet, a read takes it too, and since Linux 5.14 the reader's cgroup pays.
func (d *Disk) Occupy(t testing.TB) {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Fstat(d.memory, &stat); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(d.memory, 0, 0, stat.Size); err != nil {
		t.Fatalf("take %d bytes of memory: %v", stat.Size, err)
	}
}

// Write makes n requests of size bytes each, one after the other from the
// device's beginning. Errors are what fails of them.
func (d *Disk) Write(n, size int) (failed int) { return d.each(unix.SYS_PWRITE64, n, size) }

// Read is Write's counterpart.
func (d *Disk) Read(n, size int) (failed int) { return d.each(unix.SYS_PREAD64, n, size) }

func (d *Disk) each(call uintptr, n, size int) (failed int) {
	for i := range n {
		r, _, errno := unix.RawSyscall6(call, uintptr(d.fd), uintptr(unsafe.Pointer(&d.page[0])), uintptr(size), uintptr(i*size), 0, 0)
		if errno != 0 || int(r) != size {
			failed++
		}
	}
	return failed
}

// Flush makes n flushes of the device's cache.
func (d *Disk) Flush(n int) {
	for range n {
		raw(unix.SYS_FSYNC, uintptr(d.fd), 0, 0)
	}
}

// Discard makes n requests that give up size bytes each.
func (d *Disk) Discard(n, size int) {
	for i := range n {
		region := [2]uint64{uint64(i * size), uint64(size)}
		raw(unix.SYS_IOCTL, uintptr(d.fd), unix.BLKDISCARD, uintptr(unsafe.Pointer(&region)))
	}
}

// Break makes every write fail from now on: the memory is sealed, so the loop
// device gets an error from it.
func (d *Disk) Break() error {
	_, err := unix.FcntlInt(uintptr(d.memory), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	return err
}

// Stat is the fields of /sys/block/NAME/stat (Documentation/block/stat.rst),
// the kernel's own count.
func (d *Disk) Stat(t testing.TB) (fields [17]uint64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/block", d.Name, "stat"))
	if err != nil {
		t.Fatal(err)
	}
	for i, at := 0, string(text); i < len(fields); i++ {
		var rest int
		if n, _ := fmt.Sscanf(at, "%d%n", &fields[i], &rest); n < 1 {
			break
		}
		at = at[rest:]
	}
	return fields
}

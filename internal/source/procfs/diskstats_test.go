// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
)

// diskLine has 17 numbers, from first on.
func diskLine(major, minor int, name string, first int) string {
	line := fmt.Sprintf("%4d %7d %s", major, minor, name)
	for i := range 17 {
		line += fmt.Sprintf(" %d", first+i)
	}
	return line + "\n"
}

// unused has done nothing.
func unused(major, minor int, name string) string {
	return fmt.Sprintf("%4d %7d %s%s\n", major, minor, name, strings.Repeat(" 0", 17))
}

type fakeDisks struct {
	*diskstats
	t           testing.TB
	path, class string
}

func newFakeDisks(t testing.TB, limit int) *fakeDisks {
	t.Helper()
	f := &fakeDisks{t: t, path: t.TempDir() + "/diskstats", class: t.TempDir()}
	f.write("")
	f.diskstats = opened[*diskstats](t)(openDiskstats(f.path, f.class, limit))
	return f
}

func (f *fakeDisks) write(lines ...string) {
	f.t.Helper()
	write(f.t, f.path, strings.Join(lines, ""))
}

func TestDiskColumns(t *testing.T) {
	f := newFakeDisks(t, 10)
	f.write(diskLine(8, 0, "sda", 1))
	const ms = 1_000_000
	want := map[string]uint64{
		"disk_operations sda disk read": 1, "disk_merges sda disk read": 2, "disk_bytes sda disk read": 3 * 512, "disk_time sda disk read": 4 * ms,
		"disk_operations sda disk write": 5, "disk_merges sda disk write": 6, "disk_bytes sda disk write": 7 * 512, "disk_time sda disk write": 8 * ms,
		"disk_in_flight sda disk": 9, "disk_busy_time sda disk": 10 * ms, "disk_queue_time sda disk": 11 * ms,
		"disk_operations sda disk discard": 12, "disk_merges sda disk discard": 13, "disk_bytes sda disk discard": 14 * 512, "disk_time sda disk discard": 15 * ms,
		"disk_operations sda disk flush": 16, "disk_time sda disk flush": 17 * ms,
	}
	if got := says(t, f); !equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	// Numbers of a kernel to come are passed over.
	f.write(strings.TrimSpace(diskLine(8, 0, "sda", 2)) + " 99 100\n")
	expect(t, says(t, f), map[string]int64{"disk_operations sda disk read": 2, "disk_time sda disk flush": 18 * ms})
}

func TestKindsOfDisks(t *testing.T) {
	f := newFakeDisks(t, 20)
	write(t, filepath.Join(f.class, "sda1/partition"), "1\n")
	write(t, filepath.Join(f.class, "dm-0/dm/name"), "vg-root\n")
	write(t, filepath.Join(f.class, "md127/md/level"), "raid1\n")
	f.write(diskLine(8, 0, "sda", 1), diskLine(8, 1, "sda1", 1), diskLine(253, 0, "dm-0", 1), diskLine(9, 127, "md127", 1),
		diskLine(7, 1, "loop1", 1), unused(7, 2, "loop2"), unused(1, 0, "ram0"), unused(252, 0, "zram0"), unused(8, 16, "sdb"))
	expect(t, says(t, f), map[string]int64{"disk_operations sda disk read": 1, "disk_operations sda1 partition read": 1,
		"disk_operations vg-root dm read": 1, "disk_operations md127 md read": 1, "disk_operations loop1 loop read": 1,
		"disk_operations loop2 loop read": -1, "disk_operations ram0 ram read": -1, "disk_operations zram0 ram read": -1,
		"disk_operations sdb disk read": 0})
	// What was never used and is used now counts from the time before.
	f.write(diskLine(7, 2, "loop2", 23))
	var frame metric.Frame
	if err := f.Read(&frame); err != nil || values(&frame)["disk_operations loop2 loop read"] != 23 {
		t.Errorf("read %v, %v", values(&frame), err)
	}
	if start := starts(t, &frame, "loop2"); start == 0 || start > f.roster.last {
		t.Errorf("a device that was not used counts from %d", start)
	}
}

// TestTimesOfDisksAreFullAfter50Days holds that times go on where 32 bits of
// milliseconds end, and that a step back is none of it.
func TestTimesOfDisksAreFullAfter50Days(t *testing.T) {
	f := newFakeDisks(t, 10)
	line := func(operations int, ms uint32) string {
		return fmt.Sprintf("8 0 sda %d 0 0 %d 0 0 0 0 0 0 0 0 0 0 0 0 0\n", operations, ms)
	}
	const read = "disk_time sda disk read"
	for _, step := range []struct {
		operations int
		ms         uint32
		want       uint64 // ms
	}{
		{1, 1<<32 - 10, 1<<32 - 10}, {2, 5, 1<<32 + 5}, {3, 3, 1<<32 + 5}, {4, 6, 1<<32 + 6},
		{3, 100, 0}, {4, 150, 50}, // operations fell: another disk, or a reset
	} {
		f.write(line(step.operations, step.ms))
		if got := says(t, f)[read]; got != step.want*millisecond {
			t.Errorf("with %d ms in the file it is %d ns, want %d ms", step.ms, got, step.want)
		}
	}
}

func TestOtherFormsOfDiskstatsAreErrors(t *testing.T) {
	f := newFakeDisks(t, 10)
	for _, text := range []string{"x\n", "8 0\n", "8 0 sda\n", "8 0 sda 1 2 3\n", "\n", "8 0sda" + strings.Repeat(" 1", 17)} {
		f.write(text)
		if err := f.Read(&metric.Frame{}); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// loopDevice is a block device of a file of 8 MiB (loop(4)).
func loopDevice(t testing.TB) (name string, fd int) {
	t.Helper()
	control, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		t.Skip("the kernel has no loop devices built in")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(control)
	file, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(8 << 20); err != nil {
		t.Fatal(err)
	}
	for err = unix.EBUSY; err == unix.EBUSY; { // another test may take what was free
		free, failed := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
		if failed != nil {
			t.Fatal(failed)
		}
		name = fmt.Sprintf("loop%d", free)
		if fd, err = unix.Open("/dev/"+name, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		err = unix.IoctlSetInt(fd, unix.LOOP_SET_FD, int(file.Fd()))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0); err != nil {
			t.Error(err)
		}
	})
	return name, fd
}

// aligned is memory for O_DIRECT.
func aligned(size int) []byte {
	const page = 4096
	b := make([]byte, size+page)
	return b[-uintptr(unsafe.Pointer(&b[0]))%page:][:size]
}

// TestTransfersAreCounted writes 23 times 64 KiB, reads 11 times 4 KiB and
// flushes 3 times, past the page cache.
func TestTransfersAreCounted(t *testing.T) {
	name, fd := loopDevice(t)
	s := opened[*diskstats](t)(openDiskstats("/proc/diskstats", "/sys/class/block", maxDisks))
	first := says(t, s)
	before := first
	block := aligned(64 << 10)
	for i := range 23 {
		if n, err := unix.Pwrite(fd, block, int64(i*len(block))); err != nil || n != len(block) {
			t.Fatal(n, err)
		}
	}
	for i := range 11 {
		if n, err := unix.Pread(fd, block[:4096], int64(i*4096)); err != nil || n != 4096 {
			t.Fatal(n, err)
		}
	}
	on := func(what, op string) string { return strings.TrimSpace("disk_" + what + " " + name + " loop " + op) }
	// The kernel may wake the caller a moment before it counts (blk_mq_end_request).
	counted := func(op string, want uint64) (after map[string]uint64) {
		for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
			if after = says(t, s); grown(before, after)[on("operations", op)] >= want {
				break
			}
		}
		return after
	}
	after := counted("read", 11)
	expect(t, grown(before, after), map[string]int64{
		on("operations", "write"): 23, on("bytes", "write"): 23 * 64 << 10, on("merges", "write"): 0,
		on("operations", "read"): 11, on("bytes", "read"): 11 * 4096, on("merges", "read"): 0,
		on("operations", "flush"): 0, on("operations", "discard"): 0, on("in_flight", ""): 0,
	})
	before = after
	for range 3 {
		if err := unix.Fsync(fd); err != nil {
			t.Fatal(err)
		}
	}
	after = counted("flush", 3)
	flushed := grown(before, after)
	expect(t, flushed, map[string]int64{on("operations", "flush"): 3, on("bytes", "write"): 0, on("operations", "read"): 0})
	if writes := flushed[on("operations", "write")]; writes != 0 && writes != 3 {
		t.Errorf("3 flushes are %d writes", writes)
	}
	spent := grown(first, after) // the device had other lives
	if busy, all := spent[on("busy_time", "")], spent[on("time", "write")]+spent[on("time", "read")]; all > 10*uint64(1e9) || busy > 10*uint64(1e9) {
		t.Errorf("%d ns busy, %d ns of all operations", busy, all)
	}
	allocates(t, s)
}

// TestDisksOfTheMachine compares with /sys, where each device has a file of its
// own (Documentation/block/stat.rst).
func TestDisksOfTheMachine(t *testing.T) {
	s := opened[*diskstats](t)(openDiskstats("/proc/diskstats", "/sys/class/block", maxDisks))
	got := says(t, s)
	for _, d := range s.roster.order {
		fields := strings.Fields(d.id)
		numbers := strings.Fields(readFile(t, "/sys/class/block/"+fields[2]+"/stat"))
		if len(numbers) != len(diskstatsColumns) {
			t.Fatalf("%s has %d numbers", fields[2], len(numbers))
		}
		var n uint64
		if _, err := fmt.Sscan(numbers[0], &n); err != nil {
			t.Fatal(err)
		}
		if value, ok := got[fmt.Sprintf("disk_operations %s %s read", d.label, d.kind)]; ok && value > n || !ok && n > 0 && d.shown {
			t.Errorf("%s: %d reads, %v; a moment later %d", d.label, value, ok, n)
		}
	}
}

func FuzzDiskstats(f *testing.F) {
	f.Add([]byte(diskLine(8, 0, "sda", 1) + unused(7, 1, "loop1")))
	f.Add([]byte("8 0 a/b 1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		class := filepath.Join(t.TempDir(), "none")
		r := roster{source: disks, columns: diskstatsColumns, key: "device", limit: 2, look: func(d *device) { lookAtDisk(d, class) }}
		r.begin()
		if parseDiskstats(&r, b) != nil {
			return
		}
		if err := r.end(&metric.Frame{}); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkDiskstats(b *testing.B) {
	benchmark(b, opened[*diskstats](b)(openDiskstats("/proc/diskstats", "/sys/class/block", maxDisks)))
}

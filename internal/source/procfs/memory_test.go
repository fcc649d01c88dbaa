// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/source"
)

// These tests do to the running kernel what its memory metrics count, and need
// root.

// somePages is how many pages a test takes: many against what others do in
// that time, and against what the kernel keeps back for each CPU.
const somePages = 20011

func sampled(t testing.TB, name string) *reader {
	t.Helper()
	for _, s := range Samplers() {
		if s.Name == name {
			return open(t, s.Open)
		}
	}
	t.Fatalf("there is no sampler %s", name)
	return nil
}

// patience is for how long the rest of the machine may be in the way.
const patience = 30 * time.Second

// undisturbed does f until it is so, at least five times: the rest of the
// machine moves what is measured too, but not each time.
func undisturbed(f func() bool) bool {
	for tries, end := 0, time.Now().Add(patience); tries < 5 || time.Now().Before(end); tries++ {
		if f() {
			return true
		}
	}
	return false
}

// gauged runs f and undo until what key shows is near want higher in between.
// Others use memory too.
func gauged(t *testing.T, r *reader, key string, want uint64, f, undo func()) {
	t.Helper()
	nearest := math.Inf(1)
	if !undisturbed(func() bool {
		before, is := r.says()[key]
		if !is {
			t.Fatalf("there is no %s", key)
		}
		f()
		grown := float64(int64(r.says()[key] - before))
		undo()
		nearest = min(nearest, math.Abs(grown-float64(want)))
		return nearest <= float64(want)/20
	}) {
		t.Errorf("%s is off by %.0f of %d", key, nearest, want)
	}
}

// grows runs f until key grows by not much more than want, and holds that it
// always grows by at least that.
func grows(t *testing.T, r *reader, key string, want uint64, f func()) {
	t.Helper()
	least := uint64(math.MaxUint64)
	if !undisturbed(func() bool {
		before, is := r.says()[key]
		if !is {
			t.Fatalf("there is no %s", key)
		}
		f()
		grown := r.says()[key] - before
		if grown < want {
			t.Errorf("%s grew by %d, want %d at least", key, grown, want)
		}
		least = min(least, grown)
		return least <= want+want/2
	}) {
		t.Errorf("%s grew by %d, want %d", key, least, want)
	}
}

// mapping is some anonymous memory in small pages.
func mapping(t testing.TB, flags int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, somePages*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|flags)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Madvise(b, unix.MADV_NOHUGEPAGE); err != nil && err != unix.EINVAL { // a kernel without hugepages
		t.Fatal(err)
	}
	return b
}

func touch(b []byte) {
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
}

func unmap(t testing.TB, b []byte) {
	if err := unix.Munmap(b); err != nil {
		t.Error(err)
	}
}

func TestMeminfoOfTheMachine(t *testing.T) {
	r := sampled(t, meminfo)
	got := r.says()
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	unit := uint64(info.Unit)
	if got["memory_total"] != info.Totalram*unit || got["memory_swap_total"] != info.Totalswap*unit {
		t.Errorf("memory_total %d, memory_swap_total %d; sysinfo(2) says %d, %d", got["memory_total"], got["memory_swap_total"],
			info.Totalram*unit, info.Totalswap*unit)
	}
	if free := got["memory_free"]; free > got["memory_total"] || free == 0 || got["memory_available"] > got["memory_total"] {
		t.Errorf("memory_free %d, memory_available %d of %d", free, got["memory_available"], got["memory_total"])
	}
	allocatesNothing(t, r)
}

func TestMeminfoFollowsMemory(t *testing.T) {
	r := sampled(t, meminfo)
	size := uint64(somePages * os.Getpagesize())
	var b []byte
	gauged(t, r, "memory_anon_pages", size, func() { b = mapping(t, 0); touch(b) }, func() { unmap(t, b) })
	gauged(t, r, "memory_mlocked", size, func() {
		b = mapping(t, 0)
		if err := unix.Mlock(b); err != nil {
			t.Fatal(err)
		}
	}, func() { unmap(t, b) })
	var fd int
	gauged(t, r, "memory_shmem", size, func() {
		var err error
		if fd, err = unix.MemfdCreate("test", unix.MFD_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		if err := unix.Fallocate(fd, 0, 0, int64(size)); err != nil {
			t.Fatal(err)
		}
	}, func() { unix.Close(fd) })
}

func TestHugepagesAreCounted(t *testing.T) {
	const file = "/proc/sys/vm/nr_hugepages"
	number := func() uint64 {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	set := func(n uint64) {
		if err := os.WriteFile(file, []byte(fmt.Sprint(n)), 0o644); err != nil {
			t.Error(err)
		}
	}
	before := number()
	t.Cleanup(func() { set(before) })
	set(before + 3)
	want := number() // as many as the kernel could make
	if want == before {
		t.Fatal("the kernel made no hugepage")
	}
	got := sampled(t, meminfo).says()
	if got["memory_hugepages_total"] != want || got["memory_hugepages_free"] < want-before {
		t.Errorf("%d hugepages, %d free; want %d", got["memory_hugepages_total"], got["memory_hugepages_free"], want)
	}
	if held := want * got["memory_hugepage_size"]; got["memory_hugetlb"] < held {
		t.Errorf("memory_hugetlb is %d, and hugepages of the default size alone are %d", got["memory_hugetlb"], held)
	}
}

func TestFaultsAreCounted(t *testing.T) {
	r := sampled(t, vmstat)
	work := func() { b := mapping(t, 0); touch(b); unmap(t, b) }
	grows(t, r, "memory_page_faults minor", somePages, work)
	// Before Linux 5.14 each CPU keeps its figures of NUMA back for a second.
	gathered := func() {
		work()
		if err := os.WriteFile("/proc/sys/vm/stat_refresh", []byte("1"), 0); err != nil {
			t.Error(err)
		}
	}
	grows(t, r, "memory_numa_hit", somePages, gathered)
	grows(t, r, "memory_numa_local", somePages, gathered)
	grows(t, r, "memory_freed", somePages-100, work) // some are given back later
	allocatesNothing(t, r)
}

// TestDisksAreCounted writes a file, has it dropped from memory and faults it
// in again, a page at a time.
func TestDisksAreCounted(t *testing.T) {
	dir := t.TempDir()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC {
		t.Skip("temporary files are in memory, not on a disk")
	}
	r := sampled(t, vmstat)
	const size = 4099
	bytes := uint64(size * os.Getpagesize())
	path := filepath.Join(dir, "file")
	before := r.says()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	after := r.says()
	for _, key := range []string{"memory_dirtied", "memory_written", "memory_paged out"} {
		// Of some counters each CPU keeps up to 125 pages back (mm/vmstat.c).
		if grown := after[key] - before[key]; grown < bytes-bytes/10 {
			t.Errorf("%s grew by %d, want %d", key, grown, bytes)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unmap(t, b)
	if err := unix.Madvise(b, unix.MADV_RANDOM); err != nil { // no reading ahead
		t.Fatal(err)
	}
	before, faults := r.says(), majorFaults(t)
	for i := 0; i < len(b); i += os.Getpagesize() {
		sink += uint64(b[i])
	}
	want := majorFaults(t) - faults
	after = r.says()
	if want < size/2 {
		t.Fatalf("only %d of %d pages had to be read from the disk", want, size)
	}
	if grown := after["memory_page_faults major"] - before["memory_page_faults major"]; grown < want {
		t.Errorf("%d major faults, and getrusage(2) says %d of this thread", grown, want)
	}
	if grown := after["memory_paged in"] - before["memory_paged in"]; grown < want*uint64(os.Getpagesize()) {
		t.Errorf("%d bytes were read, want %d pages", grown, want)
	}
}

func majorFaults(t testing.TB) uint64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return uint64(u.Majflt)
}

func TestNodesOfTheMachine(t *testing.T) {
	r := sampled(t, numa)
	total := func(name string) (n uint64) {
		for key, v := range r.says() {
			if strings.HasPrefix(key, name+" ") {
				n += v
			}
		}
		return n
	}
	for node, err := range glob("/sys/devices/system/node/node[0-9]*") {
		if err != nil {
			t.Fatal(err)
		}
		id := strings.TrimPrefix(filepath.Base(node), "node")
		if got, want := r.says()["memory_node_total "+id], fileValues(t, node+"/meminfo")["MemTotal"]; got != want || want == 0 {
			t.Errorf("node %s has %d bytes, its file says %d", id, got, want)
		}
	}
	size := uint64(somePages * os.Getpagesize())
	var hits, anon uint64
	undisturbed(func() bool { // what others free meanwhile is in the same sums
		hitsBefore, anonBefore := total("memory_node_numa_hit"), total("memory_node_anon_pages")
		b := mapping(t, 0)
		touch(b)
		hits, anon = total("memory_node_numa_hit")-hitsBefore, total("memory_node_anon_pages")-anonBefore
		unmap(t, b)
		return hits >= somePages && anon >= size-size/10 && anon <= 2*size
	})
	if hits < somePages {
		t.Errorf("%d pages were allocated, want %d", hits, somePages)
	}
	if anon < size-size/10 || anon > 2*size {
		t.Errorf("anonymous memory grew by %d, want %d", anon, size)
	}
	allocatesNothing(t, r)
}

func glob(pattern string) func(func(string, error) bool) {
	return func(yield func(string, error) bool) {
		paths, err := filepath.Glob(pattern)
		if err == nil && len(paths) == 0 {
			err = fmt.Errorf("there is no %s", pattern)
		}
		if err != nil {
			yield("", err)
			return
		}
		for _, path := range paths {
			if !yield(path, nil) {
				return
			}
		}
	}
}

func TestNodesComeAndGo(t *testing.T) {
	dir := t.TempDir()
	node := func(n int, total uint64) {
		rewrite(t, fmt.Sprintf("%s/node%d/meminfo", dir, n), fmt.Sprintf("Node %d MemTotal:  %d kB\nNode %d FilePages: 2 kB\nNode %d Active(anon): 5 kB\n", n, total, n, n))
		rewrite(t, fmt.Sprintf("%s/node%d/numastat", dir, n), "numa_hit 3\ninterleave_hit 1\n")
	}
	rewrite(t, dir+"/online", "0\n")
	node(0, 1)
	node(2, 7)
	r := open(t, func() (source.Source, error) { return NewNuma(dir) })
	want := map[string]uint64{"memory_node_total 0": 1024, "memory_node_file_pages 0": 2048, "memory_node_active 0 anon": 5120,
		"memory_node_numa_hit 0": 3, "memory_node_numa_interleave 0": 1}
	r.wants(want)
	rewrite(t, dir+"/online", "0,2\n")
	for key, n := range want {
		want[strings.Replace(key, " 0", " 2", 1)] = n
	}
	want["memory_node_total 2"] = 7 << 10
	r.wants(want)
	rewrite(t, dir+"/online", "2\n")
	for key := range want {
		if strings.Contains(key, " 0") {
			delete(want, key)
		}
	}
	r.wants(want)
	if _, err := NewNuma(t.TempDir()); err == nil {
		t.Error("a machine without nodes is accepted")
	}
}

func TestFreeBlocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "buddyinfo")
	rewrite(t, path, "Node 0, zone      DMA      0      1      3 \nNode 1, zone   Normal   4459      0     71 \n")
	r := open(t, func() (source.Source, error) { return NewBuddyinfo(path) })
	r.wants(map[string]uint64{"memory_free_blocks 0 0 DMA": 0, "memory_free_blocks 0 1 DMA": 1, "memory_free_blocks 0 2 DMA": 3,
		"memory_free_blocks 1 0 Normal": 4459, "memory_free_blocks 1 1 Normal": 0, "memory_free_blocks 1 2 Normal": 71})
	rewrite(t, path, "Node 1, zone   Normal   4460      1\n")
	r.wants(map[string]uint64{"memory_free_blocks 1 0 Normal": 4460, "memory_free_blocks 1 1 Normal": 1})
	for _, text := range []string{"", "Node 0, zone DMA\n", "Node 0, zone DMA x\n", "Node 0 zone\n", "Node 0, zone A 1\nNode 0, zone A 1\n"} {
		rewrite(t, path, text)
		if err := r.Read(&r.frame); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestFreeBlocksAreTheFreeMemory adds the blocks up. Those of each CPU's own
// lists are free too and are in no block.
func TestFreeBlocksAreTheFreeMemory(t *testing.T) {
	r := sampled(t, buddyinfo)
	var sum float64
	for key, n := range r.says() {
		words := strings.Fields(key)
		order, err := strconv.Atoi(words[2])
		if err != nil {
			t.Fatal(err)
		}
		sum += float64(n<<order) * float64(os.Getpagesize())
	}
	free := float64(fileValues(t, "/proc/vmstat")["nr_free_pages"]) * float64(os.Getpagesize())
	if math.Abs(sum-free) > free/20 {
		t.Errorf("blocks of %.0f bytes, and %.0f are free", sum, free)
	}
	allocatesNothing(t, r)
}

func FuzzBuddyinfo(f *testing.F) {
	f.Add([]byte("Node 0, zone      DMA      0      1      3 \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &Buddyinfo{}
		if s.learn(text) != nil {
			return
		}
		to := make([]uint64, 0, s.schema.Words)
		if s.parse(text, to) {
			to = to[:cap(to)]
		}
		if s.schema.Words == 0 {
			t.Error("zones without orders")
		}
	})
}

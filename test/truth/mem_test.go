// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/bpf"
	"rezolus/internal/hist"
	"rezolus/test/workload"
)

func TestAnOOMKillIsTheVictimsCgroups(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "mem/mem", h, "memory_oom")
		c := workload.NewMemory(t, "oom", 16<<20)
		m.await(c.Path)
		pages := workload.Pages(t, 64<<20/os.Getpagesize())
		undisturbed(t, func(b *books) { // others may be short too
			before := m.read()
			status := c.Touch(t, pages)
			if !status.Signaled() || status.Signal() != unix.SIGKILL {
				t.Fatalf("a process that needs 64 MiB of 16 ended with %v", status)
			}
			d := m.read().since(before)
			d.want(t, "cgroup_memory_oom_kills{name="+c.Path+"}", 1)
			b.want(d, "memory_oom_kills", 1)
			b.same("kills in the cgroups", d.total("cgroup_memory_oom_kills"), d.count(t, "memory_oom_kills"))
		})
	})
}

// scarce fills the page cache of a cgroup that may have little of it, with a
// disk of 64 MiB.
func scarce(t *testing.T, c *workload.Memory, fd int) {
	t.Helper()
	status := c.Read(t, fd, 64<<20/4096)
	if status.ExitStatus() != 0 || status.Signaled() {
		t.Fatalf("reading in little memory ended with %v", status)
	}
}

func TestReclaimInACgroupIsItsOwn(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "mem/mem", h, "memory_reclaim")
		c := workload.NewMemory(t, "reclaim", 16<<20)
		m.await(c.Path)
		disk := workload.NewDisk(t, 64<<20)
		disk.Occupy(t)
		fd := disk.Cached(t)
		undisturbed(t, func(b *books) {
			before, began := m.read(), time.Now()
			scarce(t, c, fd)
			took := uint64(time.Since(began))
			d := m.read().since(before)
			of := "{kind=cgroup,name=" + c.Path + "}"
			times, spent := d.count(t, "cgroup_memory_reclaims"+of), d.count(t, "cgroup_memory_reclaim_time"+of)
			// 48 MiB must go, and the kernel reclaims some pages at a time:
			// SWAP_CLUSTER_MAX (32) or MEMCG_CHARGE_BATCH (64), with some luck
			// more of them.
			if times < 48<<20/4096/1024 || times > 48<<20/4096 {
				t.Errorf("48 MiB were reclaimed in %d times", times)
			}
			if spent < times*1000 || spent > took {
				t.Errorf("%d reclaims took %d ns of %d", times, spent, took)
			}
			if timed := d.count(t, "memory_reclaim_latency{kind=cgroup}"); timed < times {
				t.Errorf("%d reclaims in the cgroup, %d timed in all", times, timed)
			}
			lost := d.total("memory_reclaim_discarded_samples")
			b.same("reclaims in the cgroups", d.total("cgroup_memory_reclaims"), d.total("memory_reclaim_latency")+lost)
			b.same("reclaims not timed", lost, 0)
		})
	})
}

// TestReclaimOfTheMachineIsDirect asks for more huge pages than there is
// memory, which only a machine of the test's own can bear.
func TestReclaimOfTheMachineIsDirect(t *testing.T) {
	if os.Getenv("REZOLUS_VM") == "" {
		t.Skip("the machine would run out of memory")
	}
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "mem/mem", h, "memory_reclaim")
		before := m.read()
		for _, n := range []string{"2000", "0"} {
			if err := os.WriteFile("/proc/sys/vm/nr_hugepages", []byte(n), 0); err != nil {
				t.Fatal(err)
			}
		}
		d := m.read().since(before)
		if n := d.count(t, "memory_reclaim_latency{kind=direct}"); n == 0 {
			t.Error("nothing was reclaimed for more huge pages than there is memory")
		}
	})
}

// zones is the number of zones that have memory.
func zones(t *testing.T) (n uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/zoneinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "present" && f[1] != "0" {
			n++
		}
	}
	return n
}

func TestEachZoneIsCompacted(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "mem/mem", h, "memory_compaction")
		c := m.cgroup("compact")
		undisturbed(t, func(b *books) {
			before, began := m.read(), time.Now()
			c.Thread(t, func() {
				if err := os.WriteFile("/proc/sys/vm/compact_memory", []byte("1"), 0); err != nil {
					t.Error(err)
				}
			})
			took := uint64(time.Since(began))
			d := m.read().since(before)
			want, series := zones(t), "memory_compaction_latency"
			if got := d.count(t, series); got < want {
				t.Errorf("%d compactions, there are %d zones", got, want)
			}
			b.within(series, d.count(t, series), want, want+20) // kcompactd may be at it too
			d.within(t, "cgroup_memory_compaction_time{name="+c.Path+"}", want*100, took)
			b.want(d, "memory_compaction_discarded_samples", 0)
		})
	})
}

func TestWritebackIsTimed(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "mem/mem", h, "memory_writeback")
		fd := workload.NewDisk(t, 1<<20).Cached(t)
		page := workload.Pages(t, 1)
		before, began := m.read(), time.Now()
		const series = "memory_writeback_latency"
		var d reading
		for d.total(series) == 0 && time.Since(began) < patience {
			workload.WritePages(fd, 17, page)
			unix.Sync() // has the kernel's own threads write, too
			d = m.read().since(before)
		}
		took := uint64(time.Since(began))
		if d.count(t, series) == 0 {
			t.Fatal("dirty pages were written in no round")
		}
		lo, _ := hist.Default.SumBounds(d[series])
		if lo > float64(took)*float64(runtime.NumCPU()+8) {
			t.Errorf("writeback took %.0f ns of %d", lo, took)
		}
	})
}

func TestFaultsRaisedByTheCPU(t *testing.T) {
	onX86(t, "mem/mem", "memory_fault_exceptions", func(t *testing.T, m *meter) {
		c := m.cgroup("exceptions")
		touched, filled := workload.Pages(t, 101), workload.Pages(t, 37)
		fill := workload.Fill(t, filled)
		of := func(mode string) string {
			return "cgroup_memory_fault_exceptions{mode=" + mode + ",name=" + c.Path + "}"
		}
		var counted uint64
		before := m.read()
		c.Thread(t, func() {
			minor, major := workload.Faults()
			workload.Touch(touched)
			fill()
			minorAfter, majorAfter := workload.Faults()
			counted = minorAfter + majorAfter - minor - major
		})
		d := m.read().since(before)
		// The thread itself needs a few pages to begin and to end.
		d.within(t, of("user"), 101, counted-37+20)
		d.within(t, of("kernel"), 37, counted-101+20)
		if counted < 138 {
			t.Errorf("the kernel counted %d faults; the workload is wrong", counted)
		}
	})
}

func TestFaultsAreMinorOrMajor(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := function(t, "mem/mem", h, "memory_fault_latency")
		if m == nil {
			return
		}
		c := m.cgroup("faults")
		disk := workload.NewDisk(t, 1<<20)
		file, err := unix.Mmap(disk.Cached(t), 0, 31*4096, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(file)
		if err := unix.Madvise(file, unix.MADV_RANDOM); err != nil {
			t.Fatal(err)
		}
		pages := workload.Pages(t, 101)
		var minor, major uint64
		var sum byte
		before := m.read()
		c.Thread(t, func() {
			minor, major = workload.Faults()
			workload.Touch(pages)
			for i := 0; i < len(file); i += 4096 {
				sum += file[i]
			}
			minorAfter, majorAfter := workload.Faults()
			minor, major = minorAfter-minor, majorAfter-major
		})
		d := m.read().since(before)
		of := func(kind string) string { return "cgroup_memory_page_faults{kind=" + kind + ",name=" + c.Path + "}" }
		if minor < 101 || major != 31 {
			t.Fatalf("the kernel counted %d minor and %d major faults (%d); the workload is wrong", minor, major, sum)
		}
		d.within(t, of("minor"), minor, minor+20)
		d.want(t, of("major"), 31)
		for _, kind := range []string{"minor", "major"} {
			series := "memory_page_fault_latency{kind=" + kind + "}"
			if timed := d.count(t, series); timed < d.count(t, of(kind)) {
				t.Errorf("%s has %d values, the cgroup alone %d", series, timed, d.count(t, of(kind)))
			}
		}
		if lost := d.total("memory_fault_discarded_samples"); lost > 5 {
			t.Errorf("%d faults were not timed", lost)
		}
	})
}

func TestPageCacheMisses(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "mem/mem", h, "memory_page_cache")
		c := m.cgroup("misses")
		fd := workload.NewDisk(t, 1<<20).Cached(t)
		page := workload.Pages(t, 1)
		misses := func(work func()) uint64 {
			before := m.read()
			c.Thread(t, work)
			d := m.read().since(before)
			n := d.count(t, "cgroup_memory_page_cache_misses{name="+c.Path+"}")
			if all := d.count(t, "memory_page_cache_misses"); all < n {
				t.Errorf("%d misses on the machine, %d in the cgroup", all, n)
			}
			return n
		}
		if n := misses(func() { workload.ReadPages(fd, 31, page) }); n != 31 {
			t.Errorf("reading 31 pages that are not cached: %d misses", n)
		}
		if n := misses(func() { workload.ReadPages(fd, 31, page) }); n != 0 {
			t.Errorf("reading them again: %d misses", n)
		}
		if n := misses(func() { workload.WritePages(fd, 48, page) }); n != 17 {
			t.Errorf("writing 48 pages of which 31 are cached: %d misses", n)
		}
	})
}

func TestPageCacheReads(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		if !tracepoint("mm_filemap_get_pages") {
			unsupported(t, "mem/mem", h, "memory_page_cache_reads")
			return
		}
		m := startSome(t, "mem/mem", h, "memory_page_cache_reads")
		c := m.cgroup("reads")
		fd := workload.NewDisk(t, 1<<20).Cached(t)
		memory := workload.Pages(t, 512)
		for _, read := range []struct {
			what string
			want uint64
			do   func()
		}{
			{"31 pages that are not cached", 31, func() { workload.ReadPages(fd, 31, memory) }},
			{"31 cached pages", 31, func() { workload.ReadPages(fd, 31, memory) }},
			{"256 pages at once", 256, func() { workload.PRead(unix.SYS_PREAD64, fd, memory[:1<<20], 0) }},
			{"more than there is", 6, func() { workload.PRead(unix.SYS_PREAD64, fd, memory, 250*4096) }},
			{"two bytes in two pages", 2, func() { workload.PRead(unix.SYS_PREAD64, fd, memory[:2], 4095) }},
		} {
			before := m.read()
			c.Thread(t, read.do)
			d := m.read().since(before)
			got := d.count(t, "cgroup_memory_page_cache_reads{name="+c.Path+"}")
			// Between two batches of pages another may read on that CPU:
			// then the rest of the read counts again.
			if got < read.want || got > read.want && read.want != 256 {
				t.Errorf("reading %s: %d pages, want %d", read.what, got, read.want)
			}
		}
	})
}

// tracepoint tells whether this kernel has it, by its BTF.
func tracepoint(name string) bool {
	found, err := filepath.Glob("/sys/kernel/tracing/events/*/" + name)
	if err == nil && len(found) > 0 {
		return true
	}
	text, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	return err == nil && strings.Contains(string(text), fmt.Sprintf("\x00btf_trace_%s\x00", name))
}

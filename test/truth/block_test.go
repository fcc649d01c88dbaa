// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"path"
	"strings"
	"testing"
	"time"

	"rezolus/internal/bpf"
	"rezolus/test/workload"
)

// completed waits until what the disk was asked for is done: the kernel may
// wake the caller a moment before the tracepoint's program is through.
func completed(t *testing.T, m *meter, before reading, series string, want uint64) reading {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		d := m.read().since(before)
		if words, ok := d[series]; ok && words[0] >= want || time.Now().After(deadline) {
			return d
		}
		time.Sleep(time.Millisecond)
	}
}

// disk makes a disk whose requests are told apart: a device that is new to the
// kernel gets its place a moment later.
func (m *meter) disk(t *testing.T, size int64) *workload.Disk {
	t.Helper()
	d := workload.NewDisk(t, size)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if failed := d.Read(1, 4096); failed != 0 {
			t.Fatalf("read %s: failed", d.Name)
		}
		for series := range m.read() {
			if strings.Contains(series, "device="+d.Name+",") {
				return d
			}
		}
	}
	t.Fatalf("disk %s got no slot", d.Name)
	return nil
}

func TestRequestsAreCountedByDiskAndOperation(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := start(t, "block/block", h)
		disk := m.disk(t, 8<<20)
		c := m.cgroup("block")
		before := m.read()
		var failed int
		c.Thread(t, func() {
			failed = disk.Write(101, 4096) + disk.Read(37, 8192)
			disk.Discard(3, 1<<20)
			disk.Flush(5)
		})
		if failed != 0 {
			t.Fatalf("%d requests failed", failed)
		}
		of := func(name, op string) string { return name + "{device=" + disk.Name + ",op=" + op + "}" }
		d := completed(t, m, before, of("blockio_operations", "flush"), 5)
		for op, want := range map[string]struct{ n, bytes uint64 }{
			"write": {101, 101 * 4096}, "read": {37, 37 * 8192}, "discard": {3, 3 << 20}, "flush": {5, 0}, "other": {0, 0},
		} {
			d.want(t, of("blockio_operations", op), want.n)
			d.want(t, of("blockio_issued", op), want.n)
			d.want(t, of("blockio_bytes", op), want.bytes)
			d.want(t, of("blockio_latency", op), want.n)
			d.want(t, of("blockio_queue_latency", op), want.n)
			d.want(t, of("blockio_request_latency", op), want.n)
			d.want(t, of("blockio_requeues", op), 0)
			sized := want.n
			if want.bytes == 0 {
				sized = 0
			}
			d.want(t, of("blockio_size", op), sized)
			if op == "read" || op == "write" { // the kernel's own workers hand it the others
				// Where the io controller is on it knows no threads: the
				// kernel charges the domain that the cgroup lies in.
				both := func(name string) uint64 {
					domain := d[name+"{name="+path.Dir(c.Path)+",op="+op+"}"]
					return d.count(t, name+"{name="+c.Path+",op="+op+"}") + append(domain, 0)[0]
				}
				if n, bytes := both("cgroup_blockio_operations"), both("cgroup_blockio_bytes"); n != want.n || bytes != want.bytes {
					t.Errorf("the cgroup had %d operations %s of %d bytes, want %d of %d", n, op, bytes, want.n, want.bytes)
				}
			}
			d.want(t, "blockio_errors{device="+disk.Name+",error=io,op="+op+"}", 0)
		}
		undisturbed(t, func(b *books) {
			before := m.read()
			if failed := disk.Write(11, 4096); failed != 0 {
				t.Fatalf("%d of 11 writes failed", failed)
			}
			d := completed(t, m, before, of("blockio_operations", "write"), 11)
			for name, least := range map[string]uint64{"blockio_operations": 11, "blockio_bytes": 11 * 4096} {
				disks, cgroups := d.total(name), d.total("cgroup_"+name)
				if disks < least {
					t.Errorf("%s of all disks is %d, of this one %d", name, disks, least)
				}
				b.near(name+" of the disks and of the cgroups", disks, cgroups, 0)
			}
			b.same("requests not timed", d.total("blockio_discarded_samples"), 0)
		})
	})
}

func TestFailedRequestsAreCounted(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := start(t, "block/block", h)
		disk := m.disk(t, 1<<20)
		if err := disk.Break(); err != nil {
			t.Fatal(err)
		}
		before := m.read()
		if failed := disk.Write(7, 4096); failed != 7 {
			t.Fatalf("%d of 7 writes failed", failed)
		}
		d := completed(t, m, before, "blockio_errors{device="+disk.Name+",error=io,op=write}", 7)
		d.want(t, "blockio_errors{device="+disk.Name+",error=io,op=write}", 7)
		d.want(t, "blockio_operations{device="+disk.Name+",op=write}", 7)
	})
}

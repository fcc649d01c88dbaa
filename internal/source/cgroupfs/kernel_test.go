// SPDX-License-Identifier: Apache-2.0

package cgroupfs

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/test/workload"
)

// These tests read the cgroups of the running kernel and need root.

func hierarchy(t testing.TB) host.Hierarchy {
	t.Helper()
	h := host.CgroupMode()
	if h.CPUAcct == "" {
		t.Fatalf("cgroups: %s; this test needs one that counts CPU time", h)
	}
	return h
}

func tracked(t testing.TB, h host.Hierarchy) *host.Cgroups {
	t.Helper()
	groups, err := host.TrackCgroups(host.CgroupOptions{Mount: h.Mount})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := groups.Close(); err != nil {
			t.Error(err)
		}
	})
	return groups
}

// usage is the CPU time of the calling thread by state (getrusage(2)).
func usage(t testing.TB) (ns [len(cpuStates)]int64) {
	t.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &r); err != nil {
		t.Fatal(err)
	}
	return [...]int64{r.Utime.Nano(), r.Stime.Nano()}
}

// zeros spends time in the kernel: it has 64 KiB cleared again and again.
func zeros(t testing.TB, d time.Duration) {
	fd, err := unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer unix.Close(fd)
	buf := make([]byte, 64<<10)
	for end := workload.ThreadCPU() + int64(d); workload.ThreadCPU() < end; {
		for range 100 {
			if _, err := unix.Read(fd, buf); err != nil {
				t.Error(err)
				return
			}
		}
	}
}

// TestAgainstGetrusage runs a thread alone in a cgroup and compares.
func TestAgainstGetrusage(t *testing.T) {
	h := hierarchy(t)
	groups := tracked(t, h)
	cgroup := workload.NewCgroup(t, "usage")
	c := closing(t, NewCPU(groups, h.CPUAcct, h.V1(), 0))
	var want [len(cpuStates)]int64
	cgroup.Thread(t, func() {
		before := usage(t)
		workload.Burn(700 * time.Millisecond)
		zeros(t, 700*time.Millisecond)
		for i, after := range usage(t) {
			want[i] = after - before[i]
		}
	})
	var f metric.Frame
	got := read(t, c, &f)
	// Both split by the tick, each with its own remainder; in v1 the sum is
	// sampled too, and other load on the CPU makes the samples vary.
	slack := float64(100 * time.Millisecond)
	if h.V1() {
		slack = float64(350 * time.Millisecond)
	}
	var sum, wantSum float64
	for i, state := range cpuStates {
		ns := float64(got["cgroup_cpu_usage "+cgroup.Path+" "+state])
		t.Logf("%s: %.1f ms, getrusage %.1f ms", state, ns/1e6, float64(want[i])/1e6)
		if d := ns - float64(want[i]); d < -slack || d > slack {
			t.Errorf("%s is %.1f ms off", state, d/1e6)
		}
		sum, wantSum = sum+ns, wantSum+float64(want[i])
	}
	// The group has the thread's beginning and end too.
	if exact := float64(30 * time.Millisecond); !h.V1() && (sum < wantSum-exact || sum > wantSum+exact) {
		t.Errorf("%.1f ms in all, getrusage %.1f ms", sum/1e6, wantSum/1e6)
	}
}

// TestAVanishedGroupEndsOnlyItself removes a group that the tracker has not
// heard of yet.
func TestAVanishedGroupEndsOnlyItself(t *testing.T) {
	h := hierarchy(t)
	name := fmt.Sprintf("/rezolus-cgroupfs-%d", os.Getpid())
	if err := os.Mkdir(h.CPUAcct+name, 0o755); err != nil {
		t.Fatalf("%v: this test needs root", err)
	}
	groups := &told{}
	groups.set(host.Cgroup{ID: 1, Path: "/"}, host.Cgroup{ID: 2, Path: name, Born: 1})
	c := closing(t, NewCPU(groups, h.CPUAcct, h.V1(), 0))
	var f metric.Frame
	got := read(t, c, &f)
	if _, there := got["cgroup_cpu_usage "+name+" user"]; !there || len(got) != 5 {
		t.Fatalf("read %v", got)
	}
	if err := os.Remove(h.CPUAcct + name); err != nil {
		t.Fatal(err)
	}
	got = read(t, c, &f)
	if root := got["cgroup_cpu_usage / user"]; len(got) != 3 || root == 0 {
		t.Errorf("read %v, want the root alone", got)
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	h := hierarchy(t)
	c := closing(t, NewCPU(tracked(t, h), h.CPUAcct, h.V1(), 0))
	var f metric.Frame
	quietly(t, func() string {
		read(t, c, &f)
		if c.retry != 0 {
			return "a group of this machine has no files"
		}
		return allocations(t, c, &f)
	})
}

// allocations is what reads allocate, "" if nothing.
func allocations(t *testing.T, r readable, f *metric.Frame) string {
	t.Helper()
	if n := testing.AllocsPerRun(50, func() {
		if err := r.Read(f); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		return fmt.Sprintf("%T: %v allocations in a read", r, n)
	}
	return ""
}

// quietly does f until nothing is wrong: other tests make and remove cgroups.
func quietly(t *testing.T, f func() (wrong string)) {
	t.Helper()
	for tries, end := 1, time.Now().Add(30*time.Second); ; tries++ {
		wrong := f()
		if wrong == "" {
			return
		}
		if tries >= 5 && time.Now().After(end) {
			t.Errorf("%d times, at last: %s", tries, wrong)
			return
		}
	}
}

func BenchmarkReadRoot(b *testing.B) {
	h := hierarchy(b)
	c := closing(b, NewCPU(tracked(b, h), h.CPUAcct, h.V1(), 0))
	var f metric.Frame
	for b.Loop() {
		if err := c.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package workload does a known amount of work, so that a test can say what a
// metric must show: so many writes, so many sleeps of so long, so much CPU.
//
// Every workload runs on one kernel thread that is alone in a cgroup of its
// own. A Go process has other threads that make system calls and sleep when
// they please; what the kernel attributes to the cgroup is the workload's
// and nobody else's. Needs root.
package workload

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroup is a cgroup made for one test and removed after it.
type Cgroup struct {
	// Path is the cgroup's path within the hierarchy that BPF programs
	// attribute to: the unified one, or that of the v1 cpu controller.
	Path string
	// CPUAcct is its directory in the v1 cpuacct hierarchy or in the
	// unified one.
	CPUAcct string

	join []string // files a thread id is written to
}

var (
	domainOnce sync.Once
	domainErr  error
)

// domain is the cgroup all test cgroups of this process lie in. On a unified
// hierarchy it is a threaded domain that the process itself moves into:
// threads can only be told apart below one (cgroups(7), thread mode).
func domain() string { return fmt.Sprintf("rezolus-test-%d", os.Getpid()) }

// NewCgroup makes the cgroup NAME for the length of the test.
func NewCgroup(t testing.TB, name string) *Cgroup {
	t.Helper()
	c := &Cgroup{Path: "/" + domain() + "/" + name}
	mounts := cpuMounts(t)
	// The thread joins the cpu controller's last, so that the system calls
	// of joining are outside.
	for _, controller := range slices.Backward(slices.Sorted(maps.Keys(mounts))) {
		mount := mounts[controller]
		dir := filepath.Join(mount, c.Path)
		if err := makeCgroup(dir, mount, controller == "unified"); err != nil {
			t.Fatalf("make cgroup %s: %v", dir, err)
		}
		t.Cleanup(func() { removeCgroup(t, dir) })
		file := "tasks"
		if controller == "unified" {
			file = "cgroup.threads"
		}
		c.join = append(c.join, filepath.Join(dir, file))
		if controller != "cpu" {
			c.CPUAcct = dir
		}
	}
	return c
}

// AllowRealTime gives the cgroup real-time bandwidth where the kernel rations
// it by cgroup (CONFIG_RT_GROUP_SCHED, v1 only).
func (c *Cgroup) AllowRealTime(t testing.TB) {
	t.Helper()
	c.set(t, "cpu.rt_runtime_us", 100_000)
}

// Prefer gives the cgroup the CPU before others, where the kernel shares it by
// cgroup.
func (c *Cgroup) Prefer(t testing.TB) {
	t.Helper()
	c.set(t, "cpu.shares", 262_144)
	c.set(t, "cpu.weight", 10_000)
}

// set writes a file of the cgroup, and of the one it lies in before, where
// there is one.
func (c *Cgroup) set(t testing.TB, file string, value int) {
	t.Helper()
	for _, joined := range c.join {
		dir := filepath.Dir(joined)
		for _, d := range []string{filepath.Dir(dir), dir} {
			path := filepath.Join(d, file)
			if _, err := os.Stat(path); err != nil {
				continue
			}
			if err := write(path, value); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// cpuMounts is where CPU time is accounted: {"unified": ...}, or
// {"cpu": ..., "cpuacct": ...}, one entry where the two share a mount.
func cpuMounts(t testing.TB) map[string]string {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
		return map[string]string{"unified": "/sys/fs/cgroup"}
	}
	text, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	mounts := map[string]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[2] != "cgroup" {
			continue
		}
		options := "," + f[3] + ","
		cpu, acct := strings.Contains(options, ",cpu,"), strings.Contains(options, ",cpuacct,")
		switch {
		case acct:
			mounts["cpuacct"] = f[1]
		case cpu:
			mounts["cpu"] = f[1]
		}
	}
	if len(mounts) == 0 {
		t.Fatal("neither a unified cgroup hierarchy nor a v1 cpu controller is mounted")
	}
	return mounts
}

func makeCgroup(dir, mount string, unified bool) error {
	if !unified {
		return os.MkdirAll(dir, 0o755)
	}
	parent := filepath.Dir(dir)
	domainOnce.Do(func() {
		if domainErr = os.MkdirAll(parent, 0o755); domainErr == nil {
			domainErr = write(filepath.Join(parent, "cgroup.procs"), os.Getpid())
		}
	})
	if domainErr != nil {
		return domainErr
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.type"), []byte("threaded"), 0)
}

func write(file string, id int) error {
	return os.WriteFile(file, []byte(strconv.Itoa(id)), 0)
}

func removeCgroup(t testing.TB, dir string) {
	// The kernel takes a moment to see that the last thread is gone.
	for range 200 {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			os.Remove(filepath.Dir(dir)) // the last test's cleanup succeeds
			return
		}
		if !errors.Is(err, unix.EBUSY) {
			t.Errorf("remove cgroup: %v", err)
			return
		}
		nap(unix.NsecToTimespec(5e6))
	}
	t.Errorf("cgroup %s stays busy", dir)
}

// Thread runs f on a new kernel thread inside the cgroup and waits for it and
// for the end of the thread. What f does through this package's functions is
// all that happens there, but for the handful of system calls with which the
// runtime makes and unmakes a thread; those are neither reads, writes, sleeps
// nor waits for a file.
func (c *Cgroup) Thread(t testing.TB, f func()) {
	t.Helper()
	done := make(chan error)
	var tid int
	go onNewThread(func() {
		tid = unix.Gettid()
		// The runtime preempts by signals, which would interrupt sleeps and
		// make system calls of their own.
		if err := blockSignals(); err != nil {
			done <- err
			return
		}
		// The thread may be one that has worked for others, and a stint
		// counts for the cgroup in which it ends: this ends it.
		Sleeps(1, time.Millisecond)
		for _, file := range c.join {
			if err := write(file, tid); err != nil {
				done <- fmt.Errorf("join cgroup: %w", err)
				return
			}
		}
		f()
		done <- nil
	})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		if unix.Tgkill(os.Getpid(), tid, 0) != nil {
			return
		}
		nap(unix.NsecToTimespec(1e6))
	}
	t.Fatalf("thread %d does not end", tid)
}

// onNewThread runs f on a thread that ends with it. The process's first thread
// would not: the runtime keeps it (runtime.LockOSThread).
func onNewThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		f()
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		onNewThread(f)
	}()
	<-ended
	runtime.UnlockOSThread()
}

func blockSignals() error {
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	return unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil)
}

func nap(d unix.Timespec) {
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &d, &d) == unix.EINTR {
	}
}

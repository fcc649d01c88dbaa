// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/source"
	"rezolus/test/workload"
)

const someStat = "cpu  1 2 3\nintr 5 1 2\nctxt 99\nbtime 1700000000\nprocesses 1009\nprocs_running 3\nprocs_blocked 2\nsoftirq 1 2\n"

func TestSystemAsWritten(t *testing.T) {
	proc := t.TempDir()
	rewrite(t, proc+"/stat", someStat)
	rewrite(t, proc+"/loadavg", "0.00 0.11 130.25 1/91 14426\n")
	rewrite(t, proc+"/sys/fs/file-nr", "522\t0\t9223372036854775807\n")
	rewrite(t, proc+"/sys/fs/dentry-state", "600\t500\t45\t0\t17\t0\n")
	r := open(t, func() (source.Source, error) { return NewSystem(proc) })
	got := r.says()
	delete(got, "system_uptime") // is not from a file
	want := map[string]uint64{
		"system_context_switches": 99, "system_boot_time": 1700000000e9, "system_forks": 1009,
		"scheduler_tasks running": 3, "scheduler_tasks blocked": 2, "system_threads": 91,
		"scheduler_load 1m": 0, "scheduler_load 5m": math.Float64bits(0.11), "scheduler_load 15m": math.Float64bits(130.25),
		"file_handles allocated": 522, "file_handles max": math.MaxInt64,
		"system_dentries used": 100, "system_dentries unused": 483, "system_dentries negative": 17,
	}
	for key, n := range want {
		if v, ok := got[key]; v != n || !ok {
			t.Errorf("%s = %d, %v; want %d", key, v, ok, n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d series, want %d: %v", len(got), len(want), got)
	}
	if start := r.start("system_forks"); start != host.BootTime() {
		t.Errorf("counters began at %d, want when the machine did", start)
	}
	for _, text := range []string{"", "\n", "0.1 0.11 0.12 1/91 5\n", "0.10 0.11 0.12 1/91", "0.10 0.11 0.12 1\n", "a b\n"} {
		rewrite(t, proc+"/loadavg", text)
		if err := r.Read(&r.frame); err == nil {
			t.Errorf("loadavg %q is accepted", text)
		}
	}
	rewrite(t, proc+"/loadavg", "0.00 0.11 130.25 1/91 14426\n")
	for _, text := range []string{"", strings.Replace(someStat, "ctxt", "x", 1), strings.Replace(someStat, "99", "9x", 1)} {
		rewrite(t, proc+"/stat", text)
		if err := r.Read(&r.frame); err == nil {
			t.Errorf("stat %q is accepted", text)
		}
	}
}

func TestSystemOfTheMachine(t *testing.T) {
	r := sampled(t, machine)
	got := r.says()
	var info unix.Sysinfo_t
	var wrong []string
	if !undisturbed(func() bool { // the kernel reckons the load every five seconds
		got, wrong = r.says(), nil
		if err := unix.Sysinfo(&info); err != nil {
			t.Fatal(err)
		}
		for i, window := range []string{"1m", "5m", "15m"} {
			want := float64(info.Loads[i]) / (1 << 16)
			if load := math.Float64frombits(got["scheduler_load "+window]); math.Abs(load-want) > 0.1+want/10 {
				wrong = append(wrong, fmt.Sprintf("load of %s is %v, sysinfo(2) says %v", window, load, want))
			}
		}
		if threads := got["system_threads"]; threads < 10 || math.Abs(float64(threads)-float64(info.Procs)) > 20+float64(threads)/5 {
			wrong = append(wrong, fmt.Sprintf("%d threads, sysinfo(2) says %d", threads, info.Procs))
		}
		if up := int64(got["system_uptime"]) - int64(info.Uptime)*1e9; up < -2e9 || up > 2e9 {
			wrong = append(wrong, fmt.Sprintf("up for %d ns, sysinfo(2) says %d s", got["system_uptime"], info.Uptime))
		}
		return len(wrong) == 0
	}) {
		t.Error(strings.Join(wrong, "\n"))
	}
	if boot := got["system_boot_time"]; math.Abs(float64(boot)-float64(host.BootTime())) > 2e9 {
		t.Errorf("the machine started at %d, by another clock at %d", boot, host.BootTime())
	}
	for key, file := range map[string]string{"system_pids_limit": "pid_max", "system_threads_limit": "threads-max"} {
		text, err := os.ReadFile("/proc/sys/kernel/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if want, _, ok := source.Number(text); !ok || got[key] != want {
			t.Errorf("%s is %d, want %s", key, got[key], text)
		}
	}
	if got["system_entropy"] == 0 || got["system_entropy"] > 1<<20 {
		t.Errorf("%d bits of entropy", got["system_entropy"])
	}
	allocatesNothing(t, r)
}

func TestForksAndSwitchesAreCounted(t *testing.T) {
	r := sampled(t, machine)
	grows(t, r, "system_forks", 53, func() { workload.Forks(53) })
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const naps = 1009
	before := workload.Switches()
	shown := r.says()["system_context_switches"]
	for range naps {
		if err := unix.Nanosleep(&unix.Timespec{Nsec: 10_000}, nil); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
	}
	after := workload.Switches()
	own := after[0] + after[1] - before[0] - before[1]
	if grown := r.says()["system_context_switches"] - shown; grown < own || own < naps*9/10 {
		t.Errorf("%d context switches, of this thread alone %d", grown, own)
	}
}

func TestFilesAreCounted(t *testing.T) {
	r := sampled(t, machine)
	// Many more than the kernel holds back in each CPU's part of the count:
	// 32 (lib/percpu_counter.c, percpu_counter_batch).
	const files = 2003
	var open []*os.File
	gauged(t, r, "file_handles allocated", files, func() {
		for range files {
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, f)
		}
	}, func() {
		for _, f := range open {
			f.Close()
		}
		open = nil
	})
}

// TestNamesAreCounted looks for files that are not there, whose names the
// kernel keeps but in tmpfs, and makes some that are.
func TestNamesAreCounted(t *testing.T) {
	r := sampled(t, machine)
	dir := t.TempDir()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	const names = 1009
	made, state := 0, "unused" // of a name that nobody has open
	if fs.Type == unix.TMPFS_MAGIC {
		state = "used" // because it is nowhere else
	} else {
		gauged(t, r, "system_dentries negative", names, func() {
			for range names {
				made++
				if err := unix.Access(fmt.Sprint(dir, "/none", made), unix.F_OK); err != unix.ENOENT {
					t.Fatal(err)
				}
			}
		}, func() {})
	}
	var files []string
	work := func() {
		for range names {
			made++
			path := fmt.Sprint(dir, "/some", made)
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			files = append(files, path)
		}
	}
	undo := func() {
		for _, path := range files {
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		}
		files = nil
	}
	gauged(t, r, "system_dentries "+state, names, work, undo)
	gauged(t, r, "system_inodes used", names, work, undo)
}

func TestRunningTasksAreCounted(t *testing.T) {
	r := sampled(t, machine)
	// This thread runs as it reads.
	if got := r.says(); got["scheduler_tasks running"] < 1 || got["scheduler_tasks running"] > got["system_threads"] {
		t.Errorf("%d tasks run", got["scheduler_tasks running"])
	}
}

func FuzzNumbers(f *testing.F) {
	f.Add([]byte("0.00 0.11 130.25 1/91 14426\n"), []byte(someStat))
	f.Fuzz(func(t *testing.T, line, stat []byte) {
		if got := appendNumbers(nil, line, numbersTable[:4]); got != nil && len(got) != 4 {
			t.Errorf("%d values of 4", len(got))
		}
		if got := appendStat(nil, stat); got != nil && (len(got) != len(statTable) || !bytes.Contains(stat, []byte("procs_blocked "))) {
			t.Errorf("%d values of %d", len(got), len(statTable))
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// cpu0 is what cpuidle and /proc/stat say of CPU 0's idle time, and how often
// it went to sleep.
func cpu0(t *testing.T, s source.Source) (slept, idle time.Duration, entries float64) {
	t.Helper()
	for key, value := range read(t, s) {
		switch {
		case strings.HasPrefix(key, "cpu_idle_time 0 "):
			slept += time.Duration(value)
		case strings.HasPrefix(key, "cpu_idle_entries 0 "):
			entries += value
		}
	}
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); fields[0] == "cpu0" {
			for _, f := range fields[4:6] { // idle and iowait
				ticks, err := strconv.Atoi(f)
				if err != nil {
					t.Fatal(err)
				}
				idle += time.Duration(ticks) * 10 * time.Millisecond
			}
		}
	}
	return slept, idle, entries
}

// TestIdleTimeOfThisMachine keeps a CPU busy, in which it must not sleep, and
// then lets it sleep, which must be the time that /proc/stat has as idle.
func TestIdleTimeOfThisMachine(t *testing.T) {
	s, err := sampler(t, "/", "cpuidle").Open()
	if errors.Is(err, source.ErrUnsupported) {
		if b, _ := os.ReadFile("/sys/devices/system/cpu/cpu0/cpuidle/state0/time"); b != nil {
			t.Errorf("%v, and there is state0", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set, old unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		t.Fatal(err)
	}
	set.Set(0)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &old)

	slept0, _, entries0 := cpu0(t, s)
	began := time.Now()
	for time.Since(began) < 300*time.Millisecond {
		sink++
	}
	busy := time.Since(began)
	slept1, idle1, entries1 := cpu0(t, s)
	if d := slept1 - slept0; d > busy/10 {
		t.Errorf("CPU 0 was busy for %v, and slept %v of it", busy, d)
	}
	for range 50 {
		time.Sleep(20 * time.Millisecond) // the load: a CPU that has nothing to do
	}
	slept2, idle2, entries2 := cpu0(t, s)
	slept, idle := slept2-slept1, idle2-idle1
	t.Logf("busy: %v and %v times asleep in %v; idle: %v and %v times, %v by /proc/stat", slept1-slept0, entries1-entries0, busy, slept, entries2-entries1, idle)
	// /proc/stat has the way in and out of idle too, some microseconds each
	// time, and steps of a tick for each of two states.
	if slack := 40*time.Millisecond + idle/10; slept < idle-slack || slept > idle+slack {
		t.Errorf("CPU 0 slept %v; /proc/stat says it was idle for %v", slept, idle)
	}
	if slept > 0 && entries2 == entries1 {
		t.Errorf("CPU 0 slept %v and never began to", slept)
	}
}

var sink uint64

// BenchmarkMachine reads what this machine has of the kernel's own files.
func BenchmarkMachine(b *testing.B) {
	for _, sampler := range Samplers() {
		s, err := sampler.Open()
		if err != nil {
			continue
		}
		b.Run(sampler.Name, func(b *testing.B) {
			var f metric.Frame
			for b.Loop() {
				if err := s.Read(&f); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(f.Schema.Series)), "series")
		})
		s.Close()
	}
}

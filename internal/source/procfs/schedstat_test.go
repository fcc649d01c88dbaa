// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"rezolus/internal/source"
	"rezolus/test/workload"
)

const someSchedstat = `version 17
timestamp 4297299139
cpu0 1 0 2 3 4 5 100 200 300
domain0 SMT 03 0 0 0
cpu2 0 0 0 0 0 0 101 201 301
`

func TestSchedstatAsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schedstat")
	rewrite(t, path, someSchedstat)
	r := open(t, func() (source.Source, error) { return NewSchedstat(path) })
	r.wants(map[string]uint64{"scheduler_cpu_running 0": 100, "scheduler_cpu_wait 0": 200, "scheduler_cpu_timeslices 0": 300,
		"scheduler_cpu_running 2": 101, "scheduler_cpu_wait 2": 201, "scheduler_cpu_timeslices 2": 301})
	allocatesNothing(t, r)
	rewrite(t, path, "cpu2 0 0 0 0 0 0 102 202 302\n")
	r.wants(map[string]uint64{"scheduler_cpu_running 2": 102, "scheduler_cpu_wait 2": 202, "scheduler_cpu_timeslices 2": 302})
	for _, text := range []string{"", "cpu0 1 2 3\n", "cpu 0 0 0 0 0 0 1 2 3\n", "cpu0 0 0 0 0 0 0 1 2 3 4\n", someSchedstat + "cpu1 0 0 0 0 0 0 1 2 3\n"} {
		rewrite(t, path, text)
		if err := r.Read(&r.frame); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestSchedstatOfTheMachine has two threads share a CPU.
func TestSchedstatOfTheMachine(t *testing.T) {
	src, err := NewSchedstat("/proc/schedstat")
	if _, missing := os.Stat("/proc/schedstat"); missing != nil {
		if !errors.Is(err, source.ErrUnsupported) {
			t.Errorf("error %v, want that it is unsupported", err)
		}
		return
	}
	r := open(t, func() (source.Source, error) { return src, err })
	before := r.says()
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			runtime.LockOSThread() // and be gone with the thread
			workload.Pin(0)
			workload.Burn(300 * time.Millisecond)
		})
	}
	all.Wait()
	after := r.says()
	ran, waited := after["scheduler_cpu_running 0"]-before["scheduler_cpu_running 0"], after["scheduler_cpu_wait 0"]-before["scheduler_cpu_wait 0"]
	elapsed := uint64(r.frame.End - r.frame.Begin)
	t.Logf("ran %d ms, waited %d ms", ran/1e6, waited/1e6)
	if ran < 570e6 || waited < 200e6 {
		t.Errorf("two threads that shared CPU 0 for 600 ms ran %d ms and waited %d ms", ran/1e6, waited/1e6)
	}
	if after["scheduler_cpu_timeslices 0"] == before["scheduler_cpu_timeslices 0"] || elapsed == 0 {
		t.Error("no task began to run on CPU 0")
	}
	allocatesNothing(t, r)
}

func FuzzSchedstat(f *testing.F) {
	f.Add([]byte(someSchedstat))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &Schedstat{}
		if s.parse(text) == nil && (len(s.now) == 0 || len(s.now) != len(s.counts)) {
			t.Errorf("%d CPUs with %d lines", len(s.now), len(s.counts))
		}
	})
}

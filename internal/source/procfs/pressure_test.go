// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rezolus/internal/host"
	"rezolus/internal/source"
	"rezolus/test/workload"
)

const (
	someStall = "some avg10=0.56 avg60=12.30 avg300=100.00 total=690999449\n"
	fullStall = "full avg10=0.01 avg60=0.00 avg300=0.10 total=17\n"
)

func TestPressureAsWritten(t *testing.T) {
	dir := t.TempDir()
	rewrite(t, dir+"/cpu", someStall+fullStall)
	rewrite(t, dir+"/irq", fullStall)
	r := open(t, func() (source.Source, error) { return NewPressure(dir) })
	want := map[string]uint64{
		"pressure_stalled some cpu": 690999449000, "pressure_average some cpu 10s": math.Float64bits(0.0056),
		"pressure_average some cpu 60s": math.Float64bits(0.123), "pressure_average some cpu 300s": math.Float64bits(1),
		"pressure_stalled full irq": 17000, "pressure_average full irq 10s": math.Float64bits(0.0001),
		"pressure_average full irq 60s": 0, "pressure_average full irq 300s": math.Float64bits(0.001),
	}
	r.wants(want)
	allocatesNothing(t, r)
	if start := r.start("pressure_stalled full irq"); start != host.BootTime() {
		t.Errorf("counters began at %d, want when the machine did", start)
	}
	rewrite(t, dir+"/irq", "")
	for key := range want {
		if strings.Contains(key, "irq") {
			delete(want, key)
		}
	}
	r.wants(want)
	for _, text := range []string{"some\n", "none avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", "some avg10=0.0 avg60=0.00 avg300=0.00 total=0\n",
		"some avg10=0.00 avg60=0.00 avg300=0.00\n", "some avg10=0.00 avg60=0.00 avg300=0.00 total=x\n",
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=1 x\n", someStall + someStall + someStall} {
		rewrite(t, dir+"/irq", text)
		if err := r.Read(&r.frame); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestPressureOfTheMachine has two threads share a CPU, and holds the total
// against the clock and the file.
func TestPressureOfTheMachine(t *testing.T) {
	src, err := NewPressure("/proc/pressure")
	if errors.Is(err, source.ErrUnsupported) {
		if _, err := os.ReadFile("/proc/pressure/cpu"); err == nil {
			t.Error("/proc/pressure/cpu is there and said not to be")
		}
		t.Log(err)
		return
	}
	r := open(t, func() (source.Source, error) { return src, err })
	const key = "pressure_stalled some cpu"
	before, began := r.says()[key], r.frame.Begin
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			runtime.LockOSThread() // and be gone with the thread
			workload.Pin(0)
			workload.Burn(300 * time.Millisecond)
		})
	}
	all.Wait()
	low := total(t, "/proc/pressure/cpu", "some")
	got := r.says()[key]
	high, elapsed := total(t, "/proc/pressure/cpu", "some"), uint64(r.frame.End-began)
	if got < low || got > high {
		t.Errorf("%s is %d, the file says %d to %d", key, got, low, high)
	}
	if grown := got - before; grown < elapsed/4 || grown > elapsed+elapsed/50 {
		t.Errorf("in %d ms some task waited for %d ms", elapsed/1e6, grown/1e6)
	}
	allocatesNothing(t, r)
}

// total reads the total of a line in another way, in nanoseconds.
func total(t testing.TB, path, kind string) uint64 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if after, is := strings.CutPrefix(line, kind); is {
			_, value, _ := strings.Cut(after, "total=")
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n * 1000
		}
	}
	t.Fatalf("%s has no %s", path, kind)
	return 0
}

func TestMachineWithoutPressure(t *testing.T) {
	if _, err := NewPressure(t.TempDir()); !errors.Is(err, source.ErrUnsupported) || !strings.Contains(err.Error(), "psi=1") {
		t.Errorf("error %v, want one that names the fix", err)
	}
}

func FuzzPressure(f *testing.F) {
	f.Add([]byte(someStall + fullStall))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := stallFile{resource: "io"}
		if s.parse(text) == nil && len(s.now) > len(stallKinds) {
			t.Errorf("%d lines", len(s.now))
		}
		for _, l := range s.now {
			if l.kind != "some" && l.kind != "full" {
				t.Errorf("kind %q", l.kind)
			}
		}
	})
}

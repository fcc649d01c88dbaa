// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// values is what a frame says, by name and labels.
func values(f *metric.Frame) map[string]float64 {
	m := map[string]float64{}
	for _, s := range f.Schema.Series {
		m[strings.Join(append([]string{s.Desc.Name}, s.Values...), " ")] = s.Desc.Value(f.Values[s.Off])
	}
	return m
}

func newClock(t testing.TB, dir string) *Clock {
	t.Helper()
	c, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func read(t testing.TB, c *Clock) map[string]float64 {
	t.Helper()
	var f metric.Frame
	if err := c.Read(&f); err != nil {
		t.Fatal(err)
	}
	return values(&f)
}

func same(t testing.TB, got, want map[string]float64) {
	t.Helper()
	for key, v := range want {
		if n, ok := got[key]; !ok || math.Abs(n-v) > math.Abs(v)*1e-12 {
			t.Errorf("%s = %v, %v; want %v", key, n, ok, v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d series, want %d: %v", len(got), len(want), got)
	}
}

func TestUnits(t *testing.T) {
	c := newClock(t, t.TempDir())
	var f metric.Frame
	timex := unix.Timex{Offset: -17, Maxerror: 19, Esterror: 23, Freq: -3 << 16, Status: unix.STA_UNSYNC, Tai: 37, Tick: 10000, Constant: 7,
		Ppsfreq: 5 << 16, Jitter: 11, Shift: 4, Stabil: 1 << 15, Jitcnt: 1, Calcnt: 2, Errcnt: 3, Stbcnt: 4}
	fill := func(name string) map[string]float64 {
		t.Helper()
		if err := c.fill(&f, &timex, []byte(name)); err != nil {
			t.Fatal(err)
		}
		return values(&f)
	}
	want := map[string]float64{"clock_synchronized": 0, "clock_offset": -17e3, "clock_max_error": 19e3, "clock_estimated_error": 23e3,
		"clock_frequency_offset": -3e-6, "clock_status": unix.STA_UNSYNC, "clock_tai_offset": 37e9, "clock_tick": 10e6, "clock_loop_time_constant": 7}
	same(t, fill(""), want)
	timex.Status = unix.STA_NANO
	want["clock_synchronized"], want["clock_status"], want["clock_offset"], want["clock_source tsc"] = 1, unix.STA_NANO, -17, 1
	same(t, fill("tsc\n"), want)
	first := f.Schema
	if fill("tsc\n"); f.Schema != first {
		t.Error("another schema for the same clock source")
	}
	delete(want, "clock_source tsc")
	timex.Status |= unix.STA_PPSFREQ
	for key, v := range map[string]float64{"clock_status": unix.STA_NANO | unix.STA_PPSFREQ, "clock_source hpet": 1,
		"clock_pps_frequency": 5e-6, "clock_pps_stability": 0.5e-6, "clock_pps_jitter": 11, "clock_pps_interval": 16e9,
		"clock_pps_jitter_exceeded": 1, "clock_pps_calibrations": 2, "clock_pps_calibration_errors": 3, "clock_pps_stability_exceeded": 4} {
		want[key] = v
	}
	same(t, fill("hpet\n"), want)
	for _, s := range f.Schema.Series {
		if s.Desc.Kind == metric.Counter && s.Start != host.BootTime() {
			t.Errorf("%s began at %d, want when the machine did", s.Desc.Name, s.Start)
		}
	}
}

// TestOfTheMachine sets what the kernel keeps for programs that discipline the
// clock, in a way that does not change the time by more than a microsecond,
// and sets it back.
func TestOfTheMachine(t *testing.T) {
	var before unix.Timex
	if _, err := unix.Adjtimex(&before); err != nil {
		t.Fatal(err)
	}
	set := func(x unix.Timex) {
		t.Helper()
		if _, err := unix.Adjtimex(&x); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		set(unix.Timex{Modes: unix.ADJ_MAXERROR | unix.ADJ_ESTERROR | unix.ADJ_FREQUENCY | unix.ADJ_STATUS,
			Maxerror: before.Maxerror, Esterror: before.Esterror, Freq: before.Freq, Status: before.Status})
		set(unix.Timex{Modes: unix.ADJ_TAI, Constant: int64(before.Tai)})
	})
	// An unsynchronised clock says its errors as well.
	for _, status := range []int32{unix.STA_UNSYNC, 0} {
		x := unix.Timex{Modes: unix.ADJ_MAXERROR | unix.ADJ_ESTERROR | unix.ADJ_FREQUENCY | unix.ADJ_STATUS, Status: status}
		x.Maxerror, x.Esterror, x.Freq = 10007, 1009, 3<<16
		set(x)
		set(unix.Timex{Modes: unix.ADJ_TAI, Constant: 41})
		c := newClock(t, "/sys/devices/system/clocksource")
		got := read(t, c)
		// The kernel adds 500 ppm to the maximum error at each second.
		if v := got["clock_max_error"]; v < 10007e3 || v > 10007e3+2*500e3 {
			t.Errorf("maximum error %v ns, want 10007000", v)
		}
		want := 0.0
		if status == 0 {
			want = 1
		}
		if got["clock_estimated_error"] != 1009e3 || math.Abs(got["clock_frequency_offset"]-3e-6) > 1e-12 || got["clock_synchronized"] != want {
			t.Errorf("status %d: %v", status, got)
		}
		if off := tai(t); got["clock_tai_offset"] != 41e9 || math.Abs(float64(off)-41e9) > 1e9 {
			t.Errorf("atomic time is %v ns ahead, by its clock %d", got["clock_tai_offset"], off)
		}
		name, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
		if err != nil {
			t.Fatal(err)
		}
		if got["clock_source "+strings.TrimSpace(string(name))] != 1 {
			t.Errorf("clock source %q is not there: %v", name, got)
		}
		var f metric.Frame
		if n := testing.AllocsPerRun(100, func() {
			if err := c.Read(&f); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations in a read", n)
		}
	}
}

// tai is CLOCK_TAI less CLOCK_REALTIME in nanoseconds.
func tai(t testing.TB) int64 {
	var atomic unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_TAI, &atomic); err != nil {
		t.Fatal(err)
	}
	return atomic.Nano() - time.Now().UnixNano()
}

func TestClockSourceChanges(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, "clocksource0"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "clocksource0/current_clocksource"), []byte(name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("tsc")
	c := newClock(t, dir)
	if got := read(t, c); got["clock_source tsc"] != 1 {
		t.Errorf("%v", got)
	}
	write("hpet")
	got := read(t, c)
	if _, old := got["clock_source tsc"]; old || got["clock_source hpet"] != 1 {
		t.Errorf("%v", got)
	}
}

func TestSamplers(t *testing.T) {
	for _, s := range Samplers() {
		listed := map[*metric.Desc]bool{}
		for _, d := range s.Descs {
			if err := d.Validate(); err != nil || d.Sampler != s.Name || d.Help == "" || listed[d] {
				t.Errorf("%+v: %v", d, err)
			}
			listed[d] = true
		}
		src, err := s.Open()
		if err != nil {
			t.Fatal(err)
		}
		var f metric.Frame
		if err := errors.Join(src.Read(&f), src.Close()); err != nil {
			t.Fatal(err)
		}
		for _, series := range f.Schema.Series {
			if !listed[series.Desc] {
				t.Errorf("%s is not listed", series.Desc.Name)
			}
		}
	}
}

func BenchmarkRead(b *testing.B) {
	c := newClock(b, "/sys/devices/system/clocksource")
	var f metric.Frame
	for b.Loop() {
		if err := c.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package analyze

import (
	"math"
	"testing"

	"rezolus/internal/metric"
)

// world is a source with the metrics of some checks.
func world(t *testing.T, sampler string, names ...string) *metric.Schema {
	t.Helper()
	var series []metric.Series
	for _, name := range names {
		d := &metric.Desc{Name: name, Kind: metric.Counter, Sampler: sampler}
		if name == "cpu_usage" {
			d.Keys = []string{"id", "state"}
			for _, id := range []string{"0", "1"} {
				for _, state := range []string{"idle", "user"} {
					series = append(series, metric.Series{Desc: d, Values: []string{id, state}})
				}
			}
			continue
		}
		series = append(series, metric.Series{Desc: d})
	}
	s, err := metric.NewSchema(sampler, series)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func frame(s *metric.Schema, at int64, values ...uint64) metric.Frame {
	return metric.Frame{Schema: s, Begin: at, End: at + 10, Values: values}
}

// residuals are what the ledger publishes, by metric and check.
func residuals(t *testing.T, l *Ledger) map[string]float64 {
	t.Helper()
	var f metric.Frame
	if err := l.Read(&f); err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for i := range f.Schema.Series {
		e := &f.Schema.Series[i]
		all[e.Desc.Name+" "+e.Values[0]] = e.Desc.Value(f.Values[e.Off])
	}
	return all
}

func TestTheLedger(t *testing.T) {
	run := &metric.Run{}
	a, b := world(t, "a", "syscall", "cgroup_syscall"), world(t, "b", "cpu_usage")
	l := NewLedger(func() int64 { return 0 })
	mono := int64(0)
	observe := func(frames ...metric.Frame) {
		mono += minute // so that each is compared with the one before
		l.Observe(&metric.Snapshot{Run: run, Mono: mono, Frames: frames})
	}
	observe(frame(a, 0, 1000, 900), frame(b, 0, 0, 0, 0, 0))
	if got := residuals(t, l); len(got) != 0 {
		t.Errorf("one snapshot compares nothing: %v", got)
	}
	observe(frame(a, 0, 2000, 1895), frame(b, 100, 40, 60, 70, 20))
	got := residuals(t, l)
	for name, want := range map[string]float64{
		"ledger_residual cgroup_syscalls_are_all_syscalls": 5.0 / 1000, "ledger_compared cgroup_syscalls_are_all_syscalls": 1000,
		"ledger_residual cpu_states_are_all_time": 10.0 / 200, "ledger_compared cpu_states_are_all_time": 200,
	} {
		if math.Abs(got[name]-want) > 1e-12 {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
	if len(got) != 4 {
		t.Errorf("published are %v", got)
	}
	// A source that is gone is not compared, and what it said is not frozen.
	observe(frame(b, 200, 90, 110, 120, 70))
	if got := residuals(t, l); len(got) != 2 || got["ledger_residual cpu_states_are_all_time"] != 0 {
		t.Errorf("without the other source: %v", got)
	}
	// Nor is what fell: a series ended.
	observe(frame(a, 0, 5, 5), frame(b, 300, 90, 110, 120, 70))
	observe(frame(a, 0, 4, 5), frame(b, 400, 190, 210, 220, 170))
	if got := residuals(t, l); len(got) != 2 {
		t.Errorf("a counter fell: %v", got)
	}
}

func TestALedgerOfANewRunForgets(t *testing.T) {
	a := world(t, "a", "syscall", "cgroup_syscall")
	l := NewLedger(func() int64 { return 0 })
	l.Observe(&metric.Snapshot{Run: &metric.Run{}, Frames: []metric.Frame{frame(a, 0, 1, 1)}})
	l.Observe(&metric.Snapshot{Run: &metric.Run{}, Frames: []metric.Frame{frame(a, 0, 9, 5)}})
	if got := residuals(t, l); len(got) != 0 {
		t.Errorf("two runs are compared: %v", got)
	}
}

func TestTheLedgerReadsWithoutAllocating(t *testing.T) {
	run, a := &metric.Run{}, world(t, "a", "syscall", "cgroup_syscall")
	l := NewLedger(func() int64 { return 0 })
	for i := range uint64(2) {
		l.Observe(&metric.Snapshot{Run: run, Frames: []metric.Frame{frame(a, 0, i, i)}})
	}
	var f metric.Frame
	if err := l.Read(&f); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(50, func() { _ = l.Read(&f) }); n != 0 {
		t.Errorf("%v allocations in a read", n)
	}
}

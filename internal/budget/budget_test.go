// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rezolus/internal/metric"
)

// fake is an agent on a machine of two CPUs with two probes and two sources.
// All times follow from the clock, so that what is measured is exact.
type fake struct {
	began    time.Time
	resident uint64
	noStats  error
	open     int
	storm    bool // makes the program of sampler dear take half a CPU
	cpu, mem []string
	calls    int
	fails    error
}

func (f *fake) since() time.Duration { return time.Since(f.began) }

// Usage is 2 ms of CPU a second.
func (f *fake) usage() (Usage, error) { return Usage{f.since() / 500, f.resident}, nil }

func (f *fake) Measure() (io.Closer, error) {
	if f.noStats != nil {
		return nil, f.noStats
	}
	f.open++
	return closer{f}, nil
}

type closer struct{ f *fake }

func (c closer) Close() error { c.f.open--; return nil }

func (f *fake) Programs(to []Program) []Program {
	share := time.Duration(1000)
	if f.storm {
		share = 2
	}
	if !slices.Contains(f.cpu, "dear") {
		to = append(to, Program{Probe: "p", Name: "dear_program", Samplers: []string{"dear"}, Runs: uint64(f.since() / time.Microsecond), Time: f.since() / share, Missed: 41, Counted: true})
	}
	return append(to, Program{Probe: "p", Name: "core_program", Samplers: []string{"core"}, Time: f.since() / 10000})
}

func (f *fake) Works() ([]Work, time.Duration) {
	return []Work{{"slow", 10 * time.Second, f.since() / 100000}, {"fast", 0, f.since() / 100000}}, time.Second
}

func (f *fake) Aside() time.Duration { return f.since() / 1000 }
func (f *fake) KernelBytes() uint64  { return 1000 }
func (f *fake) Memory() []Cost {
	return []Cost{{0, []string{Garbage}}, {float64(f.resident / 2), []string{WindowHalf}}}
}

func (f *fake) ShedCPU(levers []string) error {
	f.cpu, f.calls = slices.Clone(levers), f.calls+1
	return f.fails
}

func (f *fake) ShedMemory(levers []string) error {
	f.mem = slices.Clone(levers)
	if slices.Contains(levers, WindowHalf) {
		f.resident /= 2
	}
	return nil
}

// during runs a budget of 1 % of two CPUs and 1 MB while body runs.
func during(t *testing.T, f *fake, body func(b *Budget, log *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f.began = time.Now()
		var log bytes.Buffer
		b := New(Options{CPU: 0.01, CPUs: 2, Memory: 1e6, Interval: 10 * time.Second, House: f, Usage: f.usage,
			Samplers: []Lever{{"dear", Ordinary}}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		body(b, &log)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if f.open != 0 {
			t.Error("the kernel goes on to measure")
		}
	})
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6 {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// published is what the budget says as a source: the values by name and labels.
func published(t *testing.T, b *Budget) map[string]float64 {
	t.Helper()
	var f metric.Frame
	if err := b.Source(func() int64 { return 1 }).Read(&f); err != nil {
		t.Fatal(err)
	}
	if len(f.Values) != f.Schema.Words {
		t.Fatalf("%d words for a schema of %d", len(f.Values), f.Schema.Words)
	}
	got := map[string]float64{}
	for _, s := range f.Schema.Series {
		got[strings.TrimSpace(s.Desc.Name+" "+strings.Join(s.Values, " "))] = s.Desc.Value(f.Values[s.Off])
	}
	return got
}

func TestWhatIsUsed(t *testing.T) {
	f := &fake{resident: 500_000}
	during(t, f, func(b *Budget, _ *bytes.Buffer) {
		if got := published(t, b); len(got) != 8 || got["rezolus_budget_cpu_limit"] != 0.01 {
			t.Errorf("before anything was measured, published is %v", got)
		}
		time.Sleep(25 * time.Second)
		s := b.Status()
		// 2 ms a second, less the 1 ms that answering took, on two CPUs.
		near(t, "what the agent uses", s.CPU.Agent, 0.0005)
		near(t, "what the probes use", s.CPU.Probes, (0.001+0.0001)/2)
		near(t, "what is used", s.CPU.Used, s.CPU.Agent+s.CPU.Probes)
		if s.Memory.Used != 501_000 || s.Memory.Level != "none" || s.CPU.Level != "none" {
			t.Errorf("memory %+v, level %s", s.Memory, s.CPU.Level)
		}
		got := published(t, b)
		near(t, "the metric", got["rezolus_budget_cpu_used"], s.CPU.Used)
		near(t, "a program's", got["rezolus_bpf_cpu p dear_program"], 0.001)
		near(t, "its runs", got["rezolus_bpf_runs p dear_program"], 1e6)
		near(t, "its runs that were missed", got["rezolus_bpf_missed p dear_program"], 41)
		if n, ok := got["rezolus_bpf_missed p core_program"]; ok {
			t.Errorf("where the kernel does not count, %v are missed", n)
		}
		if got["rezolus_budget_memory_used"] != 501_000 || got["rezolus_budget_level cpu"] != 0 || f.calls != 0 {
			t.Errorf("published is %v; the house was changed %d times", got, f.calls)
		}
		if s.Programs[0].Program != "dear_program" {
			t.Errorf("the dearest is not the first: %+v", s.Programs)
		}
	})
}

func TestALoadIsShedAndComesBack(t *testing.T) {
	f := &fake{resident: 1}
	during(t, f, func(b *Budget, log *bytes.Buffer) {
		f.storm = true
		time.Sleep(35 * time.Second)
		if strings.Join(f.cpu, " ") != "dear" {
			t.Fatalf("shed is %q", f.cpu)
		}
		if s := b.Status(); s.CPU.Level != "essential only" || s.CPU.Shed[0] != "dear" || s.Changes.Shed != 1 {
			t.Errorf("status %+v", s.CPU)
		}
		got := published(t, b)
		if got["rezolus_budget_shed cpu dear"] != 1 || got["rezolus_budget_level cpu"] != 3 || got["rezolus_budget_changes shed"] != 1 {
			t.Errorf("published is %v", got)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `over the budget: shed dear" resource=cpu used=25.`) || !strings.Contains(text, "budget=1%") {
			t.Errorf("log:\n%s", text)
		}
		f.storm = false
		time.Sleep(40 * time.Second)
		if len(f.cpu) != 1 {
			t.Error("it came back at once")
		}
		time.Sleep(35 * time.Second)
		if len(f.cpu) != 0 || b.Status().CPU.Level != "none" || b.Status().Changes.Returned != 1 {
			t.Errorf("shed is %q, status %+v", f.cpu, b.Status())
		}
		if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "within the budget: bring back dear") {
			t.Errorf("log:\n%s", text)
		}
		if _, ok := published(t, b)["rezolus_budget_shed cpu dear"]; ok {
			t.Error("it is back, and published as shed")
		}
	})
}

// A window that met a burst counts half, and one that met none lets the burst
// fade; a program that was detached meanwhile has no past.
func TestABurstFades(t *testing.T) {
	b := New(Options{})
	window := func(want string, cpu ...float64) {
		t.Helper()
		var programs []ProgramCost
		for i, c := range cpu {
			programs = append(programs, ProgramCost{Program: string(rune('a' + i)), CPU: c})
		}
		b.smooth(programs)
		var got []string
		for _, p := range programs {
			got = append(got, fmt.Sprint(p.CPU))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("after %v, programs cost %s, want %s", cpu, text, want)
		}
	}
	window("0 4", 0, 4)
	window("8 4", 16, 4)
	window("4", 0)
	window("2 1", 0, 1)
}

func TestMemoryIsShed(t *testing.T) {
	f := &fake{resident: 1_200_000}
	during(t, f, func(b *Budget, log *bytes.Buffer) {
		time.Sleep(35 * time.Second)
		if strings.Join(f.mem, " ") != WindowHalf || b.Status().Memory.Used != 601_000 || !strings.Contains(log.String(), "used=1.1MiB") {
			t.Errorf("shed is %q, status %+v\n%s", f.mem, b.Status().Memory, log)
		}
		if got := published(t, b)["rezolus_budget_shed memory "+WindowHalf]; got != 1 {
			t.Errorf("published is %v", got)
		}
	})
}

// What cannot be kept is said once, and nothing useless is done.
func TestAnAgentThatCannotKeepItSaysSo(t *testing.T) {
	f := &fake{resident: 1_200_000, fails: errors.New("no such luck")}
	during(t, f, func(b *Budget, log *bytes.Buffer) {
		time.Sleep(35 * time.Second) // the window is halved
		f.resident = 9e8
		f.storm = true
		time.Sleep(3 * time.Minute)
		if text := log.String(); strings.Count(text, "nothing is left to shed") != 1 || !strings.Contains(text, "no such luck") {
			t.Errorf("log:\n%s", text)
		}
		if s := b.Status(); !s.Memory.Exhausted || published(t, b)["rezolus_budget_exhausted memory"] != 1 || s.CPU.Exhausted {
			t.Errorf("status %+v", s)
		}
	})
}

func TestAKernelThatDoesNotMeasure(t *testing.T) {
	f := &fake{resident: 1, noStats: os.ErrPermission}
	during(t, f, func(b *Budget, log *bytes.Buffer) {
		time.Sleep(65 * time.Second)
		s := b.Status()
		near(t, "what is used", s.CPU.Used, 0.0005)
		if s.Unmeasured == "" || len(s.Programs) != 0 || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("status %+v, log:\n%s", s, log)
		}
	})
}

func TestPace(t *testing.T) {
	f := func(every, want time.Duration, shed ...string) {
		t.Helper()
		if got := Pace(shed, every); got != want {
			t.Errorf("%v with %v shed is %v, want %v", every, shed, got, want)
		}
	}
	f(time.Second, time.Second)
	f(0, 0, "dear")
	f(0, 0, "pace_2")
	f(time.Second, 2*time.Second, "pace_2")
	f(time.Second, 4*time.Second, "pace_2", "pace_4")
	f(0, 100*time.Millisecond, "pace_2", "every_10ms", "every_100ms")
	f(20*time.Millisecond, time.Second, "pace_2", "every_1s")
	near := func(shed []string, tick time.Duration, want string) {
		t.Helper()
		var got []string
		for _, c := range paceCosts(shed, 4, 8, tick) {
			got = append(got, fmt.Sprintf("%s=%.3g", c.Levers[0], c.Amount))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("with %v shed at %v the levers save %q, want %q", shed, tick, text, want)
		}
	}
	near(nil, time.Second, "pace_2=2 pace_4=1")
	near([]string{"pace_2"}, 250*time.Millisecond, "pace_4=2 every_1s=6")
	near([]string{"pace_2", "pace_4", "every_10ms"}, time.Millisecond, "every_100ms=7.2 every_1s=0.72")
}

// The process is measured: a thread that computes shows as CPU time, and
// memory that is touched is resident.
func TestTheUsageIsTheProcesss(t *testing.T) {
	before, err := processUsage()
	if err != nil {
		t.Fatal(err)
	}
	memory := make([]byte, 64<<20)
	for began := time.Now(); time.Since(began) < 50*time.Millisecond; {
		for i := 0; i < len(memory); i += 4096 {
			memory[i]++
		}
	}
	after, err := processUsage()
	if err != nil {
		t.Fatal(err)
	}
	if d := after.CPU - before.CPU; d < 5*time.Millisecond || after.Resident < before.Resident+48<<20 {
		t.Errorf("50 ms of work are %v of CPU; resident went from %d to %d with 64 MiB more", d, before.Resident, after.Resident)
	}
	if memory[0] == 0 {
		t.Error("nothing was touched")
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	f := &fake{resident: 1}
	during(t, f, func(b *Budget, _ *bytes.Buffer) {
		time.Sleep(25 * time.Second)
		s := b.Source(func() int64 { return 1 })
		var frame metric.Frame
		if n := testing.AllocsPerRun(100, func() {
			if err := s.Read(&frame); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations a read", n)
		}
	})
}

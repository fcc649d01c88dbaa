// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"math"
	"slices"
	"time"

	"rezolus/internal/metric"
)

// sampler is the switch of everything that the agent says of itself.
const sampler = "rezolus_rusage"

func gauge(name, help string, unit metric.Unit, float bool, keys ...string) *metric.Desc {
	return &metric.Desc{Name: name, Help: help, Unit: unit, Kind: metric.Gauge, Float: float, Keys: keys, Sampler: sampler}
}

var (
	cpuUsed     = gauge("rezolus_budget_cpu_used", "CPU time of the agent and, estimated, of its programs in the kernel, as a share of the machine", "ratio", true)
	cpuLimit    = gauge("rezolus_budget_cpu_limit", "what of the machine's CPU time the agent may use", "ratio", true)
	memoryUsed  = gauge("rezolus_budget_memory_used", "memory of the agent and of its maps and programs in the kernel", metric.Bytes, false)
	memoryLimit = gauge("rezolus_budget_memory_limit", "memory that the agent may use", metric.Bytes, false)
	level       = gauge("rezolus_budget_level", "what is shed: 0 nothing, 1 the agent is coarser, 2 detail is missing, 3 more is", metric.None, false, "resource")
	exhausted   = gauge("rezolus_budget_exhausted", "1 while the budget is exceeded and nothing is left to shed that would help, else 0", metric.None, false, "resource")
	shedding    = gauge("rezolus_budget_shed", "1 for each sampler, or other lever, that is shed to keep the budget", metric.None, false, "resource", "sampler")
	changes     = &metric.Desc{Name: "rezolus_budget_changes", Help: "samplers and other levers that were shed, and that were brought back",
		Kind: metric.Counter, Keys: []string{"kind"}, Sampler: sampler}
	programMissed = &metric.Desc{Name: "rezolus_bpf_missed", Help: "times that the kernel did not run a BPF program because one ran on that CPU already",
		Kind: metric.Counter, Keys: []string{"probe", "program"}, Sampler: sampler}
	programCPU = gauge("rezolus_bpf_cpu", "CPU time of a BPF program as a share of one CPU, estimated from short windows", "ratio", true, "probe", "program")
	programRun = gauge("rezolus_bpf_runs", "runs of a BPF program a second, estimated from short windows", "hertz", true, "probe", "program")
)

// Descs describe the metrics of a budget.
func Descs() []*metric.Desc {
	return []*metric.Desc{cpuUsed, cpuLimit, memoryUsed, memoryLimit, level, exhausted, shedding, changes, programCPU, programRun, programMissed}
}

// Source is the budget as a source of the agent.
type Source struct {
	budget *Budget
	start  int64        // Unix nanoseconds
	mono   func() int64 // CLOCK_MONOTONIC in nanoseconds

	schema   *metric.Schema
	measured bool
	programs []ProgramCost // of the schema
	shed     [2][]string
}

// Source is the budget as a source of the agent. mono reads CLOCK_MONOTONIC in
// nanoseconds.
func (b *Budget) Source(mono func() int64) *Source {
	return &Source{budget: b, start: time.Now().UnixNano(), mono: mono}
}

// Name is "budget".
func (s *Source) Name() string { return "budget" }

// Close does nothing.
func (s *Source) Close() error { return nil }

// Read gives the state as of the last interval. Before the first nobody knows
// what is used.
func (s *Source) Read(f *metric.Frame) error {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	f.Begin = s.mono()
	t := &s.budget.status
	if s.schema == nil || s.measured != t.measured || !slices.EqualFunc(s.programs, t.Programs, sameProgram) ||
		!slices.Equal(s.shed[0], t.CPU.Shed) || !slices.Equal(s.shed[1], t.Memory.Shed) {
		if err := s.rebuild(t); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	w := append(f.Values[:0], math.Float64bits(t.CPU.Limit), t.Memory.Limit,
		uint64(t.CPU.level), uint64(t.Memory.level), bit(t.CPU.Exhausted), bit(t.Memory.Exhausted), t.Changes.Shed, t.Changes.Returned)
	if t.measured {
		w = append(w, math.Float64bits(t.CPU.Used), t.Memory.Used)
	}
	for range len(t.CPU.Shed) + len(t.Memory.Shed) {
		w = append(w, 1)
	}
	for i := range t.Programs {
		w = append(w, math.Float64bits(t.Programs[i].CPU), math.Float64bits(t.Programs[i].Rate))
		if t.Programs[i].counted {
			w = append(w, t.Programs[i].missed)
		}
	}
	f.End = s.mono()
	return nil
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func sameProgram(a, b ProgramCost) bool {
	return a.Probe == b.Probe && a.Program == b.Program && a.counted == b.counted
}

// rebuild makes the schema, in the order in which Read appends.
func (s *Source) rebuild(t *Status) error {
	var series []metric.Series
	add := func(d *metric.Desc, values ...string) {
		series = append(series, metric.Series{Desc: d, Values: values, Start: s.start})
	}
	add(cpuLimit)
	add(memoryLimit)
	add(level, "cpu")
	add(level, "memory")
	add(exhausted, "cpu")
	add(exhausted, "memory")
	add(changes, "shed")
	add(changes, "returned")
	if t.measured {
		add(cpuUsed)
		add(memoryUsed)
	}
	for _, name := range t.CPU.Shed {
		add(shedding, "cpu", name)
	}
	for _, name := range t.Memory.Shed {
		add(shedding, "memory", name)
	}
	for _, p := range t.Programs {
		add(programCPU, p.Probe, p.Program)
		add(programRun, p.Probe, p.Program)
		if p.counted {
			add(programMissed, p.Probe, p.Program)
		}
	}
	schema, err := metric.NewSchema(s.Name(), series)
	s.schema, s.measured = schema, t.measured
	s.programs, s.shed = slices.Clone(t.Programs), [2][]string{slices.Clone(t.CPU.Shed), slices.Clone(t.Memory.Shed)}
	return err
}

// SPDX-License-Identifier: Apache-2.0

// Package budget keeps the agent within what it may cost: it measures the CPU
// time and memory of the process and of its programs in the kernel, sheds in a
// declared order what costs too much, and brings it back when there is room.
//
// Three parts know nothing of each other: Machine decides, Budget measures and
// tells, and a House, which is the agent as a whole, does what was decided.
package budget

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Program is what a program of a probe has cost so far. Runs and Time grow only
// while the kernel measures.
type Program struct {
	Probe, Name string
	Samplers    []string // any of which keeps it attached
	Runs        uint64
	Time        time.Duration
	Missed      uint64 // times that the kernel did not run it, where Counted
	Counted     bool
}

// Work is how long reading a source has taken so far, and how often it is
// read: Every at most as configured, 0 at every tick.
type Work struct {
	Source string
	Every  time.Duration
	Time   time.Duration
}

// House is what costs, as it is measured and as it is changed.
type House interface {
	// Measure has the kernel time all programs until it is closed.
	Measure() (io.Closer, error)
	// Programs appends the programs that are attached.
	Programs(to []Program) []Program
	// Works are the sources, in the same order each time, and how often the
	// consumer comes who comes most often.
	Works() (works []Work, tick time.Duration)
	// Aside is the CPU time that answering people has taken, which no
	// shedding saves, and which they can see for themselves.
	Aside() time.Duration
	// KernelBytes is the kernel's memory that is not mapped into the process.
	KernelBytes() uint64
	// Memory is what each lever of memory saves, in bytes.
	Memory() []Cost
	// ShedCPU and ShedMemory bring about that of their levers exactly these
	// are shed.
	ShedCPU(levers []string) error
	ShedMemory(levers []string) error
}

// Options of a budget.
type Options struct {
	CPU      float64       // the share of the machine that may be used, of 1
	CPUs     int           // of the machine
	Memory   uint64        // bytes, of the process and in the kernel together
	Interval time.Duration // from one decision to the next
	Samplers []Lever       // that can be shed, of CPU
	House    House
	Log      *slog.Logger
	Usage    func() (Usage, error) // of the process; nil: as the kernel tells
}

// Usage is what a process takes.
type Usage struct {
	CPU      time.Duration // so far
	Resident uint64        // bytes, now
}

// Budget watches over one agent.
type Budget struct {
	Options
	cpu, memory *Machine
	last        sample
	measured    []ProgramCost

	mu     sync.Mutex
	status Status
}

// sample is what is known at one moment.
type sample struct {
	at    time.Time
	usage Usage
	aside time.Duration
	works []Work
}

// New returns a budget that has not measured yet.
func New(o Options) *Budget {
	if o.Usage == nil {
		o.Usage = processUsage
	}
	b := &Budget{Options: o, cpu: NewMachine(o.CPU, append(paceLevers(), o.Samplers...)),
		memory: NewMachine(float64(o.Memory), memoryLevers())}
	b.status = Status{Interval: o.Interval.Seconds(), Measured: b.window().Seconds(),
		CPU:    CPU{Limit: o.CPU, Level: None.String(), Shed: []string{}},
		Memory: Memory{Limit: o.Memory, Level: None.String(), Shed: []string{}}}
	return b
}

// window is how long the kernel measures the programs in each interval: long
// enough for some thousand events, and short enough to cost nothing.
func (b *Budget) window() time.Duration { return min(100*time.Millisecond, b.Interval/10) }

// Run measures and decides once an interval until ctx ends. An error means
// that the agent cannot know what it costs.
func (b *Budget) Run(ctx context.Context) error {
	if err := b.note(&b.last); err != nil {
		return err
	}
	for {
		// Not in step with anything that happens every so many seconds.
		jitter := rand.N(b.Interval/5+1) - b.Interval/10
		if !sleep(ctx, b.Interval-b.window()+jitter) {
			return nil
		}
		programs, ok := b.measure(ctx)
		if !ok {
			return nil
		}
		var now sample
		if err := b.note(&now); err != nil {
			return err
		}
		b.decide(now, programs)
		b.last = now
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (b *Budget) note(s *sample) error {
	usage, err := b.Usage()
	if err != nil {
		return fmt.Errorf("measure the agent: %w", err)
	}
	works, _ := b.House.Works()
	*s = sample{time.Now(), usage, b.House.Aside(), slices.Clone(works)}
	return nil
}

// measure is what each program costs, as one window shows it. Where the kernel
// cannot measure, there are none.
func (b *Budget) measure(ctx context.Context) (programs []ProgramCost, ok bool) {
	stats, err := b.House.Measure()
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.status.Unmeasured == "" {
			b.Log.Warn("the kernel does not measure BPF programs; the budget covers the agent alone", "error", err)
		}
		b.status.Unmeasured = err.Error()
		return nil, true
	}
	began := time.Now()
	before := b.House.Programs(nil)
	ok = sleep(ctx, b.window())
	after := b.House.Programs(nil)
	took := time.Since(began)
	if err := stats.Close(); err != nil {
		b.Log.Warn("the kernel may go on to measure BPF programs", "error", err)
	}
	for i, p := range after {
		if i >= len(before) || p.Name != before[i].Name || p.Probe != before[i].Probe || took <= 0 {
			return nil, ok // attached meanwhile, as nobody does
		}
		runs, spent := p.Runs-before[i].Runs, p.Time-before[i].Time
		programs = append(programs, ProgramCost{Probe: p.Probe, Program: p.Name, CPU: float64(spent) / float64(took),
			Rate: float64(runs) / took.Seconds(), samplers: p.Samplers, missed: p.Missed, counted: p.Counted})
	}
	b.smooth(programs)
	return programs, ok
}

// smooth gives half of the weight to the windows before: the load of a busy
// machine comes in bursts, and one window is off by as much as it measures
// (docs/journal/2026-11-21-overhead-budget.md). What was not attached then has
// no past.
func (b *Budget) smooth(programs []ProgramCost) {
	for i := range programs {
		p := &programs[i]
		if j := slices.IndexFunc(b.measured, func(m ProgramCost) bool { return sameProgram(m, *p) }); j >= 0 {
			p.CPU = (p.CPU + b.measured[j].CPU) / 2
			p.Rate = (p.Rate + b.measured[j].Rate) / 2
		}
	}
	b.measured = programs
}

// decide takes one step of both machines.
func (b *Budget) decide(now sample, programs []ProgramCost) {
	elapsed := float64(now.at.Sub(b.last.at))
	if elapsed <= 0 {
		return
	}
	machine := elapsed * float64(max(1, b.CPUs))
	agent := max(0, float64(now.usage.CPU-b.last.usage.CPU-(now.aside-b.last.aside))/machine)
	probes := 0.0
	for _, p := range programs {
		probes += p.CPU / float64(max(1, b.CPUs))
	}
	reading := Reading{Used: agent + probes, Costs: b.costs(now, programs, machine)}
	kernel := b.House.KernelBytes()
	bytes := now.usage.Resident + kernel
	exhausted := [2]bool{b.cpu.Exhausted(), b.memory.Exhausted()}
	shed := b.cpu.Step(reading)
	freed := b.memory.Step(Reading{float64(bytes), b.House.Memory()})
	b.publish(func(s *Status) {
		s.CPU = CPU{b.CPU, reading.Used, agent, probes, b.cpu.Level().String(), b.cpu.Exhausted(), names(b.cpu), b.cpu.Level()}
		s.Memory = Memory{b.Memory, bytes, now.usage.Resident, kernel, b.memory.Level().String(), b.memory.Exhausted(), names(b.memory), b.memory.Level()}
		s.Programs, s.measured = programs, true
		s.changed(shed)
		s.changed(freed)
	})
	share := func(v float64) string { return fmt.Sprintf("%.3g%%", 100*v) }
	mib := func(v float64) string { return fmt.Sprintf("%.1fMiB", v/(1<<20)) }
	b.apply("cpu", b.cpu, shed, b.House.ShedCPU, share, reading.Used, exhausted[0])
	b.apply("memory", b.memory, freed, b.House.ShedMemory, mib, float64(bytes), exhausted[1])
}

// costs are what each lever of CPU saves, as shares of the machine.
func (b *Budget) costs(now sample, programs []ProgramCost, machine float64) (costs []Cost) {
	for _, p := range programs {
		costs = append(costs, Cost{p.CPU / float64(max(1, b.CPUs)), p.samplers})
	}
	works, tick := b.House.Works()
	var slow, fast float64
	for i, w := range now.works {
		if i >= len(b.last.works) || i >= len(works) {
			break
		}
		share := float64(w.Time-b.last.works[i].Time) / machine
		costs = append(costs, Cost{share, []string{w.Source}})
		if w.Every > 0 {
			slow += share
		} else {
			fast += share
		}
	}
	return append(costs, paceCosts(b.cpu.Shed(), slow, fast, tick)...)
}

// apply does what was decided, and says so in the log, a line a change.
func (b *Budget) apply(resource string, m *Machine, changes []Change, do func([]string) error, show func(float64) string, used float64, exhausted bool) {
	about := []any{"resource", resource, "used", show(used), "budget", show(m.limit)}
	for _, c := range changes {
		if c.Shed {
			b.Log.Warn("over the budget: shed "+c.Name, append(about, "saves", show(c.Saves), "level", m.Level())...)
		} else {
			b.Log.Info("within the budget: bring back "+c.Name, append(about, "because", c.Reason, "level", m.Level())...)
		}
	}
	if m.Exhausted() && !exhausted {
		b.Log.Warn("over the budget, and nothing is left to shed that would help", about...)
	}
	if len(changes) == 0 {
		return
	}
	if err := do(m.Shed()); err != nil {
		b.Log.Warn("the budget cannot change what runs", "resource", resource, "error", err)
	}
}

func names(m *Machine) []string { return append([]string{}, m.Shed()...) }

// ProgramCost is what one program costs, as the last windows showed it.
type ProgramCost struct {
	Probe    string  `json:"probe"`
	Program  string  `json:"program"`
	CPU      float64 `json:"cpu"`             // of one CPU
	Rate     float64 `json:"runs_per_second"` //
	samplers []string
	missed   uint64
	counted  bool
}

// Status is how the budget is kept.
type Status struct {
	Interval float64 `json:"interval_seconds"`
	// Measured is how long the kernel times the programs in each interval.
	Measured   float64       `json:"measured_seconds"`
	Unmeasured string        `json:"unmeasured,omitempty"` // why the kernel does not
	CPU        CPU           `json:"cpu"`
	Memory     Memory        `json:"memory"`
	Changes    Changes       `json:"changes"`
	Programs   []ProgramCost `json:"programs,omitempty"` // the dearest first
	measured   bool
}

// CPU is CPU time as shares of the machine, all its CPUs together.
type CPU struct {
	Limit     float64  `json:"limit"`
	Used      float64  `json:"used"`
	Agent     float64  `json:"agent"`
	Probes    float64  `json:"probes"` // estimated from the windows
	Level     string   `json:"level"`
	Exhausted bool     `json:"exhausted"` // over the budget, and nothing is left that would help
	Shed      []string `json:"shed"`      // in the order in which it was
	level     Class
}

// Memory is memory in bytes.
type Memory struct {
	Limit     uint64   `json:"limit"`
	Used      uint64   `json:"used"`
	Resident  uint64   `json:"resident"` // of the process, with the maps that it has mapped
	Kernel    uint64   `json:"kernel"`   // of maps and programs beside those
	Level     string   `json:"level"`
	Exhausted bool     `json:"exhausted"`
	Shed      []string `json:"shed"`
	level     Class
}

// Changes counts what was shed and what came back.
type Changes struct {
	Shed     uint64 `json:"shed"`
	Returned uint64 `json:"returned"`
}

func (s *Status) changed(changes []Change) {
	for _, c := range changes {
		if c.Shed {
			s.Changes.Shed++
		} else {
			s.Changes.Returned++
		}
	}
}

func (b *Budget) publish(set func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	set(&b.status)
}

// Status says how the budget is kept, as of the last interval.
func (b *Budget) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.status
	s.Programs = slices.Clone(s.Programs)
	slices.SortStableFunc(s.Programs, func(x, y ProgramCost) int { return cmp.Compare(y.CPU, x.CPU) })
	return s
}

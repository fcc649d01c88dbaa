// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// tickPower is the grouping power of the histogram of tick durations.
const tickPower = hist.Default

// ProgramCost is what one BPF program has cost, while the kernel measures.
type ProgramCost struct {
	Sampler, Program string
	Runs, RunNs      uint64
}

// Self is what the agent publishes of itself and cannot know by itself. Each
// may be nil: then it is not published.
type Self struct {
	Off          bool                              // publish nothing at all
	KernelMemory func() uint64                     // bytes of BPF maps and programs
	Programs     func([]ProgramCost) []ProgramCost // appends; empty while not measured
}

const sampler = "rezolus_rusage"

func counter(name, help string, unit metric.Unit, keys ...string) *metric.Desc {
	return &metric.Desc{Name: name, Help: help, Unit: unit, Kind: metric.Counter, Keys: keys, Sampler: sampler}
}

var (
	selfCPU      = counter("rezolus_cpu_usage", "CPU time of the agent", metric.Nanoseconds, "state")
	selfReclaims = counter("rezolus_memory_page_reclaims", "page faults of the agent without input", metric.None)
	selfFaults   = counter("rezolus_memory_page_faults", "page faults of the agent that read from a disk", metric.None)
	selfBlocks   = counter("rezolus_blockio_operations", "reads and writes of the agent that reached a disk", metric.None, "op")
	selfSwitches = counter("rezolus_context_switch", "context switches of the agent", metric.None, "kind")
	selfTicks    = counter("rezolus_ticks", "ticks the agent took", metric.None)
	selfMissed   = counter("rezolus_ticks_missed", "ticks that consumers were due and the agent was too late for", metric.None)
	selfDropped  = counter("rezolus_ticks_dropped", "ticks that found a consumer's mailbox full", metric.None)
	sourceSpent  = counter("rezolus_source_read_duration", "time spent reading a source", metric.Nanoseconds, "source")
	sourceErrors = counter("rezolus_source_errors", "reads of a source that failed", metric.None, "source")
	sourceLost   = counter("rezolus_lost_events", "events that a source could not attribute", metric.None, "source")
	programRuns  = counter("rezolus_bpf_run_count", "runs of a BPF program while the kernel counted", metric.None, "program", "sampler")
	programTime  = counter("rezolus_bpf_run_time", "time in a BPF program while the kernel measured", metric.Nanoseconds, "program", "sampler")
	selfTick     = &metric.Desc{Name: "rezolus_tick_duration", Help: "time the agent took for a tick", Unit: metric.Nanoseconds,
		Kind: metric.Histogram, Power: tickPower, Sampler: sampler}
	selfRSS = &metric.Desc{Name: "rezolus_memory_usage_resident_set_size", Help: "memory of the agent now",
		Unit: metric.Bytes, Kind: metric.Gauge, Sampler: sampler}
	selfKernel = &metric.Desc{Name: "rezolus_memory_usage_kernel", Help: "kernel memory of the agent's BPF maps and programs",
		Unit: metric.Bytes, Kind: metric.Gauge, Sampler: sampler}
)

// SelfDescs describe the metrics that an agent has of itself.
func SelfDescs() []*metric.Desc {
	return []*metric.Desc{selfCPU, selfRSS, selfKernel, selfReclaims, selfFaults, selfBlocks, selfSwitches, selfTicks, selfMissed,
		selfDropped, selfTick, sourceSpent, sourceErrors, sourceLost, programRuns, programTime}
}

// self is the agent as one of its own sources.
type self struct {
	agent    *Agent
	hooks    Self
	statm    *os.File
	buf      [256]byte
	programs []ProgramCost
	schema   *metric.Schema
	named    []ProgramCost // programs of the schema, in its order
}

func newSelf(a *Agent, hooks Self) *self { return &self{agent: a, hooks: hooks} }

// Name is "rezolus".
func (s *self) Name() string { return "rezolus" }

func (s *self) Read(f *metric.Frame) error {
	f.Begin = s.agent.clock.Mono()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return fmt.Errorf("getrusage: %w", err)
	}
	rss, err := s.resident()
	if err != nil {
		return err
	}
	if s.hooks.Programs != nil {
		s.programs = s.hooks.Programs(s.programs[:0])
	}
	if s.schema == nil || !slices.EqualFunc(s.named, s.programs, sameProgram) {
		if err := s.rebuild(); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	w := append(f.Values[:0],
		uint64(usage.Utime.Nano()), uint64(usage.Stime.Nano()), uint64(usage.Minflt), uint64(usage.Majflt),
		uint64(usage.Inblock), uint64(usage.Oublock), uint64(usage.Nvcsw), uint64(usage.Nivcsw),
		s.agent.stats.ticks.Load(), s.agent.stats.missed.Load(), s.agent.stats.dropped.Load(), rss)
	if s.hooks.KernelMemory != nil {
		w = append(w, s.hooks.KernelMemory())
	}
	for i := range s.agent.stats.durations {
		w = append(w, s.agent.stats.durations[i].Load())
	}
	for _, r := range s.agent.sources {
		w = append(w, r.spent.Load(), r.errors.Load(), r.lost.Load())
	}
	for _, p := range s.programs {
		w = append(w, p.Runs, p.RunNs)
	}
	f.End = s.agent.clock.Mono()
	return nil
}

// rebuild makes the schema, in the order in which Read appends.
func (s *self) rebuild() error {
	start := s.agent.run.Started
	var series []metric.Series
	add := func(d *metric.Desc, values ...string) {
		series = append(series, metric.Series{Desc: d, Values: values, Start: start})
	}
	add(selfCPU, "user")
	add(selfCPU, "system")
	add(selfReclaims)
	add(selfFaults)
	add(selfBlocks, "read")
	add(selfBlocks, "write")
	add(selfSwitches, "voluntary")
	add(selfSwitches, "involuntary")
	add(selfTicks)
	add(selfMissed)
	add(selfDropped)
	add(selfRSS)
	if s.hooks.KernelMemory != nil {
		add(selfKernel)
	}
	add(selfTick)
	for _, r := range s.agent.sources {
		add(sourceSpent, r.Name())
		add(sourceErrors, r.Name())
		add(sourceLost, r.Name())
	}
	for _, p := range s.programs {
		add(programRuns, p.Program, p.Sampler)
		add(programTime, p.Program, p.Sampler)
	}
	schema, err := metric.NewSchema(s.Name(), series)
	s.schema, s.named = schema, slices.Clone(s.programs)
	return err
}

func sameProgram(a, b ProgramCost) bool { return a.Sampler == b.Sampler && a.Program == b.Program }

// resident is the second number of /proc/self/statm in bytes (proc(5)): what
// is resident now, unlike getrusage's maximum.
func (s *self) resident() (uint64, error) {
	if s.statm == nil {
		f, err := os.Open("/proc/self/statm")
		if err != nil {
			return 0, err
		}
		s.statm = f
	}
	n, err := unix.Pread(int(s.statm.Fd()), s.buf[:], 0)
	if err != nil {
		return 0, fmt.Errorf("read /proc/self/statm: %w", err)
	}
	_, rest, _ := bytes.Cut(s.buf[:n], []byte(" "))
	field, _, _ := bytes.Cut(rest, []byte(" "))
	pages, err := strconv.ParseUint(string(field), 10, 64)
	return pages * uint64(unix.Getpagesize()), err
}

func (s *self) Close() error {
	if s.statm == nil {
		return nil
	}
	return s.statm.Close()
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/agent"
	"rezolus/internal/bpf"
	"rezolus/internal/budget"
	"rezolus/internal/host"
	"rezolus/internal/store"
)

// classes are the samplers that go first, as detail that few look at, and the
// essential ones that stay whatever they cost. Every other sampler, and those
// of a user's own probes, is ordinary and goes between the two.
var classes = map[budget.Class][]string{
	budget.Optional: {
		"syscall_latency", "network_sizes", "tcp_traffic", "udp_traffic", "tcp_packet_latency", "tcp_receive",
		"cpu_vectors", "cpu_tlb_flush", "cpu_idle_periods", "cpu_softirq_latency", "fs_latency", "fs_ext4",
		"memory_fault_latency", "memory_fault_exceptions", "memory_page_cache", "memory_page_cache_reads",
		"memory_writeback", "memory_compaction", "scheduler_interference", "usercall", "task_cpu_usage", "interrupts",
		"memory_buddyinfo", "cpu_l3", "cpu_dtlb", "cpu_cache", "cpu_branch", "cpu_l3_cgroup", "cpu_dtlb_cgroup",
		"cpu_cache_cgroup", "cpu_branch_cgroup", "cpu_software_cgroup", "external",
	},
	essential: {
		cpuUsage, cpuCores, rusage, "scheduler_runqueue", "blockio_latency", "memory_meminfo", "system", "pressure",
	},
}

// essential is no class that is ever shed.
const essential = budget.None

func classOf(sampler string) budget.Class {
	for class, names := range classes {
		if slices.Contains(names, sampler) {
			return class
		}
	}
	return budget.Ordinary
}

// overhead is the house as its budget sees it. It implements budget.House.
type overhead struct {
	*budget.Budget
	house  *house
	agent  *agent.Agent
	window *store.Window
	mapped uint64 // bytes of maps that are in the resident set too
	kernel uint64 // bytes that are not, as of asked
	asked  time.Time
	aside  atomic.Int64 // nanoseconds of CPU that answering took

	mu   sync.Mutex
	shed []string // samplers and the rest
}

// collect is how much garbage may be made before it is collected, in percent
// of what is in use; tight is it while memory is short.
const (
	collect = 50
	tight   = 20
)

// newOverhead gives the agent a budget. It must be called before anybody
// subscribes.
func (h *house) newOverhead(a *agent.Agent, window *store.Window) *overhead {
	o := &overhead{house: h, agent: a, window: window}
	var levers []budget.Lever
	add := func(sampler string) {
		if class := classOf(sampler); class != essential {
			levers = append(levers, budget.Lever{Name: sampler, Class: class})
		}
	}
	for _, p := range h.probes {
		o.mapped += p.MappedBytes()
		for _, s := range p.Status() {
			add(s.Name)
		}
	}
	for _, s := range h.others {
		add(s.Name)
	}
	if h.things != nil {
		for _, s := range h.things.Slots {
			o.mapped += s.MappedBytes()
		}
	}
	c := h.config.Budget
	o.Budget = budget.New(budget.Options{CPU: c.CPU.Share, CPUs: len(h.host.Online), Memory: uint64(c.Memory),
		Interval: time.Duration(c.Interval), Samplers: levers, House: o, Log: h.log})
	if h.config.Enabled(rusage) {
		a.Add(o.Source(host.Mono), agent.SourceOptions{Every: time.Second})
	}
	return o
}

// Measure implements budget.House.
func (o *overhead) Measure() (io.Closer, error) { return bpf.Measure() }

// Programs implements budget.House.
func (o *overhead) Programs(to []budget.Program) []budget.Program {
	for _, p := range o.house.probes {
		for _, c := range p.Costs(nil) {
			to = append(to, budget.Program{Probe: p.Name(), Name: c.Program, Samplers: c.Samplers, Runs: c.Runs, Time: time.Duration(c.RunNs),
				Missed: c.Missed, Counted: c.Counted})
		}
	}
	return to
}

// Works implements budget.House. How long a read that blocks takes says
// nothing of what it costs.
func (o *overhead) Works() (works []budget.Work, tick time.Duration) {
	s := o.agent.Status()
	spent := map[string]uint64{}
	for _, e := range s.Sources {
		spent[e.Name] = e.ReadNs
	}
	for _, r := range o.house.sources {
		if !r.Blocking {
			works = append(works, budget.Work{Source: r.Name(), Every: r.Every, Time: time.Duration(spent[r.Name()])})
		}
	}
	tick = agent.MaxInterval
	for _, c := range s.Consumers {
		tick = min(tick, time.Duration(c.Interval*float64(time.Second)))
	}
	return works, tick
}

// Aside implements budget.House.
func (o *overhead) Aside() time.Duration { return time.Duration(o.aside.Load()) }

// count has the CPU time that a handler takes be none of the budget's. What it
// leaves to other threads still is.
func (o *overhead) count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before := threadTime()
		defer func() { o.aside.Add(threadTime() - before) }()
		h.ServeHTTP(w, r)
	})
}

// threadTime is the CPU time of this thread in nanoseconds.
func threadTime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // there is always this clock
	return t.Nano()
}

// KernelBytes implements budget.House. To ask for every map and program takes
// 2 ms, and they hardly change: once a minute will do.
func (o *overhead) KernelBytes() uint64 {
	if now := time.Now(); o.asked.IsZero() || now.Sub(o.asked) > time.Minute {
		all := o.house.kernelBytes()
		o.kernel, o.asked = all-min(all, o.mapped), now
	}
	return o.kernel
}

// Memory implements budget.House.
func (o *overhead) Memory() []budget.Cost {
	window := float64(o.window.Bytes())
	now := int(o.house.config.Window.Memory) / budget.WindowShare(o.levers())
	var costs []budget.Cost
	for _, name := range []string{budget.WindowHalf, budget.WindowQuarter, budget.WindowEighth} {
		limit := float64(int(o.house.config.Window.Memory) / budget.WindowShare([]string{name}))
		if limit < float64(now) {
			costs = append(costs, budget.Cost{Amount: max(0, window-limit), Levers: []string{name}})
			window = min(window, limit)
		}
	}
	return append(costs, budget.Cost{Amount: garbage(), Levers: []string{budget.Garbage}})
}

// garbage is about how many bytes the process would give back if it collected
// at once, and kept little for later.
func garbage() float64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(s)
	return max(0, float64(s[0].Value.Uint64())-float64(s[1].Value.Uint64())) + float64(s[2].Value.Uint64())
}

// ShedCPU implements budget.House.
func (o *overhead) ShedCPU(levers []string) error {
	o.mu.Lock()
	o.shed = append(slices.DeleteFunc(o.shed, func(l string) bool { return !ofMemory(l) }), levers...)
	o.mu.Unlock()
	var errs []error
	for _, p := range o.house.probes {
		errs = append(errs, p.Shed(levers))
	}
	for _, s := range o.house.sources {
		every := budget.Pace(levers, s.Every)
		if slices.Contains(levers, s.Name()) {
			every = -1
		}
		o.agent.SetPace(s.Name(), every)
	}
	return errors.Join(errs...)
}

// ShedMemory implements budget.House.
func (o *overhead) ShedMemory(levers []string) error {
	o.mu.Lock()
	o.shed = append(slices.DeleteFunc(o.shed, ofMemory), levers...)
	o.mu.Unlock()
	percent := collect
	if slices.Contains(levers, budget.Garbage) {
		percent = tight
	}
	debug.SetGCPercent(percent)
	o.window.Resize(int(o.house.config.Window.Memory) / budget.WindowShare(levers))
	debug.FreeOSMemory()
	return nil
}

func ofMemory(lever string) bool {
	return slices.Contains([]string{budget.Garbage, budget.WindowHalf, budget.WindowQuarter, budget.WindowEighth}, lever)
}

func (o *overhead) levers() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.shed)
}

// mark says in the status of samplers which of them are shed, and why.
func (o *overhead) mark(samplers []bpf.SamplerStatus) {
	if o == nil {
		return
	}
	s, shed := o.Status(), o.levers()
	for i := range samplers {
		if e := &samplers[i]; slices.Contains(shed, e.Name) && (e.State == bpf.Healthy || e.State == bpf.Shed) {
			e.State = bpf.Shed
			e.Reason = fmt.Sprintf("shed to keep the budget of %.3g%% of the machine's CPU time (now %.3g%%)", 100*s.CPU.Limit, 100*s.CPU.Used)
		}
	}
}

// budgetLine is what people are told of the budget.
func budgetLine(s *budget.Status) string {
	line := fmt.Sprintf("budget: %.3g%% of %.3g%% CPU, %d of %d MiB", 100*s.CPU.Used, 100*s.CPU.Limit, s.Memory.Used>>20, s.Memory.Limit>>20)
	if shed := append(slices.Clone(s.CPU.Shed), s.Memory.Shed...); len(shed) > 0 {
		line += "; shed: " + strings.Join(shed, ", ")
	}
	return line
}

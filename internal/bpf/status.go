// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"io"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// State is how a sampler or a program fares.
type State string

// The states. Degraded is for a sampler that publishes less than it could,
// Failed for one that a fix of rights, configuration or code would bring back.
const (
	Healthy     State = "healthy"
	Degraded    State = "degraded"
	Unsupported State = "unsupported"
	Failed      State = "failed"
	Disabled    State = "disabled"
	Shed        State = "shed" // for a while, to keep the budget
)

// SamplerStatus is how one sampler of a probe fares.
type SamplerStatus struct {
	Name     string          `json:"name"`
	State    State           `json:"state"`
	Reason   string          `json:"reason,omitempty"`
	Programs []ProgramStatus `json:"programs,omitempty"`
}

// ProgramStatus is one hook of a probe: what runs there and what it costs.
type ProgramStatus struct {
	Name         string    `json:"name"`
	Hook         string    `json:"hook,omitempty"` // the section of the program that is attached
	State        State     `json:"state"`
	Tried        []Attempt `json:"tried,omitempty"` // better rungs that did not hold
	Instructions int       `json:"instructions,omitempty"`
	// RunCount and RunTimeNs are counted by the kernel only while somebody
	// asks (Measure, or sysctl kernel.bpf_stats_enabled).
	RunCount  uint64 `json:"run_count"`
	RunTimeNs uint64 `json:"run_time_ns"`
	// Missed is how often the kernel did not run the program because
	// another one ran on that CPU (Linux 5.12).
	Missed uint64 `json:"missed"`
}

// Status is how the samplers of the probe fare, sorted by name.
func (p *Probe) Status() []SamplerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []SamplerStatus
	for _, name := range p.object.Samplers() {
		s := SamplerStatus{Name: name, State: Healthy}
		if !p.enabled[name] {
			s.State, s.Reason = Disabled, "switched off in the configuration"
			all = append(all, s)
			continue
		}
		if p.idle {
			s.State, s.Reason = Disabled, "no function is named; add [[functions]] to the configuration"
			all = append(all, s)
			continue
		}
		for _, a := range p.hooks {
			if slices.Contains(a.needs, name) {
				s.Programs = append(s.Programs, a.status())
			}
		}
		s.judge()
		if p.publishes(name) && s.State != Healthy {
			s.State = Degraded // some functions
		}
		if p.shed[name] && s.State == Healthy {
			s.State, s.Reason = Shed, "detached to keep the budget"
		}
		all = append(all, s)
	}
	return all
}

// judge is the sampler's state from its programs': it needs them all.
func (s *SamplerStatus) judge() {
	var reasons []string
	for _, p := range s.Programs {
		if p.State == Healthy || p.State == Shed {
			continue
		}
		if s.State != Failed {
			s.State = p.State
		}
		var tried []string
		for _, t := range p.Tried {
			tried = append(tried, t.Hook+": "+t.Reason)
		}
		reasons = append(reasons, strings.Join(tried, "; "))
	}
	s.Reason = strings.Join(reasons, "; ")
}

func (a *attached) status() ProgramStatus {
	s := ProgramStatus{Name: a.name, Hook: a.section, State: Healthy, Tried: a.tried}
	if a.program == nil {
		s.State = Unsupported
		for _, t := range a.tried {
			if !t.Unsupported {
				s.State = Failed
			}
		}
		return s
	}
	s.Instructions = instructionCount(a.program)
	if stats, err := a.program.Stats(); err == nil {
		s.RunCount, s.RunTimeNs = stats.RunCount+a.spent.Runs, uint64(stats.Runtime.Nanoseconds())+a.spent.RunNs
		s.Missed = stats.RecursionMisses + a.spent.Missed
	}
	if a.link == nil {
		s.State = Shed
	}
	return s
}

// Cost is what the programs at a hook have cost.
type Cost struct {
	Program     string
	Samplers    []string // that are on and any of which keeps it attached
	Runs, RunNs uint64
	// Missed is how often the kernel did not run the program because another
	// one ran on that CPU, where Counted: from Linux 5.12 on the kernel counts
	// that, always.
	Missed  uint64
	Counted bool
}

// Costs appends the cost of each hook that is attached. Runs and their time grow
// only while the kernel measures.
func (p *Probe) Costs(to []Cost) []Cost {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.hooks {
		if a.link == nil {
			continue
		}
		c := a.cost()
		for _, s := range a.needs {
			if p.enabled[s] && !p.shed[s] {
				c.Samplers = append(c.Samplers, s)
			}
		}
		to = append(to, c)
	}
	return to
}

// cost is that of all programs that ran at the hook.
func (a *attached) cost() Cost {
	c := Cost{Program: a.name, Runs: a.spent.Runs, RunNs: a.spent.RunNs, Missed: a.spent.Missed, Counted: countsMisses(a.program)}
	if stats, err := a.program.Stats(); err == nil {
		c.Missed += stats.RecursionMisses
		c.Runs += stats.RunCount
		c.RunNs += uint64(stats.Runtime.Nanoseconds())
	}
	return c
}

// progInfo is room for what the kernel says of a program: its bpf_prog_info of
// which recursion_misses ends at byte 216 (include/uapi/linux/bpf.h).
type progInfo [216]byte

// countsMisses tells whether the kernel says how often it did not run a program.
// 9ed9e9ba2337 (5.12) appended that to what it says, so the length of it tells.
func countsMisses(program *ebpf.Program) bool {
	ask := &struct {
		fd, length uint32
		info       uint64
		room       progInfo
	}{fd: uint32(program.FD()), length: uint32(len(progInfo{}))}
	var pin runtime.Pinner // the kernel has an address of it that the runtime does not see
	pin.Pin(ask)
	defer pin.Unpin()
	ask.info = uint64(uintptr(unsafe.Pointer(&ask.room)))
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(ask)), unsafe.Offsetof(ask.room))
	return errno == 0 && ask.length == uint32(len(progInfo{}))
}

// Name is the object's name.
func (p *Probe) Name() string { return p.object.Name }

// KernelBytes is the kernel memory of the probe's maps and programs.
func (p *Probe) KernelBytes() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kernelBytes()
}

// MappedBytes is how much of that is mapped, and so in the resident set of the
// process too.
func (p *Probe) MappedBytes() (sum uint64) {
	for _, b := range p.mapped {
		sum += uint64(len(b.bytes))
	}
	return sum
}

// Measure has the kernel count and time every BPF program until the result is
// closed (BPF_ENABLE_STATS, Linux 5.8). It costs some 20 ns a run.
func Measure() (io.Closer, error) { return ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME)) }

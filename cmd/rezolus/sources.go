// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"strings"
	"time"

	"rezolus/internal/agent"
	"rezolus/internal/analyze"
	"rezolus/internal/bpf"
	"rezolus/internal/budget"
	"rezolus/internal/hindsight"
	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
	"rezolus/internal/source/cgroupfs"
	"rezolus/internal/source/clock"
	"rezolus/internal/source/drive"
	"rezolus/internal/source/ethtool"
	"rezolus/internal/source/external"
	"rezolus/internal/source/gpu"
	"rezolus/internal/source/mounts"
	"rezolus/internal/source/perf"
	"rezolus/internal/source/procfs"
	"rezolus/internal/source/scrape"
	"rezolus/internal/source/sysfs"
	"rezolus/internal/source/tasks"
)

// reading is a source and how it is read.
type reading struct {
	agent.Source
	agent.SourceOptions
}

// The samplers that share a source or are the agent's own.
const (
	cpuUsage = "cpu_usage"
	cpuCores = "cpu_cores"
	rusage   = "rezolus_rusage"
	ledger   = "ledger"
)

// plain are the samplers that need no probe.
func (h *house) plain() []source.Sampler {
	mode := host.CgroupMode()
	groups := func(controller string) (cgroupfs.Groups, string) {
		mount := mode.Controller(controller)
		if t := h.track(mount); t != nil {
			return t, mount
		}
		return nil, ""
	}
	all := slices.Concat(procfs.Samplers(), sysfs.Samplers(), mounts.Samplers(), ethtool.Samplers(),
		tasks.Samplers(), clock.Samplers(),
		drive.Samplers(), gpu.Samplers(), cgroupfs.Samplers(cgroupfs.Hierarchies{V1: mode.V1(), Limit: h.config.Cgroups.Max, Groups: groups}))
	var forPerf perf.Groups
	if t := h.track(mode.Mount); t != nil {
		forPerf = t
	}
	all = append(all, perf.Samplers(forPerf, mode.Mount, mode.V1(), 0)...)
	reserved := h.reserved(all)
	e := h.config.External
	all = append(all, external.Samplers(external.Options{Path: e.Path, Group: e.Group, TTL: time.Duration(e.TTL), Reserved: reserved})...)
	return append(all, scrape.Samplers(h.endpoints(), reserved)...)
}

func (h *house) endpoints() (all []scrape.Endpoint) {
	for _, e := range h.config.Scrape {
		all = append(all, scrape.Endpoint{URL: e.URL, Name: e.Name, Prefix: e.Prefix, Interval: time.Duration(e.Interval),
			Timeout: time.Duration(e.Timeout), Counters: e.Counters})
	}
	return all
}

// reserved tells the names of built-in metrics, which others cannot take.
func (h *house) reserved(samplers []source.Sampler) func(string) bool {
	names := map[string]bool{}
	add := func(descs []*metric.Desc) {
		for _, d := range descs {
			names[d.Name] = true
		}
	}
	for _, s := range samplers {
		add(s.Descs)
	}
	for _, o := range h.objects {
		add(o.Descs())
	}
	add(procfs.StatDescs())
	add(cgroupfs.CPUDescs())
	add(agent.SelfDescs())
	add(analyze.LedgerDescs())
	add(budget.Descs())
	add(hindsight.Descs())
	return func(name string) bool { return names[name] }
}

// leastPace is how often files are read at most, unless the configuration says
// otherwise: all of those that could be read at every tick take some 100 us
// together, a tenth of a CPU at a tick a millisecond.
const leastPace = 100 * time.Millisecond

// openPlain opens the samplers that need no probe and are on.
func (h *house) openPlain(samplers []source.Sampler) {
	for _, s := range samplers {
		on := h.config.EnabledOr(s.Name, !s.Off)
		var err error
		if on {
			var src source.Source
			if src, err = s.Open(); err == nil {
				h.sources = append(h.sources, reading{src, agent.SourceOptions{Every: h.pace(s.Name, max(s.Every, leastPace)), Blocking: s.Blocking}})
			}
		}
		h.judge(s.Name, on, s.Reads, err)
	}
	h.openStat()
	h.openLedger()
	h.openHindsight()
	h.judge(rusage, h.config.Enabled(rusage), "getrusage", nil)
}

// pace is how often a sampler is read at most: as the configuration says, else
// as is best for it.
func (h *house) pace(sampler string, usual time.Duration) time.Duration {
	if own := time.Duration(h.config.Samplers[sampler].Interval); own != 0 {
		return own
	}
	return usual
}

// openStat opens the source of two samplers, /proc/stat, and the CPU time of
// cgroups. The kernel shows /proc/stat in steps of 10 ms and a read costs some
// 10 us, and as much again for each cgroup.
func (h *house) openStat() {
	usage, cores := h.config.Enabled(cpuUsage), h.config.Enabled(cpuCores)
	var err error
	if usage || cores {
		var stat *procfs.Stat
		if stat, err = procfs.NewStat(usage, cores); err == nil {
			h.sources = append(h.sources, reading{stat, agent.SourceOptions{Every: h.pace(cpuUsage, 100*time.Millisecond)}})
		}
	}
	h.judge(cpuUsage, usage, "/proc/stat, cgroup file system", err)
	h.judge(cpuCores, cores, "/proc/stat", err)
	mode := host.CgroupMode()
	if tracker := h.track(mode.CPUAcct); usage && tracker != nil {
		h.sources = append(h.sources, reading{cgroupfs.NewCPU(tracker, mode.CPUAcct, mode.V1(), h.config.Cgroups.Max),
			agent.SourceOptions{Every: h.pace(cpuUsage, time.Second)}})
	}
}

func (h *house) judge(name string, enabled bool, hook string, err error) {
	s := bpf.SamplerStatus{Name: name, State: bpf.Healthy, Programs: []bpf.ProgramStatus{{Name: name, Hook: hook, State: bpf.Healthy}}}
	switch {
	case !enabled:
		s = bpf.SamplerStatus{Name: name, State: bpf.Disabled, Reason: "switched off in the configuration"}
	case errors.Is(err, source.ErrUnsupported):
		s = bpf.SamplerStatus{Name: name, State: bpf.Unsupported, Reason: strings.TrimPrefix(err.Error(), source.ErrUnsupported.Error()+": ")}
	case err != nil:
		s = bpf.SamplerStatus{Name: name, State: bpf.Failed, Reason: err.Error()}
	}
	h.others = append(h.others, s)
}

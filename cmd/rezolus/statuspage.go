// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"time"

	"rezolus/internal/agent"
	"rezolus/internal/bpf"
	"rezolus/internal/budget"
	"rezolus/internal/config"
	"rezolus/internal/hindsight"
	"rezolus/internal/query"
)

// statusDocument is /status.
type statusDocument struct {
	agent.Status
	TTL         float64             `json:"ttl_seconds"`
	KernelBytes uint64              `json:"kernel_bytes"`
	Cgroups     cgroupStatus        `json:"cgroups"`
	Budget      *budget.Status      `json:"budget,omitempty"`
	Hindsight   []hindsight.Status  `json:"hindsight,omitempty"`
	Samplers    []bpf.SamplerStatus `json:"samplers"`
}

type cgroupStatus struct {
	Hierarchy string `json:"hierarchy"`
	Tracked   int    `json:"tracked"`
	// Overflow counts cgroups that found no slot and are in "other".
	Overflow uint64 `json:"overflow"`
	// Members are the cgroups, with what their paths tell.
	Members []cgroupMember `json:"members,omitempty"`
}

type cgroupMember struct {
	Path      string `json:"path"`
	Unit      string `json:"systemd_unit,omitempty"`
	Container string `json:"container_id,omitempty"`
}

// maxMeasure bounds how long a request may have every BPF program timed.
const maxMeasure = 10 * time.Second

// statusHandler serves /status, and /status?measure=1s, for which the kernel
// counts and times the programs for that long before it is answered.
func (h *house) statusHandler(a *agent.Agent) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := r.FormValue("measure"); text != "" {
			if err := measure(r.Context(), text); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		d := statusDocument{Status: a.Status(), TTL: time.Duration(h.config.General.TTL).Seconds(),
			KernelBytes: h.kernelBytes(), Hindsight: h.rings.Status(), Samplers: h.samplers(), Cgroups: h.cgroupStatus()}
		if h.overhead != nil {
			s := h.overhead.Status()
			d.Budget = &s
		}
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(d) // the client went away: nobody to tell
	})
}

func measure(ctx context.Context, text string) error {
	d, err := config.ParseDuration(text)
	if err != nil || d > maxMeasure {
		return fmt.Errorf("measure=%s: want a duration of at most %v", text, maxMeasure)
	}
	stats, err := bpf.Measure()
	if err != nil {
		return fmt.Errorf("have the kernel measure BPF programs: %w", err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return stats.Close()
}

// programs appends what each program has cost. It is asked only where the
// kernel measures all the time (sysctl kernel.bpf_stats_enabled).
func (h *house) programs(to []agent.ProgramCost) []agent.ProgramCost {
	for _, p := range h.probes {
		for _, c := range p.Costs(nil) {
			to = append(to, agent.ProgramCost{Sampler: p.Name(), Program: c.Program, Runs: c.Runs, RunNs: c.RunNs})
		}
	}
	return to
}

// measuresAlways tells whether the kernel times BPF programs all the time.
func measuresAlways() bool {
	text, err := os.ReadFile("/proc/sys/kernel/bpf_stats_enabled")
	return err == nil && len(text) > 0 && text[0] == '1'
}

func buildInfo() query.BuildInfo {
	return query.BuildInfo{Version: version, GoVersion: runtime.Version()}
}

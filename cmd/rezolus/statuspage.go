// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"runtime"
	"time"

	"rezolus/internal/agent"
	"rezolus/internal/bpf"
	"rezolus/internal/query"
)

// statusDocument is /status.
type statusDocument struct {
	agent.Status
	TTL         float64             `json:"ttl_seconds"`
	KernelBytes uint64              `json:"kernel_bytes"`
	Cgroups     cgroupStatus        `json:"cgroups"`
	Samplers    []bpf.SamplerStatus `json:"samplers"`
}

type cgroupStatus struct {
	Hierarchy string `json:"hierarchy"`
	Tracked   int    `json:"tracked"`
	// Overflow counts cgroups that found no slot and are in "other".
	Overflow uint64 `json:"overflow"`
}

func (h *house) statusHandler(a *agent.Agent) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := statusDocument{Status: a.Status(), TTL: time.Duration(h.config.General.TTL).Seconds(),
			KernelBytes: h.kernelBytes(), Samplers: h.samplers(), Cgroups: h.cgroupStatus()}
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(d) // the client went away: nobody to tell
	})
}

func buildInfo() query.BuildInfo {
	return query.BuildInfo{Version: version, GoVersion: runtime.Version()}
}

// SPDX-License-Identifier: Apache-2.0

package main

import "rezolus/internal/bpf"

// trackFunctions makes the slots of the functions that the configuration
// names, which do not come and go.
func (h *house) trackFunctions() {
	if len(h.config.Functions) == 0 || h.things == nil {
		return
	}
	slots, err := bpf.NewFunctionSlots(h.host, len(h.config.Functions), h.objects...)
	if err != nil {
		h.log.Warn("functions are not counted", "error", err) // and the status says so
		return
	}
	h.things.Slots = append(h.things.Slots, slots...)
}

// functions are what the programs of user space are attached to.
func (h *house) functions() (all []bpf.Function) {
	for _, f := range h.config.Functions {
		all = append(all, bpf.Function{Library: f.Library(), Name: f.Label(), File: f.Path, Symbol: f.Function, Timed: f.Latency})
	}
	return all
}

// SPDX-License-Identifier: Apache-2.0

package bpf

import "slices"

// HookOf is one hook that a sampler needs, and the ways to it: the sections
// of its programs, best first.
type HookOf struct {
	Name string
	Ways []string
}

// HooksOf lists the hooks that a sampler needs, all of them.
func (o *Object) HooksOf(sampler string) (all []HookOf) {
	for _, h := range o.hooksOf(sampler) {
		e := HookOf{Name: h.name}
		for _, r := range h.rungs {
			e.Ways = append(e.Ways, r.SectionName)
		}
		e.Ways = slices.Compact(e.Ways) // programs may differ in what they need of the kernel alone
		all = append(all, e)
	}
	return all
}

// SPDX-License-Identifier: Apache-2.0

// Package bpf turns probes into sources: it reads a BPF object's metrics from
// its BTF tags, loads its programs, attaches each by the best hook the kernel
// has, and reads the metrics from mapped memory.
//
// An Object is what an ELF says and needs no kernel; a Probe is what runs.
// Nothing here knows a particular probe: the built-in ones and a user's are
// the same. docs/probes.md has the tags.
package bpf

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"rezolus/internal/metric"
)

// ErrObject is returned for an ELF that is not a probe.
var ErrObject = errors.New("not a usable probe")

// Object is a probe as its ELF describes it.
type Object struct {
	Name  string
	spec  *ebpf.CollectionSpec
	banks []*bankSpec // sorted by map name
	hooks []hook      // sorted by name
}

// hook is a place in the kernel and the programs that can be attached there,
// best first. One of them is enough.
type hook struct {
	name  string
	needs []string // samplers any of which wants it
	rungs []*ebpf.ProgramSpec
}

// Parse reads a probe. The name is the file's, without its ending; it names
// the probe's source.
func Parse(name string, elf io.ReaderAt) (*Object, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(elf)
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w: %w", name, ErrObject, err)
	}
	o := &Object{Name: name, spec: spec}
	for _, m := range slices.Sorted(maps.Keys(spec.Maps)) {
		bank, err := parseBank(spec.Maps[m])
		if err != nil {
			return nil, fmt.Errorf("probe %s: map %s: %w: %w", name, m, ErrObject, err)
		}
		if bank != nil {
			o.banks = append(o.banks, bank)
		}
	}
	if o.hooks, err = parseHooks(spec.Programs); err != nil {
		return nil, fmt.Errorf("probe %s: %w: %w", name, ErrObject, err)
	}
	return o, o.check()
}

// check holds what spans maps and programs.
func (o *Object) check() error {
	seen := map[string]bool{}
	for _, d := range o.Descs() {
		if seen[d.Name] {
			return fmt.Errorf("probe %s: %w: metric %s is declared twice", o.Name, ErrObject, d.Name)
		}
		seen[d.Name] = true
		if err := d.Validate(); err != nil {
			return fmt.Errorf("probe %s: %w: %w", o.Name, ErrObject, err)
		}
	}
	if len(o.hooks) == 0 {
		return fmt.Errorf("probe %s: %w: it has no programs", o.Name, ErrObject)
	}
	if o.ofFunctions() && slices.ContainsFunc(o.hooks, func(h hook) bool { return h.uprobes() == h.uretprobes() }) {
		return fmt.Errorf("probe %s: %w: a probe with programs for uprobe or uretprobe has no others, and none is for both", o.Name, ErrObject)
	}
	samplers := o.Samplers()
	for _, s := range samplers {
		if len(o.hooksOf(s)) == 0 {
			return fmt.Errorf("probe %s: %w: no program has NEEDS(%q)", o.Name, ErrObject, s)
		}
	}
	for _, h := range o.hooks {
		for _, s := range h.needs {
			if !slices.Contains(samplers, s) {
				return fmt.Errorf("probe %s: %w: program %s needs sampler %q, which no metric has", o.Name, ErrObject, h.name, s)
			}
		}
	}
	return nil
}

// Descs describes the metrics of the object, in the order of the source.
func (o *Object) Descs() []*metric.Desc {
	var descs []*metric.Desc
	for _, b := range o.banks {
		for i := range b.members {
			descs = append(descs, b.members[i].desc)
		}
	}
	return descs
}

// Samplers names the switches of the object, sorted.
func (o *Object) Samplers() []string {
	var names []string
	for _, d := range o.Descs() {
		names = append(names, d.Sampler)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// hooksOf are the hooks that a sampler needs, all of them.
func (o *Object) hooksOf(sampler string) []hook {
	var of []hook
	for _, h := range o.hooks {
		if slices.Contains(h.needs, sampler) {
			of = append(of, h)
		}
	}
	return of
}

// rank orders the ways to attach to the same event, cheapest first. Measured:
// tp_btf and raw_tp about 50 ns an event, a classic tracepoint 110, a kprobe
// more; tp_btf reads kernel memory without a helper.
func rank(p *ebpf.ProgramSpec) int {
	kind, _, _ := strings.Cut(p.SectionName, "/")
	return slices.Index([]string{"tp_btf", "raw_tp", "raw_tracepoint", "tp", "tracepoint",
		"fentry", "fexit", "kprobe", "kretprobe", "uprobe.multi", "uretprobe.multi", "uprobe", "uretprobe"}, kind)
}

// parseHooks groups programs by the part of their name before "__".
func parseHooks(programs map[string]*ebpf.ProgramSpec) ([]hook, error) {
	byName := map[string]*hook{}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		p := programs[name]
		if rank(p) < 0 {
			return nil, fmt.Errorf("program %s: no way to attach section %q; use tp_btf, raw_tp, tp, fentry, fexit, kprobe, kretprobe, uprobe or uretprobe", name, p.SectionName)
		}
		base, _, _ := strings.Cut(name, "__")
		if byName[base] == nil {
			byName[base] = &hook{name: base}
		}
		h := byName[base]
		h.rungs = append(h.rungs, p)
		needs, err := parseNeeds(p)
		if err != nil {
			return nil, fmt.Errorf("program %s: %w", name, err)
		}
		h.needs = append(h.needs, needs...)
	}
	var hooks []hook
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		h := byName[name]
		slices.SortStableFunc(h.rungs, func(a, b *ebpf.ProgramSpec) int { return rank(a) - rank(b) })
		slices.Sort(h.needs)
		h.needs = slices.Compact(h.needs)
		hooks = append(hooks, *h)
	}
	return hooks, nil
}

func parseNeeds(p *ebpf.ProgramSpec) ([]string, error) {
	if len(p.Instructions) == 0 {
		return nil, errors.New("it is empty")
	}
	fn := btf.FuncMetadata(&p.Instructions[0])
	if fn == nil {
		return nil, errors.New("it has no BTF; compile with -g")
	}
	for _, tag := range fn.Tags {
		if samplers, ok := strings.CutPrefix(tag, "needs:"); ok {
			return strings.Split(samplers, "|"), nil
		}
	}
	return nil, errors.New("it has no NEEDS(...)")
}

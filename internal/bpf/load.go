// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Host is what the probes must know of the machine they are loaded on.
type Host struct {
	Possible  int          // CPUs that can ever be there: banks
	Online    []int        // CPUs that get series, ascending
	Mono      func() int64 // CLOCK_MONOTONIC in nanoseconds
	Wall      func() int64 // Unix nanoseconds
	KernelBTF bool         // the kernel has BTF of its own: tp_btf and fentry can be tried
	BTF       *Types       // BTF of this kernel from a file, where it has none; else nil
}

// Options say how a probe is loaded.
type Options struct {
	Host    Host
	Enabled func(sampler string) bool
	Slots   []*Slots // a domain each; a probe with banks of another fails to load
	// Functions are what the programs of user space are attached to; they
	// need the slots of NewFunctionSlots.
	Functions []Function
	Cache     *Cache // shared between probes, so that the kernel's BTF is decoded once
}

// slots are those of a domain, or nil.
func (o *Options) slots(domain string) *Slots {
	for _, s := range o.Slots {
		if s.domain.Name == domain {
			return s
		}
	}
	return nil
}

// Probe is an object that runs.
type Probe struct {
	object  *Object
	opts    Options
	enabled map[string]bool // samplers that are on
	source  *Source         // nil when nothing publishes
	mapped  []*mappedBank   // that publish or did
	idle    bool            // its programs are for functions, and none is named

	mu    sync.Mutex // guards what follows, once the probe is loaded
	shed  map[string]bool
	since map[string]int64 // when samplers that were shed came back, Unix nanoseconds
	maps  map[string]*ebpf.Map
	owned []*ebpf.Map // the banks first
	hooks []*attached
}

// Load makes the maps, loads the programs of the samplers that are on and
// attaches them. A hook that cannot be had is no error of Load: the samplers
// that need it publish nothing and Status says why.
func (o *Object) Load(opts Options) (*Probe, error) {
	p := &Probe{object: o, opts: opts, enabled: map[string]bool{}, since: map[string]int64{}, maps: map[string]*ebpf.Map{}}
	p.opts.Cache = nil // so that it can be freed once all are loaded
	for _, s := range o.Samplers() {
		p.enabled[s] = opts.Enabled == nil || opts.Enabled(s)
	}
	if o.ofFunctions() && len(opts.Functions) == 0 {
		p.idle = true
		return p, nil
	}
	if err := p.load(opts); err != nil {
		return nil, errors.Join(fmt.Errorf("load probe %s: %w", o.Name, err), p.Close())
	}
	return p, nil
}

func (p *Probe) load(opts Options) error {
	raiseMemlock()
	spec := p.object.spec.Copy()
	if err := p.configure(spec, opts); err != nil {
		return err
	}
	if err := p.makeMaps(spec, opts); err != nil {
		return err
	}
	if p.object.ofFunctions() {
		if err := p.attachFunctions(spec, opts); err != nil {
			return err
		}
		return p.mapBanks(opts)
	}
	for _, h := range p.object.hooks {
		if slices.ContainsFunc(h.needs, func(s string) bool { return p.enabled[s] }) {
			p.hooks = append(p.hooks, p.attach(h, spec, opts))
		}
	}
	return p.mapBanks(opts)
}

// raiseMemlock lifts the limit that kernels before 5.11 count maps against
// (bpf(2)), as far as it may. Where that is not enough, making a map says so.
func raiseMemlock() {
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil && unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit)
	}
}

// publishes tells whether a sampler is on and has every hook it needs; of the
// functions, any.
func (p *Probe) publishes(sampler string) bool {
	if p.object.ofFunctions() {
		return p.wants(sampler) && slices.ContainsFunc(p.hooks, func(a *attached) bool { return a.program != nil })
	}
	return p.wants(sampler) && !slices.ContainsFunc(p.hooks, func(a *attached) bool {
		return a.program == nil && slices.Contains(a.needs, sampler)
	})
}

// wants tells whether a sampler is on and not shed.
func (p *Probe) wants(sampler string) bool { return p.enabled[sampler] && !p.shed[sampler] }

// publishing is what of a bank publishes.
func (p *Probe) publishing(b *bankSpec) *bankSpec {
	live := *b
	live.members = slices.DeleteFunc(slices.Clone(b.members), func(m member) bool { return !p.publishes(m.desc.Sampler) })
	for i := range live.members {
		live.members[i].since = p.since[live.members[i].desc.Sampler]
	}
	return &live
}

// configure sets the constants and the sizes of maps to what the host has.
func (p *Probe) configure(spec *ebpf.CollectionSpec, opts Options) error {
	set := map[string]any{"rz_arm64": runtime.GOARCH == "arm64"}
	for s := range p.enabled {
		set["sampler_"+s] = p.wants(s)
	}
	for _, s := range opts.Slots {
		s.constants(set)
	}
	for name, value := range set {
		if v := spec.Variables[name]; v != nil {
			if err := v.Set(value); err != nil {
				return fmt.Errorf("set constant %s: %w", name, err)
			}
		}
	}
	for _, m := range spec.Maps {
		if slices.Contains(m.Tags, "bank:cpu") || slices.Contains(m.Tags, "size:cpus") {
			m.MaxEntries = uint32(opts.Host.Possible)
		}
	}
	for _, b := range p.object.banks {
		if b.domain == "" {
			continue
		}
		slots := opts.slots(b.domain)
		if slots == nil {
			return fmt.Errorf("map %s has banks of domain %s, which is not tracked", b.name, b.domain)
		}
		spec.Maps[b.name].MaxEntries = uint32(slots.entries())
		if b.last != "" {
			if slots.ranks == nil {
				return fmt.Errorf("map %s has banks of pairs, and the slots of domain %s were made without them", b.name, b.domain)
			}
			spec.Maps[b.name].MaxEntries = uint32(opts.Host.Possible)
		}
	}
	for _, s := range opts.Slots {
		if m := spec.Maps[s.tableName()]; m != nil {
			m.MaxEntries = s.table.MaxEntries()
		}
		if m := spec.Maps[s.domain.Name+"_ranks"]; m != nil && s.ranks != nil {
			m.MaxEntries = s.ranks.table.MaxEntries()
		}
	}
	return nil
}

// makeMaps makes the banks before any program, so that all programs share
// them, and the tables of the domains replace the object's own.
func (p *Probe) makeMaps(spec *ebpf.CollectionSpec, opts Options) error {
	for _, s := range opts.Slots {
		if spec.Maps[s.tableName()] != nil {
			p.maps[s.tableName()] = s.table
		}
		if s.ranks != nil && spec.Maps[s.domain.Name+"_ranks"] != nil {
			p.maps[s.domain.Name+"_ranks"] = s.ranks.table
		}
	}
	for _, b := range p.object.banks {
		if err := p.makeMap(spec.Maps[b.name]); err != nil {
			return err
		}
	}
	return nil
}

func (p *Probe) makeMap(spec *ebpf.MapSpec) error {
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return fmt.Errorf("make map %s of %d x %d bytes: %w", spec.Name, spec.MaxEntries, spec.ValueSize, err)
	}
	p.maps[spec.Name] = m
	p.owned = append(p.owned, m)
	return nil
}

// only is the part of a collection that one program uses.
func only(spec *ebpf.CollectionSpec, program string) *ebpf.CollectionSpec {
	part := spec.Copy()
	part.Programs = map[string]*ebpf.ProgramSpec{program: part.Programs[program]}
	used := map[string]bool{}
	for _, ins := range part.Programs[program].Instructions {
		if ins.IsLoadFromMap() {
			used[ins.Reference()] = true
		}
	}
	for name := range part.Maps {
		if !used[name] {
			delete(part.Maps, name)
		}
	}
	for name, v := range part.Variables {
		if !used[v.SectionName] {
			delete(part.Variables, name)
		}
	}
	return part
}

// rodata is the map of the constants.
const rodata = ".rodata"

// loadProgram loads one program with the maps the probe has so far and keeps
// those that are new.
func (p *Probe) loadProgram(spec *ebpf.CollectionSpec, name string, opts Options) (*ebpf.Program, error) {
	part := only(spec, name)
	if err := haveMaps(part); err != nil {
		return nil, err
	}
	replace := map[string]*ebpf.Map{}
	for m := range part.Maps {
		if have := p.maps[m]; have != nil {
			replace[m] = have
		}
	}
	c, err := ebpf.NewCollectionWithOptions(part, ebpf.CollectionOptions{
		Programs:        ebpf.ProgramOptions{KernelTypes: opts.Host.BTF},
		MapReplacements: replace,
		Cache:           opts.Cache,
	})
	if err != nil {
		return nil, err
	}
	for m := range part.Maps {
		// The programs of functions have constants of their own.
		if p.object.ofFunctions() && m == rodata {
			p.owned = append(p.owned, c.Maps[m])
			delete(c.Maps, m)
		} else if replace[m] == nil {
			p.maps[m] = c.Maps[m]
			p.owned = append(p.owned, c.Maps[m])
			delete(c.Maps, m)
		}
	}
	program := c.DetachProgram(name)
	c.Close()
	return program, nil
}

// instructionCount is the number of instructions the kernel runs, after the
// verifier removed what the constants switched off; 0 where it does not say.
func instructionCount(program *ebpf.Program) int {
	info, err := program.Info()
	if err != nil {
		return 0
	}
	size, err := info.TranslatedSize()
	if err != nil {
		return 0
	}
	return size / asm.InstructionSize
}

// kernelBytes is the memory of the probe's maps and programs, as the kernel
// accounts it.
func (p *Probe) kernelBytes() uint64 {
	var sum uint64
	for _, m := range p.owned {
		sum += mapBytes(m)
	}
	for _, h := range p.hooks {
		if h.program == nil {
			continue
		}
		if info, err := h.program.Info(); err == nil {
			n, _ := info.Memlock()
			sum += n
		}
	}
	return sum
}

func mapBytes(m *ebpf.Map) uint64 {
	info, err := m.Info()
	if err != nil {
		return 0
	}
	n, _ := info.Memlock()
	return n
}

// Close detaches the programs and frees the maps.
func (p *Probe) Close() error {
	errs := make([]error, len(p.hooks))
	var all sync.WaitGroup
	for i, h := range p.hooks {
		all.Go(func() { errs[i] = h.close() })
	}
	all.Wait()
	if p.source != nil {
		errs = append(errs, p.source.Close())
	}
	for _, m := range p.owned {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// powerOfTwo is the smallest power of two that is not below n.
func powerOfTwo(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// Types is the BTF of a kernel, and Cache keeps it decoded between probes.
type (
	Types = btf.Spec
	Cache = btf.Cache
)

// ReadTypes reads the BTF of a kernel from a file: plain BTF or an ELF with it.
func ReadTypes(path string) (*Types, error) { return btf.LoadSpec(path) }

// NewCache returns an empty cache.
func NewCache() *Cache { return btf.NewCache() }

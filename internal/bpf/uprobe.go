// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
)

// Function is a function in user space whose calls a probe counts. Uprobes
// lie in the file: every process that maps it is seen, also one that starts
// later (Documentation/trace/uprobetracer.rst).
type Function struct {
	Library string // value of the label library
	Name    string // value of the label function; with Library, no two are the same
	File    string // an absolute path, or the name of a library
	Symbol  string // as the ELF file has it; "symbol+0x10" is an instruction in it
	Timed   bool   // its returns are seen too
}

// The domains of functions: all that are counted, and those that are timed.
const (
	countedFunctions = "function"
	timedFunctions   = "timed"
)

// NewFunctionSlots makes the slots for n functions, which go with their probes
// (Options.Functions). Tasks can be taken off the CPU while such a program
// runs (Linux 6.0), so it adds atomically whatever the number of banks.
func NewFunctionSlots(host Host, n int, objects ...*Object) ([]*Slots, error) {
	var all []*Slots
	for _, name := range []string{countedFunctions, timedFunctions} {
		d := Domain{Name: name, Slots: n + 1, Bytes: 4 << 20, Constants: map[string]any{"rz_" + name + "_shared": true}}
		s, err := NewSlots(host, d, objects...)
		if err != nil {
			for _, made := range all {
				err = errors.Join(err, made.Close())
			}
			return nil, err
		}
		// Each function has a slot, so there is nothing else to tell of.
		s.tenants[0].quiet = true
		all = append(all, s)
	}
	return all, nil
}

// ofFunctions tells whether the object's programs are attached to functions in
// user space, which the configuration names.
func (o *Object) ofFunctions() bool {
	return slices.ContainsFunc(o.hooks, func(h hook) bool { return h.uprobes() || h.uretprobes() })
}

func (h hook) uprobes() bool    { return h.in("uprobe", "uprobe.multi") }
func (h hook) uretprobes() bool { return h.in("uretprobe", "uretprobe.multi") }

// in tells whether the programs are all of these kinds.
func (h hook) in(kinds ...string) bool {
	return !slices.ContainsFunc(h.rungs, func(p *ebpf.ProgramSpec) bool { return !slices.Contains(kinds, p.SectionName) })
}

// attachFunctions gives each function instances of the programs of its own,
// which know it by their constants. A function that cannot be attached to is
// said in the status and holds up no other.
func (p *Probe) attachFunctions(spec *ebpf.CollectionSpec, opts Options) error {
	for _, d := range []string{countedFunctions, timedFunctions} {
		if opts.slots(d) == nil {
			return fmt.Errorf("functions are named, but domain %s is not tracked", d)
		}
	}
	files := images{}
	for i, f := range opts.Functions {
		at, err := files.find(f.File, f.Symbol)
		t := &target{Function: f, at: at, thing: Thing{ID: uint64(i + 1), Values: []string{f.Library, f.Name}}}
		if err == nil {
			err = t.link(p, spec, opts)
		}
		if err != nil {
			p.fail(t, hook.uprobes, err)
		}
	}
	return nil
}

// fail notes why a function has no programs of a kind.
func (p *Probe) fail(t *target, kind func(hook) bool, err error) {
	for _, h := range p.object.hooks {
		if kind(h) {
			a := t.attached(h)
			a.tried = []Attempt{t.attempt("", err)}
			p.hooks = append(p.hooks, a)
		}
	}
}

// target is a function that programs are attached to.
type target struct {
	Function
	at    place
	thing Thing
}

// link attaches the returns before the calls, so that no call is counted whose
// return is not seen. A function whose returns cannot be seen is still counted.
func (t *target) link(p *Probe, spec *ebpf.CollectionSpec, opts Options) error {
	part := spec.Copy()
	set := func(name string, value any) error {
		if v := part.Variables[name]; v != nil {
			return v.Set(value)
		}
		return nil
	}
	if err := set("rz_function", uint32(t.thing.ID)); err != nil {
		return err
	}
	timed := false
	if t.Timed {
		if err := t.at.mayTime(); err != nil {
			p.fail(t, hook.uretprobes, fmt.Errorf("its calls are counted but not timed: %w", err))
		} else {
			timed = t.attachAll(p, part, hook.uretprobes, opts.slots(timedFunctions), opts)
		}
	}
	if err := set("rz_timed", timed); err != nil {
		return err
	}
	t.attachAll(p, part, hook.uprobes, opts.slots(countedFunctions), opts)
	return nil
}

// attachAll attaches the programs of one kind, and tells whether all hold.
func (t *target) attachAll(p *Probe, spec *ebpf.CollectionSpec, kind func(hook) bool, slots *Slots, opts Options) bool {
	slots.Born([]Thing{t.thing}) // before its first event
	ok := true
	for _, h := range p.object.hooks {
		if !slices.ContainsFunc(h.needs, func(s string) bool { return p.enabled[s] }) || !kind(h) {
			continue
		}
		a := t.attached(h)
		for _, rung := range h.rungs {
			err := t.attach(p, a, rung, spec, opts)
			if err == nil {
				break
			}
			a.tried = append(a.tried, t.attempt(rung.SectionName+"/", err))
		}
		ok = ok && a.program != nil
		p.hooks = append(p.hooks, a)
	}
	if !ok {
		slots.Died([]Thing{t.thing})
	}
	return ok
}

func (t *target) attach(p *Probe, a *attached, rung *ebpf.ProgramSpec, spec *ebpf.CollectionSpec, opts Options) error {
	program, err := p.loadProgram(spec, rung.Name, opts)
	if err != nil {
		return err
	}
	hold := func(program *ebpf.Program) (link.Link, error) { return t.at.attach(rung.SectionName, program) }
	l, err := hold(program)
	if err != nil {
		program.Close()
		return fmt.Errorf("attach to offset %#x of %s: %w", t.at.offset, t.at.file, err)
	}
	a.program, a.link, a.hold = program, l, hold
	a.rung, a.section = rung.Name, rung.SectionName+"/"+t.where()
	return nil
}

// attach attaches a program by the kind of its section.
func (at place) attach(kind string, program *ebpf.Program) (link.Link, error) {
	file, err := link.OpenExecutable(at.file)
	if err != nil {
		return nil, err
	}
	if err := features.HaveBPFLinkUprobeMulti(); err != nil && strings.HasSuffix(kind, ".multi") {
		return nil, err
	}
	one, many := &link.UprobeOptions{Address: at.offset}, &link.UprobeMultiOptions{Addresses: []uint64{at.offset}}
	switch kind {
	case "uprobe.multi":
		return file.UprobeMulti(nil, program, many)
	case "uretprobe.multi":
		return file.UretprobeMulti(nil, program, many)
	case "uprobe":
		return file.Uprobe("", program, one)
	}
	return file.Uretprobe("", program, one)
}

func (t *target) where() string { return t.Library + ":" + t.Name }

// attached is a hook at this function.
func (t *target) attached(h hook) *attached {
	h.name += " " + t.where()
	return &attached{hook: h}
}

// attempt says why the function has no program of a kind; a wrong name is no
// fault of the kernel.
func (t *target) attempt(kind string, err error) Attempt {
	wrong := errors.As(err, new(functionError))
	return Attempt{kind + t.where(), Explain(err), unsupported(err) && !wrong}
}

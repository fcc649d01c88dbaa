// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
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
func (o *Object) ofFunctions() bool { return slices.ContainsFunc(o.hooks, hook.ofFunctions) }

func (h hook) ofFunctions() bool {
	return slices.ContainsFunc(h.rungs, func(p *ebpf.ProgramSpec) bool { return isUprobe(p) || isUretprobe(p) })
}

func isUprobe(p *ebpf.ProgramSpec) bool    { return p.SectionName == "uprobe" }
func isUretprobe(p *ebpf.ProgramSpec) bool { return p.SectionName == "uretprobe" }

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
			p.fail(t, isUprobe, err)
		}
	}
	return nil
}

// fail notes why a function has no programs of a kind.
func (p *Probe) fail(t *target, kind func(*ebpf.ProgramSpec) bool, err error) {
	for _, h := range p.object.hooks {
		if kind(h.rungs[0]) {
			p.hooks = append(p.hooks, t.attached(h, err))
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
			p.fail(t, isUretprobe, fmt.Errorf("its calls are counted but not timed: %w", err))
		} else {
			timed = t.attachAll(p, part, isUretprobe, opts.slots(timedFunctions), opts)
		}
	}
	if err := set("rz_timed", timed); err != nil {
		return err
	}
	t.attachAll(p, part, isUprobe, opts.slots(countedFunctions), opts)
	return nil
}

// attachAll attaches the programs of one kind, and tells whether all hold.
func (t *target) attachAll(p *Probe, spec *ebpf.CollectionSpec, kind func(*ebpf.ProgramSpec) bool, slots *Slots, opts Options) bool {
	slots.Born([]Thing{t.thing}) // before its first event
	ok := true
	for _, h := range p.object.hooks {
		if !slices.ContainsFunc(h.needs, func(s string) bool { return p.enabled[s] }) || !kind(h.rungs[0]) {
			continue
		}
		a := t.attached(h, nil)
		if err := t.attach(p, a, spec, opts); err != nil {
			a, ok = t.attached(h, err), false
		}
		p.hooks = append(p.hooks, a)
	}
	if !ok {
		slots.Died([]Thing{t.thing})
	}
	return ok
}

func (t *target) attach(p *Probe, a *attached, spec *ebpf.CollectionSpec, opts Options) error {
	program, err := p.loadProgram(spec, a.rungs[0].Name, opts)
	if err != nil {
		return err
	}
	a.hold = func(program *ebpf.Program) (link.Link, error) {
		file, err := link.OpenExecutable(t.at.file)
		if err != nil {
			return nil, err
		}
		attach := file.Uprobe
		if isUretprobe(a.rungs[0]) {
			attach = file.Uretprobe
		}
		return attach("", program, &link.UprobeOptions{Address: t.at.offset})
	}
	if a.link, err = a.hold(program); err != nil {
		program.Close()
		return fmt.Errorf("attach to offset %#x of %s: %w", t.at.offset, t.at.file, err)
	}
	a.program = program
	return nil
}

// attached is the status of a hook at this function; err says why it does not
// hold.
func (t *target) attached(h hook, err error) *attached {
	where := t.Library + ":" + t.Name
	a := &attached{hook: h}
	a.name = h.name + " " + where
	if err == nil {
		a.section = h.rungs[0].SectionName + "/" + where
	} else {
		wrong := errors.As(err, new(functionError))
		a.tried = []Attempt{{where, Explain(err), unsupported(err) && !wrong}}
	}
	return a
}

// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Shed detaches the hooks that only the named samplers need, and ends the
// samplers' series. Samplers that were shed before and are not named come
// back: their series begin anew.
//
// To shed is cheap, because it is done when there is too much to do: programs
// and banks stay. A hook that another sampler needs stays attached as it is.
//
// What comes back must not go on from what it knew when it was shed: a call
// that began then would be taken for one that lasted until now. So the
// programs of the whole probe are loaded again, and nothing is remembered but
// the counts of the samplers that stayed. While they change place, for some
// 50 ms, these miss what happens.
func (p *Probe) Shed(samplers []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var returned []string
	for s := range p.shed {
		if !slices.Contains(samplers, s) {
			returned = append(returned, s)
		}
	}
	p.shed = map[string]bool{}
	for _, s := range samplers {
		if p.enabled[s] {
			p.shed[s] = true
		}
	}
	var err error
	if len(returned) > 0 {
		if err = p.renew(returned); err != nil {
			err = fmt.Errorf("bring back samplers %v of probe %s: %w", returned, p.object.Name, err)
		}
	}
	for _, a := range p.hooks {
		if !slices.ContainsFunc(a.needs, p.wants) {
			err = errors.Join(err, a.detach())
		}
	}
	return errors.Join(err, p.republish())
}

// renew replaces the programs of all hooks that are wanted, and everything
// that they remember. If they cannot be loaded, what returns stays shed.
func (p *Probe) renew(returned []string) error {
	next := &Probe{object: p.object, enabled: p.enabled, shed: p.shed, maps: map[string]*ebpf.Map{}}
	programs, err := p.reload(next)
	if err != nil {
		for _, s := range returned {
			p.shed[s] = true
		}
		return errors.Join(err, next.Close())
	}
	var errs []error
	for _, a := range p.hooks {
		errs = append(errs, a.detach())
	}
	quiesce()
	p.forget(returned)
	now := p.opts.Host.Wall()
	for _, s := range returned {
		p.since[s] = now
	}
	for a, program := range programs {
		errs = append(errs, a.replace(program))
	}
	if len(next.owned) > 0 {
		banks := len(p.object.banks)
		for _, m := range p.owned[banks:] {
			errs = append(errs, m.Close())
		}
		p.owned, p.maps = append(p.owned[:banks:banks], next.owned...), next.maps
	}
	return errors.Join(errs...)
}

// reload loads the programs of the hooks that are wanted, with the banks of
// the probe and new maps for all else, which next owns. Programs for functions
// remember nothing but in maps that can be emptied, and are only attached
// again.
func (p *Probe) reload(next *Probe) (map[*attached]*ebpf.Program, error) {
	programs := map[*attached]*ebpf.Program{}
	spec := p.object.spec.Copy()
	if err := next.configure(spec, p.opts); err != nil {
		return nil, err
	}
	remembered := p.owned[len(p.object.banks):]
	for name, m := range p.maps {
		if !slices.Contains(remembered, m) {
			next.maps[name] = m // a bank, or a table of a domain
		}
	}
	opts := p.opts
	opts.Cache = NewCache()
	for _, a := range p.hooks {
		if a.program == nil || !slices.ContainsFunc(a.needs, p.wants) {
			continue
		}
		if p.object.ofFunctions() {
			programs[a] = a.program
			continue
		}
		program, err := next.loadProgram(spec, a.rung, opts)
		if err != nil {
			for _, loaded := range programs {
				loaded.Close()
			}
			return nil, err
		}
		programs[a] = program
	}
	return programs, nil
}

// replace attaches a program in the place of the one there was. A hook that
// takes it no more is as one of which no rung held.
func (a *attached) replace(program *ebpf.Program) error {
	var errs []error
	if program != a.program {
		a.spent = a.cost()
		errs = append(errs, a.program.Close())
	}
	l, err := a.hold(program)
	if err != nil {
		a.tried = append(a.tried, Attempt{a.section, "attach again: " + Explain(err), false})
		a.program = nil
		return errors.Join(append(errs, fmt.Errorf("attach %s again: %w", a.section, err), program.Close())...)
	}
	a.program, a.link = program, l
	return errors.Join(errs...)
}

// forget clears what the banks hold of the samplers, and what no metric shows:
// when something began. No program may be attached.
func (p *Probe) forget(samplers []string) {
	for _, b := range p.mapped {
		keep := make([]bool, b.stride/8)
		for _, m := range b.whole.members {
			for i := range m.span {
				keep[m.offset/8+i] = !slices.Contains(samplers, m.desc.Sampler)
			}
		}
		for i := range len(b.words) / b.step {
			for j, w := range b.value(i, 0, b.stride/8) {
				if w != 0 && !keep[j] {
					b.value(i, 0, b.stride/8)[j] = 0
				}
			}
		}
	}
	if !p.object.ofFunctions() {
		return
	}
	for _, m := range p.owned {
		var key []byte
		for m.Type() == ebpf.LRUHash && m.NextKey(nil, &key) == nil && m.Delete(key) == nil {
		}
	}
}

// republish makes the schemas anew, of the samplers that publish now.
func (p *Probe) republish() error {
	for _, b := range p.mapped {
		if b.domain != "" {
			p.opts.slots(b.domain).republish(b, p.publishing(b.whole))
		}
	}
	if p.source == nil {
		return nil
	}
	p.source.mu.Lock()
	defer p.source.mu.Unlock()
	for _, b := range p.source.banks {
		b.bankSpec = p.publishing(b.whole)
	}
	return p.source.rebuild()
}

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL, which is synchronize_rcu
// (kernel/sched/membarrier.c): it returns when every program that was running
// when it was called has ended.
const membarrierGlobal = 1

// quiesce waits until no program that was detached runs any more. Programs run
// for microseconds: where the kernel has no such call, a while must do.
func quiesce() {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		time.Sleep(20 * time.Millisecond)
	}
}

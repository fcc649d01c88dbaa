// SPDX-License-Identifier: Apache-2.0

// Package things tells the probes which cgroups, disks and interfaces there
// are: it joins the trackers of package host to the slots of package bpf, and
// keeps nothing itself.
package things

import (
	"errors"
	"log/slog"

	"rezolus/internal/bpf"
	"rezolus/internal/host"
)

// Things are the slots of all domains, kept as the host is.
type Things struct {
	Slots   []*bpf.Slots
	devices []*host.Devices
}

// Options say what is told apart.
type Options struct {
	Host       bpf.Host
	MaxCgroups int
	Cgroups    *host.Cgroups // of the hierarchy that CPU time goes to; nil: all are Other
	Log        *slog.Logger
}

// Track makes the slots for the banks of objects and follows the things of
// each domain. It fails where the kernel takes no BPF at all; things that
// cannot be followed are Other, and the log says why.
func Track(o Options, objects ...*bpf.Object) (*Things, error) {
	t := &Things{}
	v1 := host.CgroupMode().V1()
	for _, d := range []bpf.Domain{bpf.Cgroups(o.MaxCgroups, v1), bpf.Disks(), bpf.Interfaces()} {
		slots, err := bpf.NewSlots(o.Host, d, objects...)
		if err != nil {
			return nil, errors.Join(err, t.Close())
		}
		t.Slots = append(t.Slots, slots)
	}
	if o.Cgroups != nil {
		o.Cgroups.Subscribe(changes(t.Slots[0], func(g host.Cgroup) bpf.Thing {
			return bpf.Thing{ID: g.ID, Values: []string{g.Path}}
		}))
	}
	t.follow(o.Log)(host.TrackBlock(o.Log, changes(t.Slots[1], func(d host.Device) bpf.Thing {
		return bpf.Thing{ID: d.ID, Values: []string{d.Name}}
	})))
	t.follow(o.Log)(host.TrackInterfaces(o.Log, changes(t.Slots[2], func(d host.Device) bpf.Thing {
		return bpf.Thing{ID: d.ID, Values: []string{d.Name, d.Kind}}
	})))
	return t, nil
}

func (t *Things) follow(log *slog.Logger) func(*host.Devices, error) {
	return func(d *host.Devices, err error) {
		switch {
		case err == nil:
			t.devices = append(t.devices, d)
		case log != nil:
			log.Warn("devices are not told apart", "error", err)
		}
	}
}

func changes[T any](slots *bpf.Slots, thing func(T) bpf.Thing) func(born, died []T) {
	all := func(in []T) []bpf.Thing {
		out := make([]bpf.Thing, len(in))
		for i, e := range in {
			out[i] = thing(e)
		}
		return out
	}
	return func(born, died []T) {
		slots.Died(all(died))
		slots.Born(all(born))
	}
}

// KernelBytes is the memory of the tables.
func (t *Things) KernelBytes() (sum uint64) {
	for _, s := range t.Slots {
		sum += s.KernelBytes()
	}
	return sum
}

// Overflow counts the cgroups that found no slot when they were born.
func (t *Things) Overflow() uint64 { return t.Slots[0].Overflow() }

// Sources are the domains that probes have banks of; closing them is closing
// the things.
func (t *Things) Sources() (sources []*bpf.Slots) {
	for _, s := range t.Slots {
		if s.Publishes() {
			sources = append(sources, s)
		}
	}
	return sources
}

// StopFollowing ends the trackers of devices; the slots stay, for whoever
// reads them closes them.
func (t *Things) StopFollowing() error {
	var errs []error
	for _, d := range t.devices {
		errs = append(errs, d.Close())
	}
	t.devices = nil
	return errors.Join(errs...)
}

// Close ends the trackers and frees the slots. The probes must be closed
// before.
func (t *Things) Close() error {
	errs := []error{t.StopFollowing()}
	for _, s := range t.Slots {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// SPDX-License-Identifier: Apache-2.0

// Package perf reads the event counters of the kernel's perf subsystem
// (perf_event_open(2)): those of the processors' own monitoring units, those
// that processors share (L3 caches), and those that the kernel counts itself.
//
// Events that belong together are opened as one group, so that the kernel
// counts them over the same time and one read gives all. There are fewer
// counters than events; the kernel then lets groups take turns and tells for
// how long each was enabled and for how long it really ran. What such a group
// counts between two reads is scaled by enabled/running, and perf_multiplexed
// says how much of it is an estimate. A group that never ran has no series.
//
// The files of this package: what is counted (events.go, tlb.go, l3.go), how a
// monitoring unit is asked (pmu.go), one group at one place (part.go), groups
// that add up to one value (cell.go), and the two sources, by place (source.go)
// and by control group (cgroup.go).
package perf

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// Groups is what a source must know of the control groups. Generation changes
// with Members.
type Groups interface {
	Generation() uint64
	Members() []host.Cgroup // sorted by path
}

// Units of what is counted; other events are plain counts.
const (
	cycles       metric.Unit = "cycles"
	instructions metric.Unit = "instructions"
)

// multiplexed is published by every sampler of hardware counters, of its own
// events.
var multiplexed = &metric.Desc{Name: "perf_multiplexed",
	Help: "share of the time since the read before for which an event was not counted but estimated; 0 is exact",
	Kind: metric.Gauge, Float: true, Keys: []string{"event"}, Sampler: "cpu_perf"}

// pace is how often counters of a CPU are read at most: each read interrupts
// the CPU it is about.
const pace = 100 * time.Millisecond

// pace of control groups: a read of one is a read on each CPU.
const cgroupPace = time.Second

// Samplers are those of the perf subsystem, by CPU and by L3 cache, and, off
// unless they are asked for, by control group: at most max of the groups right
// below the root (0: 16), the others and the root's own tasks as "other".
// While one of those is on, every switch between groups reprograms the
// counters.
//
// cgroupMount is the hierarchy that groups are of. In v1 the events are counted
// in the hierarchy of perf_event, or the unified one, which is looked up.
func Samplers(groups Groups, cgroupMount string, v1 bool, max int) []source.Sampler {
	var all []source.Sampler
	for _, set := range sets {
		all = append(all, set.sampler())
	}
	all = append(all, l3Sampler())
	for _, set := range sets {
		if !set.noCgroup {
			all = append(all, set.cgroupSampler(groups, cgroupMount, v1, max))
		}
	}
	return all
}

func (s *set) sampler() source.Sampler {
	return source.Sampler{Name: s.name, Reads: s.reads, Needs: s.needs, Every: pace, Descs: s.descs(),
		Open: func() (source.Source, error) {
			groups, err := s.find(sysfs)
			if err != nil {
				return nil, err
			}
			return openSource(s.name, &machine{}, !s.software, func(online []int) ([]target, error) {
				return perCPU(sysfs, online, groups), nil
			})
		}}
}

func (s *set) cgroupSampler(members Groups, mount string, v1 bool, max int) source.Sampler {
	name := s.name + "_cgroup"
	needs := "CONFIG_CGROUP_PERF"
	if s.needs != "" {
		needs = s.needs + ", " + needs
	}
	return source.Sampler{Name: name, Reads: s.reads + " by cgroup", Needs: needs, Every: cgroupPace, Off: true,
		Descs: s.cgroupDescs(),
		Open: func() (source.Source, error) {
			if members == nil {
				return nil, source.Unsupported("no cgroups are tracked")
			}
			dir, err := perfHierarchy(mount, v1)
			if err != nil {
				return nil, err
			}
			groups, err := s.find(sysfs)
			if err != nil {
				return nil, err
			}
			return openCgroups(name, &machine{}, s.byCgroup(groups), !s.software, members, dir, max)
		}}
}

// explain makes an error of opening events one that a user can act on, and
// tells apart what this machine does not have.
func explain(err error) error {
	var why string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return source.Unsupported("the processors, or the virtual machine this is, have no counter for it (%w)", err)
	case errors.Is(err, unix.ENOSYS):
		return source.Unsupported("the kernel is built without CONFIG_PERF_EVENTS (%w)", err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		why = "run it as root or with CAP_PERFMON, or set kernel.perf_event_paranoid to 0"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		why = "raise the limit of open files (LimitNOFILE= of the service)"
	case errors.Is(err, unix.EBUSY):
		why = "another program has the counters for itself"
	default:
		return err
	}
	return &withFix{err, why}
}

// withFix is an error with what to do about it.
type withFix struct {
	err error
	fix string
}

func (e *withFix) Error() string { return e.err.Error() + "; " + e.fix }
func (e *withFix) Unwrap() error { return e.err }

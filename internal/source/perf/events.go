// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// code is an event as perf_event_open(2) names it.
type code struct {
	kind            uint32 // PERF_TYPE_*; PERF_TYPE_RAW is an event of the unit of the place where it is opened
	config, config1 uint64
}

// event is what one counter counts and where it is published.
type event struct {
	desc *metric.Desc
	// key and value are its label besides the one that says where: op=load.
	key, value string
	code       code
}

// values are the label values of the event at member.
func (e *event) values(member string) []string {
	out := make([]string, len(e.desc.Keys))
	for i, key := range e.desc.Keys {
		if out[i] = member; e.key == key {
			out[i] = e.value
		}
	}
	return out
}

// group is events that are counted over the same time. One that a processor
// does not have is left out.
type group struct {
	events []event
	// pinned asks the kernel to keep the group on its counters at all times.
	pinned bool
}

// set is the events of a sampler by CPU and of its sibling by control group.
type set struct {
	name, reads, needs string
	software           bool // counted by the kernel: never multiplexed
	noCgroup           bool // the unit counts for a CPU only
	groups             []group
	// choose replaces groups where the events hang on the machine.
	choose func(sysfs string) ([]group, error)
	byCPU  []*metric.Desc // of choose: all that it may use
	// cgroupOnly are events that have no meaning for a CPU.
	cgroupOnly []group
}

// find is the groups of this machine.
func (s *set) find(sysfs string) ([]group, error) {
	if s.choose != nil {
		return s.choose(sysfs)
	}
	return s.groups, nil
}

// descs are the metrics by CPU.
func (s *set) descs() []*metric.Desc {
	all := slices.Clone(s.byCPU)
	for _, g := range s.groups {
		for _, e := range g.events {
			if !slices.Contains(all, e.desc) {
				all = append(all, e.desc)
			}
		}
	}
	if !s.software {
		all = append(all, multiplexed)
	}
	return all
}

// byCgroup is groups as they are published by control group.
func (s *set) byCgroup(groups []group) []group {
	var out []group
	for _, g := range groups {
		events := slices.Clone(g.events)
		for i := range events {
			events[i].desc = cgroupDesc(events[i].desc)
		}
		out = append(out, group{events, g.pinned})
	}
	return append(out, s.cgroupOnly...)
}

// cgroupDescs are the metrics by control group.
func (s *set) cgroupDescs() []*metric.Desc {
	var all []*metric.Desc
	for _, d := range s.descs() {
		if d != multiplexed {
			all = append(all, cgroupDesc(d))
		}
	}
	for _, g := range s.cgroupOnly {
		for _, e := range g.events {
			all = append(all, e.desc)
		}
	}
	if !s.software {
		all = append(all, multiplexed)
	}
	return all
}

// counter describes a counter of a CPU, with label key besides id where it is
// not empty.
func counter(sampler, name string, unit metric.Unit, help, key string) *metric.Desc {
	keys := []string{"id"}
	if key != "" {
		keys = append(keys, key)
	}
	d := &metric.Desc{Name: name, Help: help, Unit: unit, Kind: metric.Counter, Keys: keys, Sampler: sampler}
	slices.Sort(d.Keys)
	byCgroup[d] = ofCgroup(d)
	return d
}

// byCgroup is the metric of control groups for that of CPUs.
var byCgroup = map[*metric.Desc]*metric.Desc{}

func cgroupDesc(d *metric.Desc) *metric.Desc { return byCgroup[d] }

func ofCgroup(d *metric.Desc) *metric.Desc {
	c := *d
	c.Name, c.Sampler = "cgroup_"+d.Name, d.Sampler+"_cgroup"
	c.Help = d.Help + ", by the tasks of a cgroup and of those below it"
	c.Keys = slices.Clone(d.Keys)
	c.Keys[slices.Index(c.Keys, "id")] = "name"
	slices.Sort(c.Keys)
	return &c
}

func hardware(config uint64) code { return code{kind: unix.PERF_TYPE_HARDWARE, config: config} }
func softwareCode(config uint64) code {
	return code{kind: unix.PERF_TYPE_SOFTWARE, config: config}
}

var (
	cpuCycles       = counter("cpu_perf", "cpu_cycles", cycles, "cycles a CPU was not halted", "")
	cpuInstructions = counter("cpu_perf", "cpu_instructions", instructions, "instructions retired", "")

	cpuAperf = counter("cpu_frequency", "cpu_aperf", cycles, "cycles at the frequency a CPU really had while not halted", "")
	cpuMperf = counter("cpu_frequency", "cpu_mperf", cycles, "cycles at a CPU's nominal frequency while not halted", "")
	cpuTSC   = counter("cpu_frequency", "cpu_tsc", cycles, "cycles of the time stamp counter, halted or not", "")

	branches     = counter("cpu_branch", "cpu_branch_instructions", metric.None, "branches retired", "")
	branchMisses = counter("cpu_branch", "cpu_branch_misses", metric.None, "branches that were predicted wrongly", "")

	cacheAccess = counter("cpu_cache", "cpu_cache_access", metric.None, "accesses to the last cache before memory, as the kernel maps them for the processor", "")
	cacheMiss   = counter("cpu_cache", "cpu_cache_miss", metric.None, "accesses that the last cache before memory could not serve", "")
	refCycles   = counter("cpu_cache", "cpu_reference_cycles", cycles, "cycles at a fixed frequency while not halted", "")
	stalled     = counter("cpu_cache", "cpu_stalled_cycles", cycles, "cycles in which nothing was issued (frontend) or retired (backend)", "stage")

	faults     = counter("cpu_software", "perf_page_faults", metric.None, "page faults of tasks that are served from memory (minor) or from a device (major)", "kind")
	migrations = counter("cpu_software", "perf_cpu_migrations", metric.None, "tasks that came to run on a CPU from another", "")
	alignment  = counter("cpu_software", "perf_alignment_faults", metric.None, "unaligned accesses that the kernel had to do for the task; x86 kernels count none", "")
	emulation  = counter("cpu_software", "perf_emulation_faults", metric.None, "instructions that the kernel had to emulate; x86 kernels count none", "")
	// Of a CPU it would be the time of day.
	taskClock = &metric.Desc{Name: "cgroup_perf_task_clock", Help: "time on a CPU of the tasks of a cgroup and of those below it",
		Unit: metric.Nanoseconds, Kind: metric.Counter, Keys: []string{"name"}, Sampler: "cpu_software_cgroup"}
)

// sets are the samplers by CPU, in the order of Samplers.
var sets = []*set{
	{name: "cpu_perf", reads: "perf events cycles, instructions", needs: "a hardware PMU", groups: []group{
		{pinned: true, events: []event{
			{desc: cpuCycles, code: hardware(unix.PERF_COUNT_HW_CPU_CYCLES)},
			{desc: cpuInstructions, code: hardware(unix.PERF_COUNT_HW_INSTRUCTIONS)}}}}},
	{name: "cpu_frequency", reads: "perf events of the msr PMU", needs: "x86 with APERF and MPERF", noCgroup: true,
		choose: frequencyEvents, byCPU: []*metric.Desc{cpuAperf, cpuMperf, cpuTSC}},
	{name: "cpu_branch", reads: "perf events branches, branch-misses", needs: "a hardware PMU", groups: []group{
		{events: []event{
			{desc: branches, code: hardware(unix.PERF_COUNT_HW_BRANCH_INSTRUCTIONS)},
			{desc: branchMisses, code: hardware(unix.PERF_COUNT_HW_BRANCH_MISSES)}}}}},
	{name: "cpu_cache", reads: "perf events cache-references, cache-misses, ref-cycles, stalled-cycles", needs: "a hardware PMU", groups: []group{
		{events: []event{
			{desc: cacheAccess, code: hardware(unix.PERF_COUNT_HW_CACHE_REFERENCES)},
			{desc: cacheMiss, code: hardware(unix.PERF_COUNT_HW_CACHE_MISSES)}}},
		{events: []event{{desc: refCycles, code: hardware(unix.PERF_COUNT_HW_REF_CPU_CYCLES)}}},
		{events: []event{
			{desc: stalled, key: "stage", value: "frontend", code: hardware(unix.PERF_COUNT_HW_STALLED_CYCLES_FRONTEND)},
			{desc: stalled, key: "stage", value: "backend", code: hardware(unix.PERF_COUNT_HW_STALLED_CYCLES_BACKEND)}}}}},
	{name: "cpu_dtlb", reads: "perf events of the data TLB", needs: "a hardware PMU",
		choose: dtlbEvents, byCPU: []*metric.Desc{dtlbMiss, dtlbAccess}},
	{name: "cpu_software", reads: "perf software events", needs: "CONFIG_PERF_EVENTS", software: true,
		groups:     []group{{events: softwareEvents(runtime.GOARCH)}},
		byCPU:      []*metric.Desc{faults, migrations, alignment, emulation},
		cgroupOnly: []group{{events: []event{{desc: taskClock, code: softwareCode(unix.PERF_COUNT_SW_TASK_CLOCK)}}}}},
}

// softwareEvents are those that the kernel of an architecture counts. Others
// open all the same and stay zero, which is no measurement.
func softwareEvents(arch string) []event {
	events := []event{
		{desc: faults, key: "kind", value: "minor", code: softwareCode(unix.PERF_COUNT_SW_PAGE_FAULTS_MIN)},
		{desc: faults, key: "kind", value: "major", code: softwareCode(unix.PERF_COUNT_SW_PAGE_FAULTS_MAJ)},
		{desc: migrations, code: softwareCode(unix.PERF_COUNT_SW_CPU_MIGRATIONS)},
	}
	if arch == "arm64" {
		events = append(events, event{desc: alignment, code: softwareCode(unix.PERF_COUNT_SW_ALIGNMENT_FAULTS)},
			event{desc: emulation, code: softwareCode(unix.PERF_COUNT_SW_EMULATION_FAULTS)})
	}
	return events
}

// frequencyEvents are those of the msr unit (arch/x86/events/msr.c). Without
// APERF and MPERF, as in most virtual machines, they tell no frequency.
func frequencyEvents(sysfs string) ([]group, error) {
	unit, err := readPMU(sysfs, "msr")
	if err != nil {
		return nil, err
	}
	g := group{pinned: true}
	for _, e := range []struct {
		name string
		desc *metric.Desc
	}{{"aperf", cpuAperf}, {"mperf", cpuMperf}, {"tsc", cpuTSC}} {
		c, err := unit.named(e.name)
		if err != nil {
			return nil, source.Unsupported("without %s there is no frequency to tell; most virtual machines hide it (%w)", e.name, err)
		}
		g.events = append(g.events, event{desc: e.desc, code: c})
	}
	return []group{g}, nil
}

// SPDX-License-Identifier: Apache-2.0

package cgroupfs

import (
	"slices"

	"rezolus/internal/metric"
)

// The samplers that read files of every group.
const (
	bandwidthSampler = "cpu_bandwidth"
	memorySampler    = "cgroup_memory"
	pidsSampler      = "cgroup_pids"
	pressureSampler  = "cgroup_pressure"
)

func counter(sampler, name string, unit metric.Unit, help string, keys ...string) *metric.Desc {
	keys = append(keys, "name")
	slices.Sort(keys)
	return &metric.Desc{Name: name, Help: help, Unit: unit, Kind: metric.Counter, Keys: keys, Sampler: sampler}
}

func gauge(sampler, name string, unit metric.Unit, help string, keys ...string) *metric.Desc {
	d := counter(sampler, name, unit, help, keys...)
	d.Kind = metric.Gauge
	return d
}

// The limits and counters of CPU bandwidth (Documentation/scheduler/sched-bwc.rst).
var (
	quota            = gauge(bandwidthSampler, "cgroup_cpu_bandwidth_quota", metric.Nanoseconds, "CPU time that the cgroup may use in each period")
	periodDuration   = gauge(bandwidthSampler, "cgroup_cpu_bandwidth_period_duration", metric.Nanoseconds, "length of a period of CPU bandwidth")
	periods          = counter(bandwidthSampler, "cgroup_cpu_bandwidth_periods", metric.None, "periods in which the cgroup could run and had a quota")
	throttledPeriods = counter(bandwidthSampler, "cgroup_cpu_bandwidth_throttled_periods", metric.None, "periods in which the cgroup was throttled for its quota")
	throttledTime    = counter(bandwidthSampler, "cgroup_cpu_bandwidth_throttled_time", metric.Nanoseconds, "time the cgroup was throttled, added up over its CPUs")
	bursts           = counter(bandwidthSampler, "cgroup_cpu_bandwidth_bursts", metric.None, "periods in which the cgroup used more than its quota, by what it had saved")
	burstTime        = counter(bandwidthSampler, "cgroup_cpu_bandwidth_burst_time", metric.Nanoseconds, "CPU time above the quota, by what the cgroup had saved")
)

var bandwidth = []file{
	{"cpu.max", pair, []field{{desc: quota, scale: 1000}, {desc: periodDuration, scale: 1000}}},
	{"cpu.stat", keyed, []field{{key: "nr_periods", desc: periods}, {key: "nr_throttled", desc: throttledPeriods},
		{key: "throttled_usec", desc: throttledTime, scale: 1000}, {key: "nr_bursts", desc: bursts},
		{key: "burst_usec", desc: burstTime, scale: 1000}}},
}

var bandwidthV1 = []file{
	{"cpu.cfs_quota_us", single, []field{{desc: quota, scale: 1000}}},
	{"cpu.cfs_period_us", single, []field{{desc: periodDuration, scale: 1000}}},
	{"cpu.stat", keyed, []field{{key: "nr_periods", desc: periods}, {key: "nr_throttled", desc: throttledPeriods},
		{key: "throttled_time", desc: throttledTime}, {key: "nr_bursts", desc: bursts}, {key: "burst_time", desc: burstTime}}},
}

// Memory (Documentation/admin-guide/cgroup-v2.rst, "Memory"; .../cgroup-v1/memory.rst).
var (
	memoryUsage  = gauge(memorySampler, "cgroup_memory_usage", metric.Bytes, "memory charged to the cgroup and those below it")
	memoryPeak   = gauge(memorySampler, "cgroup_memory_peak", metric.Bytes, "the most memory that was charged to the cgroup")
	memoryLimit  = gauge(memorySampler, "cgroup_memory_limit", metric.Bytes, "memory that the cgroup may have; absent where there is no limit")
	swapUsage    = gauge(memorySampler, "cgroup_swap_usage", metric.Bytes, "swap that the cgroup uses")
	swapLimit    = gauge(memorySampler, "cgroup_swap_limit", metric.Bytes, "swap that the cgroup may use; absent where there is no limit")
	memswUsage   = gauge(memorySampler, "cgroup_memory_swap_usage", metric.Bytes, "memory and swap that the cgroup uses together (v1)")
	memoryStates = gauge(memorySampler, "cgroup_memory", metric.Bytes, "memory of the cgroup by what it is for; the states overlap", "state")
	memoryEvents = counter(memorySampler, "cgroup_memory_events", metric.None, "times that a limit of the cgroup was met, by what came of it", "event")
	pageFaults   = counter(memorySampler, "cgroup_memory_page_faults", metric.None, "page faults of the cgroup, minor and major")
	majorFaults  = counter(memorySampler, "cgroup_memory_major_page_faults", metric.None, "page faults of the cgroup that had to wait for a device")
	memoryPages  = counter(memorySampler, "cgroup_memory_pages", metric.None, "pages of the cgroup that reclaim and the working set saw, by what was done", "event")
)

func states(keyValue ...string) (fields []field) {
	for i := 0; i < len(keyValue); i += 2 {
		fields = append(fields, field{key: keyValue[i], desc: memoryStates, other: []string{keyValue[i+1]}})
	}
	return fields
}

func events(d *metric.Desc, keyValue ...string) (fields []field) {
	for i := 0; i < len(keyValue); i += 2 {
		fields = append(fields, field{key: keyValue[i], desc: d, other: []string{keyValue[i+1]}})
	}
	return fields
}

func concat(lists ...[]field) (all []field) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

var memory = []file{
	{"memory.current", single, []field{{desc: memoryUsage}}},
	{"memory.peak", single, []field{{desc: memoryPeak}}},
	{"memory.max", single, []field{{desc: memoryLimit}}},
	{"memory.swap.current", single, []field{{desc: swapUsage}}},
	{"memory.swap.max", single, []field{{desc: swapLimit}}},
	{"memory.stat", keyed, concat(
		states("anon", "anon", "file", "file", "kernel", "kernel", "kernel_stack", "kernel_stack", "pagetables", "page_tables",
			"percpu", "percpu", "sock", "sockets", "vmalloc", "vmalloc", "shmem", "shmem", "zswap", "zswap", "file_mapped", "mapped",
			"file_dirty", "dirty", "file_writeback", "writeback", "swapcached", "swap_cached", "anon_thp", "anon_hugepages",
			"inactive_anon", "inactive_anon", "active_anon", "active_anon", "inactive_file", "inactive_file", "active_file", "active_file",
			"unevictable", "unevictable", "slab_reclaimable", "slab_reclaimable", "slab_unreclaimable", "slab_unreclaimable"),
		events(memoryPages, "workingset_refault_anon", "refault_anon", "workingset_refault_file", "refault_file",
			"workingset_activate_anon", "activate_anon", "workingset_activate_file", "activate_file",
			"pgscan", "scan", "pgsteal", "steal"),
		[]field{{key: "pgfault", desc: pageFaults}, {key: "pgmajfault", desc: majorFaults}},
		events(memoryPages, "pgrefill", "refill", "pgactivate", "activate", "pgdeactivate", "deactivate",
			"thp_fault_alloc", "thp_fault_alloc", "thp_collapse_alloc", "thp_collapse_alloc"))},
	{"memory.events", keyed, events(memoryEvents, "low", "low", "high", "high", "max", "max", "oom", "oom", "oom_kill", "oom_kill")},
}

var memoryV1 = []file{
	{"memory.usage_in_bytes", single, []field{{desc: memoryUsage}}},
	{"memory.max_usage_in_bytes", single, []field{{desc: memoryPeak}}},
	{"memory.limit_in_bytes", single, []field{{desc: memoryLimit}}},
	{"memory.memsw.usage_in_bytes", single, []field{{desc: memswUsage}}},
	{"memory.stat", keyed, concat(
		states("total_cache", "file", "total_rss", "anon", "total_rss_huge", "anon_hugepages", "total_shmem", "shmem",
			"total_mapped_file", "mapped", "total_dirty", "dirty", "total_writeback", "writeback"),
		events(memoryPages, "total_workingset_refault_anon", "refault_anon", "total_workingset_refault_file", "refault_file"),
		[]field{{key: "total_swap", desc: swapUsage}},
		states("total_swapcached", "swap_cached"),
		[]field{{key: "total_pgfault", desc: pageFaults}, {key: "total_pgmajfault", desc: majorFaults}},
		states("total_inactive_anon", "inactive_anon", "total_active_anon", "active_anon", "total_inactive_file", "inactive_file",
			"total_active_file", "active_file", "total_unevictable", "unevictable"))},
	{"memory.failcnt", single, events(memoryEvents, "", "max")},
	{"memory.oom_control", keyed, events(memoryEvents, "oom_kill", "oom_kill")},
}

// Tasks (Documentation/admin-guide/cgroup-v2.rst, "PID").
var pids = []file{
	{"pids.current", single, []field{{desc: gauge(pidsSampler, "cgroup_pids", metric.None, "tasks of the cgroup and those below it")}}},
	{"pids.max", single, []field{{desc: gauge(pidsSampler, "cgroup_pids_limit", metric.None, "tasks that the cgroup may have; absent where there is no limit")}}},
	{"pids.events", keyed, []field{{key: "max", desc: counter(pidsSampler, "cgroup_pids_refused", metric.None, "forks that failed for the limit of tasks")}}},
}

// Pressure (Documentation/accounting/psi.rst), in the unified hierarchy alone.
var (
	stalled = counter(pressureSampler, "cgroup_pressure_stalled", metric.Nanoseconds,
		"time that some tasks, or all of them at once, waited for a resource", "kind", "resource")
	average = &metric.Desc{Name: "cgroup_pressure", Help: "share of the time that some tasks, or all of them at once, waited for a resource, as the kernel averages it",
		Kind: metric.Gauge, Float: true, Keys: []string{"kind", "name", "resource", "window"}, Sampler: pressureSampler}
)

var pressures = func() (files []file) {
	for _, resource := range []string{"cpu", "memory", "io", "irq"} {
		f := file{name: resource + ".pressure", form: pressure}
		for _, kind := range []string{"some", "full"} {
			for _, window := range []string{"10", "60", "300"} {
				f.fields = append(f.fields, field{key: kind + " avg" + window, desc: average, other: []string{kind, resource, window + "s"}})
			}
			f.fields = append(f.fields, field{key: kind + " total", desc: stalled, other: []string{kind, resource}, scale: 1000})
		}
		files = append(files, f)
	}
	return files
}()

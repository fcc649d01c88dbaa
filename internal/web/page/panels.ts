// SPDX-License-Identifier: Apache-2.0

// The panels as data. $w is the window of rates: at least two ticks, and as
// wide as a step.

import type { Unit } from "./format";

export interface Panel {
  id: string;
  title: string;
  about: string;
  sampler: string; // that must run for it
  query: string;
  /** lines, stacked areas, a heatmap or quantiles of one histogram, or bars of the newest values */
  kind: "lines" | "stack" | "heatmap" | "quantiles" | "bars";
  unit: Unit;
  legend?: string; // label that names a series
  order?: string[]; // of the legend's values
  wide?: boolean;
}

export const panels: Panel[] = [
  {
    id: "cpu", title: "CPU", about: "Time by state, idle left out; 100 % is one CPU", sampler: "cpu_usage", kind: "stack", unit: "cpus",
    query: 'sum by (state) (rate(cpu_usage{state!="idle"}[$w])) / 1e9', legend: "state",
    order: ["user", "system", "iowait", "nice", "irq", "softirq", "steal", "guest"],
  },
  {
    id: "runqueue", title: "Run-queue latency", about: "Time a runnable task waited for a CPU: how many, by how long",
    sampler: "scheduler_runqueue", kind: "heatmap", unit: "ns", query: "rate(scheduler_runqueue_latency[$w])",
  },
  {
    id: "runqueue-quantiles", title: "Run-queue latency, quantiles", about: "Half, 10 %, 1 % and 1 in 1,000 waited longer",
    sampler: "scheduler_runqueue", kind: "quantiles", unit: "ns", query: "rate(scheduler_runqueue_latency[$w])",
  },
  {
    id: "switches", title: "Context switches", about: "Voluntary: the task gave up the CPU; involuntary: it lost it",
    sampler: "scheduler_runqueue", kind: "lines", unit: "rate", query: "sum by (kind) (rate(scheduler_context_switch[$w]))",
    legend: "kind", order: ["voluntary", "involuntary"],
  },
  {
    id: "syscalls", title: "System calls", about: "Calls entered, by class", sampler: "syscall_counts", kind: "lines", unit: "rate",
    query: "rate(syscall[$w]) > 0", legend: "op",
  },
  {
    id: "syscall-latency", title: "System call latency, p99", about: "1 % of the calls of a class took longer; waiting is part of a call",
    sampler: "syscall_latency", kind: "lines", unit: "ns", query: "histogram_quantile(0.99, rate(syscall_latency[$w]))", legend: "op",
  },
  {
    id: "running", title: "Time on CPU, quantiles", about: "From getting a CPU to giving it up or losing it",
    sampler: "scheduler_runqueue", kind: "quantiles", unit: "ns", query: "rate(scheduler_running[$w])",
  },
  {
    id: "offcpu", title: "Time off CPU, quantiles", about: "Asleep or blocked, without the wait for a CPU after it",
    sampler: "scheduler_runqueue", kind: "quantiles", unit: "ns", query: "rate(scheduler_offcpu[$w])",
  },
  {
    id: "migrations", title: "Migrations", about: "Tasks that came to a CPU from another", sampler: "cpu_migrations", kind: "lines",
    unit: "rate", query: 'sum by (id) (rate(cpu_migrations{direction="to"}[$w]))', legend: "id",
  },
  {
    id: "cgroups", title: "Top cgroups", about: "CPU time of a cgroup and those below it, now", sampler: "cpu_usage", kind: "bars",
    unit: "cpus", query: "topk(10, sum by (name) (rate(cgroup_cpu_usage[$w])) / 1e9)", legend: "name",
  },
  {
    id: "waiting", title: "Top cgroups by wait", about: "Time their tasks waited for a CPU, now", sampler: "scheduler_runqueue",
    kind: "bars", unit: "cpus", query: "topk(10, rate(cgroup_scheduler_runqueue_wait[$w]) / 1e9)", legend: "name",
  },
  {
    id: "interference", title: "Who keeps whom waiting", about: "Time tasks of one cgroup waited for a CPU that the other had, now",
    sampler: "scheduler_interference", kind: "bars", unit: "cpus", legend: "pair",
    query: 'topk(10, label_join(rate(cgroup_scheduler_interference{victim!="other"}[$w]) / 1e9, "pair", " for ", "victim", "culprit"))',
  },
  {
    id: "disks", title: "Disk latency, p99", about: "1 % of the requests took the device longer", sampler: "blockio_latency", kind: "lines", unit: "ns",
    query: 'label_join(histogram_quantile(0.99, rate(blockio_latency[$w])), "disk", " ", "device", "op")', legend: "disk",
  },
  {
    id: "disk-bytes", title: "Disk traffic", about: "Bytes a second, by disk and operation", sampler: "blockio_requests", kind: "lines", unit: "bytes",
    query: 'label_join(rate(blockio_bytes[$w]) > 0, "disk", " ", "device", "op")', legend: "disk",
  },
  {
    id: "network", title: "Network traffic", about: "Bytes of the wire a second, by interface", sampler: "network_traffic", kind: "lines", unit: "bytes",
    query: 'label_join(rate(network_bytes[$w]) > 0, "way", " ", "interface", "direction")', legend: "way",
  },
  {
    id: "srtt", title: "TCP round trip, quantiles", about: "The kernel's smoothed estimate, at each segment received", sampler: "tcp_receive",
    kind: "quantiles", unit: "ns", query: "rate(tcp_srtt[$w])",
  },
  {
    id: "softirq", title: "Software interrupts", about: "CPU time by kind; 100 % is one CPU", sampler: "cpu_softirq", kind: "lines", unit: "cpus",
    query: "sum by (kind) (rate(softirq_time[$w])) / 1e9 > 0", legend: "kind",
  },
  {
    id: "memory", title: "Memory", about: "What there is, what can be had, and what waits to be written", sampler: "memory_meminfo", kind: "lines",
    unit: "bytes", query: '{__name__=~"memory_(total|available|free|cached|dirty)"}', legend: "__name__",
  },
  {
    id: "pressure", title: "Pressure", about: "Share of the time that some tasks waited for a resource", sampler: "pressure", kind: "lines", unit: "cpus",
    query: 'sum by (resource) (rate(pressure_stalled{kind="some"}[$w])) / 1e9', legend: "resource",
  },
  {
    id: "agent", title: "This agent", about: "CPU time that rezolus takes itself; 100 % is one CPU", sampler: "rezolus_rusage", kind: "stack",
    unit: "cpus", query: "rate(rezolus_cpu_usage[$w]) / 1e9", legend: "state", order: ["user", "system"],
  },
];

export const quantiles: [string, number][] = [["p50", 0.5], ["p90", 0.9], ["p99", 0.99], ["p99.9", 0.999]];

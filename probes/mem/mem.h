/* SPDX-License-Identifier: GPL-2.0-only */

/* The metrics of this probe, and what it remembers of a task. */
#pragma once

#include "cgroup.bpf.h"
#include "types.h"

SAMPLER(memory_reclaim);
SAMPLER(memory_compaction);
SAMPLER(memory_writeback);
SAMPLER(memory_oom);
SAMPLER(memory_fault_latency);
SAMPLER(memory_fault_exceptions);
SAMPLER(memory_page_cache);
SAMPLER(memory_page_cache_reads);

enum reclaim { RECLAIM_DIRECT, RECLAIM_CGROUP, RECLAIMS };
#define RECLAIM LABEL("kind", "direct|cgroup")
enum fault { FAULT_MINOR, FAULT_MAJOR, FAULTS };
#define FAULT LABEL("kind", "minor|major")
enum mode { MODE_USER, MODE_KERNEL, MODES };
#define MODE LABEL("mode", "user|kernel")

struct mem_bank {
	/* The read of a file under way on this CPU: memory_page_cache_reads counts it once. */
	u64 read_task;
	u64 read_mapping;
	u64 read_at;
	u64 read_last;
	COUNTER(reclaim_lost, , memory_reclaim, "memory_reclaim_discarded_samples", "",
		"reclaims that were not timed: they began unseen, or too many were under way", LOST);
	COUNTER(compaction_lost, , memory_compaction, "memory_compaction_discarded_samples", "",
		"compactions that were not timed: they began unseen, or too many were under way", LOST);
	COUNTER(writeback_lost, , memory_writeback, "memory_writeback_discarded_samples", "",
		"rounds of writeback that were not timed: they began unseen, or too many were under way", LOST);
	COUNTER(fault_lost, , memory_fault_latency, "memory_fault_discarded_samples", "",
		"page faults that were not timed: they began unseen, or the task could not be remembered", LOST);
	COUNTER(oom_kills, , memory_oom, "memory_oom_kills", "", "processes killed for want of memory, their cgroup's or the machine's");
	COUNTER(exceptions, [MODES], memory_fault_exceptions, "memory_fault_exceptions", "",
		"page faults that the CPUs raised, by the mode they were in; what the kernel does for a program without one is not in it", MODE);
	COUNTER(misses, , memory_page_cache, "memory_page_cache_misses", "pages",
		"pages that were not in the page cache and were added to it: read, read ahead, or first written");
	COUNTER(reads, , memory_page_cache_reads, "memory_page_cache_reads", "pages",
		"pages that reads of files looked up in the page cache");
	HISTOGRAM(reclaim, [RECLAIMS], memory_reclaim, "memory_reclaim_latency", "nanoseconds",
		  "time a task had to reclaim memory before it got some, by whether the machine or its cgroup had no more", RECLAIM);
	HISTOGRAM(compaction, , memory_compaction, "memory_compaction_latency", "nanoseconds",
		  "time to compact a zone of memory, in a task that needs it or in the background");
	HISTOGRAM(writeback, , memory_writeback, "memory_writeback_latency", "nanoseconds",
		  "time of one round of writing dirty pages to a device");
	HISTOGRAM(faults, [FAULTS], memory_fault_latency, "memory_page_fault_latency", "nanoseconds",
		  "time to handle a page fault, with its retries, by whether it had to read from a device", FAULT);
} BANK;
BANKS(mem_banks, struct mem_bank);

struct mem_cgroup {
	TOUCHED;
	COUNTER(reclaims, [RECLAIMS], memory_reclaim, "cgroup_memory_reclaims", "",
		"times that tasks of the cgroup had to reclaim memory", RECLAIM);
	COUNTER(reclaim_time, [RECLAIMS], memory_reclaim, "cgroup_memory_reclaim_time", "nanoseconds",
		"time that tasks of the cgroup had to reclaim memory", RECLAIM);
	COUNTER(compaction_time, , memory_compaction, "cgroup_memory_compaction_time", "nanoseconds",
		"time that tasks of the cgroup compacted memory");
	COUNTER(oom_kills, , memory_oom, "cgroup_memory_oom_kills", "",
		"processes of the cgroup killed for want of memory, its own or the machine's");
	COUNTER(exceptions, [MODES], memory_fault_exceptions, "cgroup_memory_fault_exceptions", "",
		"page faults that the CPUs raised for tasks of the cgroup", MODE);
	COUNTER(faults, [FAULTS], memory_fault_latency, "cgroup_memory_page_faults", "",
		"page faults of tasks of the cgroup that were handled", FAULT);
	COUNTER(misses, , memory_page_cache, "cgroup_memory_page_cache_misses", "pages",
		"pages that tasks of the cgroup added to the page cache");
	COUNTER(reads, , memory_page_cache_reads, "cgroup_memory_page_cache_reads", "pages",
		"pages that tasks of the cgroup looked up in the page cache to read them");
};
CGROUP_BANKS(mem_cgroups, struct mem_cgroup);

/*
 * Work that a task has begun: by what << 32 | pid, when. All room is there
 * from the beginning, because here memory is short. A task ends what it began.
 */
enum span { SPAN_RECLAIM, SPAN_COMPACTION = SPAN_RECLAIM + RECLAIMS, SPAN_WRITEBACK };
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, u64);
} mem_spans SEC(".maps");

/* When the page fault that a task is in began. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} mem_faults SEC(".maps");

/* The same for kernels without task storage, which came with 5.11 and needs BTF. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u64);
} mem_faults_by_pid SEC(".maps");

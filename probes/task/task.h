/* SPDX-License-Identifier: GPL-2.0-only */

/* The metrics of this probe, and what it remembers of a task. */
#pragma once

#include "metric.bpf.h"
#include "hist.bpf.h"
#include "cgroup.bpf.h"

SAMPLER(scheduler_runqueue);
SAMPLER(scheduler_interference);
SAMPLER(cpu_migrations);
SAMPLER(syscall_counts);
SAMPLER(syscall_latency);

/* The classes of system calls, in the order of the label's values. */
enum op {
	OP_OTHER, OP_READ, OP_WRITE, OP_POLL, OP_LOCK, OP_TIME, OP_SLEEP, OP_SOCKET, OP_YIELD,
	OP_FILESYSTEM, OP_MEMORY, OP_PROCESS, OP_QUERY, OP_IPC, OP_TIMER, OP_EVENT, OPS,
};
#define OP LABEL("op", "other|read|write|poll|lock|time|sleep|socket|yield|" \
		"filesystem|memory|process|query|ipc|timer|event")
#define SWITCH_KIND LABEL("kind", "voluntary|involuntary")

/* A system call under way. */
struct call {
	u64 start; /* bpf_ktime_get_ns() at enter; 0: none, or it began unseen */
	u64 op;
};

/* A stint of a task, or of the idle task, on a CPU: who had it, since when. */
struct stint {
	u64 rank;
	u64 since; /* run-queue clock */
};
#define STINTS 4

struct task_bank {
	/*
	 * The call under way on this CPU. Enter and exit need no look-up by
	 * task: when a task is switched out inside a call, the switch moves it
	 * to the task's state and back.
	 */
	struct call call;
	/* Who got this CPU at the latest switch, the pid + 1; 0: none was seen yet. */
	u64 holder;
	/* The latest stints on this CPU, a ring. */
	struct stint stints[STINTS];
	u64 stint; /* the latest of them */
	COUNTER_PER_CPU(switches, [2], scheduler_runqueue, "scheduler_context_switch", "",
			"context switches away from a task, by whether it gave up the CPU or lost it", SWITCH_KIND);
	COUNTER_PER_CPU(wait, , scheduler_runqueue, "scheduler_runqueue_wait", "nanoseconds",
			"time that tasks, once they got this CPU, had waited for one");
	COUNTER_PER_CPU(discarded, , scheduler_runqueue, "scheduler_discarded_samples", "",
			"times that were not counted: the clocks of two CPUs disagreed, or a task could not be remembered", LOST);
	COUNTER_PER_CPU(unseen, , scheduler_runqueue, "scheduler_unseen_switches", "",
			"context switches that the kernel ran no program for, as the next one shows: another task gives up the CPU "
			"than had got it");
	COUNTER_PER_CPU(migrations, [2], cpu_migrations, "cpu_migrations", "",
			"tasks that left this CPU for another, and that came to it from another",
			LABEL("direction", "from|to"));
	COUNTER_PER_CPU(wakeups, , scheduler_runqueue, "scheduler_wakeups", "",
			"tasks that got this CPU after they had been asleep or blocked");
	HISTOGRAM(depth, , scheduler_runqueue, "scheduler_runqueue_depth", "tasks",
		  "tasks that can run on a CPU, the one that runs with them, as each context switch finds it");
	COUNTER(calls, [OPS], syscall_counts, "syscall", "", "system calls entered, by class", OP);
	HISTOGRAM(latency, , scheduler_runqueue, "scheduler_runqueue_latency", "nanoseconds",
		  "time a runnable task waited for a CPU");
	HISTOGRAM(running, , scheduler_runqueue, "scheduler_running", "nanoseconds",
		  "time a task had a CPU, from getting it to giving it up or losing it");
	HISTOGRAM(offcpu, , scheduler_runqueue, "scheduler_offcpu", "nanoseconds",
		  "time a task was asleep or blocked, without its wait for a CPU after that");
	HISTOGRAM(call_latency, [OPS], syscall_latency, "syscall_latency", "nanoseconds",
		  "time from entering a system call to leaving it, by class", OP);
} BANK;
BANKS(task_banks, struct task_bank);

struct task_cgroup {
	TOUCHED;
	COUNTER(wait, , scheduler_runqueue, "cgroup_scheduler_runqueue_wait", "nanoseconds",
		"time that tasks of the cgroup waited for a CPU", WEIGHT);
	COUNTER(running, , scheduler_runqueue, "cgroup_scheduler_running", "nanoseconds",
		"time that tasks of the cgroup had a CPU, counted when they give it up or lose it", WEIGHT);
	COUNTER(offcpu, , scheduler_runqueue, "cgroup_scheduler_offcpu", "nanoseconds",
		"time that tasks of the cgroup were asleep or blocked, counted when they run again");
	COUNTER(switches, [2], scheduler_runqueue, "cgroup_scheduler_context_switch", "",
		"context switches away from tasks of the cgroup", SWITCH_KIND);
	COUNTER(migrations, , cpu_migrations, "cgroup_cpu_migrations", "",
		"tasks of the cgroup that got another CPU than the one they had before");
	COUNTER(calls, [OPS], syscall_counts, "cgroup_syscall", "",
		"system calls that tasks of the cgroup entered, by class", OP);
};
CGROUP_BANKS(task_cgroups, struct task_cgroup);

RANKS(cgroup);
struct task_pairs {
	COUNTER(wait, [RANKS_MAX][RANKS_MAX], scheduler_interference, "cgroup_scheduler_interference", "nanoseconds",
		"time that tasks of one cgroup, the victim, waited for a CPU while a task of another, the culprit, had it");
} BANK;
PAIR_BANKS(task_pair_banks, struct task_pairs, cgroup, "victim,culprit", "idle");

/* What a task was when it was switched out. */
struct task_state {
	u64 off_at;    /* run-queue clock, if it gave up the CPU; else 0 */
	u64 run_delay; /* its sched_info.run_delay then */
	u32 cpu;
	struct call call;
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} task_states SEC(".maps");

/* The same for kernels without task storage, which came with 5.11 and needs BTF. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct task_state);
} task_states_by_pid SEC(".maps");

/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * sched_switch: prev loses the CPU that next gets. The scheduler keeps the
 * times that matter itself, on the run queue's clock (sched_info): when a task
 * was queued, when it got its CPU, what it waited before it was moved to
 * another queue. Only when a task went to sleep must be remembered here.
 *
 * The tracepoint comes before the scheduler's own accounting of the switch
 * (__schedule, context_switch), so next still has the time it was queued at.
 * The idle task is not a task.
 */
#pragma once

#include "task.h"

/* Most switches stay within a cgroup: one search for both. */
inline_ bool same_cgroup(struct task_struct *a, struct task_struct *b, const bool raw)
{
	if (rz_cgroup_v1)
		return READ(raw, a, sched_task_group) == READ(raw, b, sched_task_group);
	return READ(raw, a, cgroups) == READ(raw, b, cgroups);
}

inline_ u64 state_of(struct task_struct *task, const bool raw)
{
	if (bpf_core_field_exists(struct task_struct___since_5_14, __state)) {
		struct task_struct___since_5_14 *t = (void *)task;

		return READ(raw, t, __state);
	}
	struct task_struct___before_5_14 *t = (void *)task;

	return READ(raw, t, state);
}

inline_ struct task_state *task_state(struct task_struct *task, u32 pid, const bool create, const bool raw)
{
	if (!raw)
		return bpf_task_storage_get(&task_states, task, 0, create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	struct task_state *state = bpf_map_lookup_elem(&task_states_by_pid, &pid);

	if (!state && create) {
		struct task_state none = {};

		bpf_map_update_elem(&task_states_by_pid, &pid, &none, BPF_NOEXIST);
		state = bpf_map_lookup_elem(&task_states_by_pid, &pid);
	}
	return state;
}

/* prev leaves the CPU: counts its stint, remembers what its return needs. */
inline_ void leave(struct task_bank *bank, struct task_cgroup *cgroup, struct task_struct *prev, u64 now, bool voluntary,
		   const bool raw)
{
	u64 arrival = READ(raw, prev, sched_info.last_arrival);

	bank_add(&bank->switches[!voluntary], 1);
	if (cgroup)
		cgroup_add(&cgroup->switches[!voluntary], 1);
	if (!arrival)
		return;
	if (now < arrival) {
		bank_add(&bank->discarded, 1);
		return;
	}
	hist_add(bank->running, now - arrival);
	if (cgroup)
		cgroup_add(&cgroup->running, now - arrival);
}

/*
 * next had waited since queued while others had the CPU: charges them, for the
 * part of the wait that each had it. The latest stint is the one that ends now.
 */
inline_ void charge(struct task_bank *bank, struct task_pairs *pairs, u64 victim, u64 queued, u64 now, u64 elsewhere)
{
	u64 end = now;

	OPAQUE(victim);
	if (victim >= RANKS_MAX)
		return;
	for (u32 i = 0; i < STINTS && end > queued; i++) {
		struct stint *s = &bank->stints[(bank->stint - i) & (STINTS - 1)];
		u64 since = s->since > queued ? s->since : queued, rank = s->rank & RANK_LAST;

		if (!s->since || since > end)
			break;
		bank_add(&pairs->wait[victim][rank], end - since);
		end = since;
	}
	/* Stints longer ago, and waits on the queues of other CPUs. */
	bank_add(&pairs->wait[victim][0], end - queued + elsewhere);
}

/* A task is back that gave up its CPU and then waited for one: counts what it was away besides. */
inline_ void wake(struct task_bank *bank, struct task_cgroup *cgroup, u64 off_at, u64 wait, u64 now)
{
	if (now < off_at + wait) {
		bank_add(&bank->discarded, 1);
		return;
	}
	u64 off = now - off_at - wait;

	bank_add(&bank->wakeups, 1);
	hist_add(bank->offcpu, off);
	if (cgroup)
		cgroup_add(&cgroup->offcpu, off);
}

/* next gets the CPU: counts how long it waited, and slept before that. */
inline_ void arrive(struct task_bank *bank, struct task_cgroup *cgroup, struct task_struct *next, struct task_state *state,
		    u32 cpu, u32 slot, u64 now, const bool raw)
{
	u64 queued = READ(raw, next, sched_info.last_queued), wait = 0;

	if (queued) {
		if (now < queued) {
			bank_add(&bank->discarded, 1);
			return;
		}
		wait = now - queued;
		/* What it waited on the queues of other CPUs before it was pulled here. */
		if (state && state->cpu)
			wait += READ(raw, next, sched_info.run_delay) - state->run_delay;
		if (sampler_scheduler_interference) {
			struct task_pairs *pairs = cpu_bank(&task_pair_banks, cpu);

			if (pairs && wait)
				charge(bank, pairs, cgroup_rank(slot), queued, now, wait - (now - queued));
		}
		hist_add(bank->latency, wait);
		bank_add(&bank->wait, wait);
		if (cgroup)
			cgroup_add(&cgroup->wait, wait);
	}
	if (state && state->off_at)
		wake(bank, cgroup, state->off_at, wait, now);
}

/* Counts a task that ran on another CPU before this one. */
inline_ void migrate(struct task_bank *bank, struct task_cgroup *cgroup, u32 from, u32 cpu)
{
	struct task_bank *left = cpu_bank(&task_banks, from);

	bank_add(&bank->migrations[1], 1);
	/* Another CPU's bank: other CPUs may be at the same word. */
	if (left)
		shared_add(&left->migrations[0], 1);
	if (cgroup)
		cgroup_add(&cgroup->migrations, 1);
}

/*
 * prev leaves a CPU that no program saw it get (docs/probes.md): counts what
 * its arrival would have. By now the scheduler's own accounting has its wait.
 */
inline_ void catch_up(struct task_bank *bank, struct task_cgroup *cgroup, struct task_struct *prev, struct task_state *state,
		      u32 cpu, const bool raw)
{
	if (!state->cpu) /* it was not seen leaving, either */
		return;
	if (sampler_scheduler_runqueue) {
		u64 wait = READ(raw, prev, sched_info.run_delay) - state->run_delay;

		hist_add(bank->latency, wait);
		bank_add(&bank->wait, wait);
		if (cgroup)
			cgroup_add(&cgroup->wait, wait);
		if (state->off_at)
			wake(bank, cgroup, state->off_at, wait, READ(raw, prev, sched_info.last_arrival));
	}
	if (sampler_cpu_migrations && state->cpu != cpu + 1)
		migrate(bank, cgroup, state->cpu - 1, cpu);
	if (!bank->call.start)
		bank->call = state->call;
}

inline_ int task_switch(u64 *ctx, const bool raw)
{
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	const bool timed = sampler_scheduler_runqueue || sampler_scheduler_interference;
	const bool counted = timed || sampler_cpu_migrations;
	u32 cpu = bpf_get_smp_processor_id(), prev_pid = READ(raw, prev, pid), next_pid = READ(raw, next, pid);
	struct task_bank *bank = cpu_bank(&task_banks, cpu);
	struct task_cgroup *prev_cgroup = NULL, *next_cgroup = NULL;
	u32 prev_slot = 0, next_slot = 0;

	if (!bank)
		return 0;
	u64 now = READ3(raw, next, se.cfs_rq, rq, clock);
	u64 prev_state = bpf_core_type_exists(btf_trace_sched_switch___since_5_19) ? (u32)ctx[3] : state_of(prev, raw);
	/* The kernel's rule for nvcsw and nivcsw. */
	bool voluntary = !ctx[0] && prev_state;

	/* The kernel ran no program for a switch in between. */
	bool unseen = bank->holder && bank->holder != prev_pid + 1ull;

	bank->holder = next_pid + 1ull;
	if (sampler_scheduler_runqueue && unseen)
		bank_add(&bank->unseen, 1);
	if (prev_pid) {
		if (counted) {
			prev_slot = task_cgroup_slot(prev, raw);
			prev_cgroup = cgroup_bank(&task_cgroups, cpu, prev_slot);
		}
		if (sampler_scheduler_runqueue)
			leave(bank, prev_cgroup, prev, now, voluntary, raw);
		/* A dead task does not come back: nothing is left behind. */
		if ((counted || bank->call.start) && !(prev_state & TASK_DEAD)) {
			struct task_state *state = task_state(prev, prev_pid, true, raw);

			if (state) {
				if (unseen)
					catch_up(bank, prev_cgroup, prev, state, cpu, raw);
				state->off_at = voluntary ? now : 0;
				state->run_delay = READ(raw, prev, sched_info.run_delay);
				state->cpu = cpu + 1;
				state->call = bank->call;
			} else if (sampler_scheduler_runqueue) {
				bank_add(&bank->discarded, 1); /* its return will not be known */
			}
		}
		/* A task that is born later may get its pid. */
		if (raw && prev_state & TASK_DEAD)
			bpf_map_delete_elem(&task_states_by_pid, &prev_pid);
	}
	bank->call.start = 0;
	if (next_pid) {
		struct task_state *state = task_state(next, next_pid, false, raw);

		if (counted) {
			next_slot = prev_slot;
			next_cgroup = prev_cgroup;
			if (!prev_cgroup || !same_cgroup(prev, next, raw)) {
				next_slot = task_cgroup_slot(next, raw);
				next_cgroup = cgroup_bank(&task_cgroups, cpu, next_slot);
			}
		}
		if (timed)
			arrive(bank, next_cgroup, next, state, cpu, next_slot, now, raw);
		if (state) {
			if (sampler_cpu_migrations && state->cpu && state->cpu != cpu + 1)
				migrate(bank, next_cgroup, state->cpu - 1, cpu);
			if (sampler_syscall_latency)
				bank->call = state->call;
		}
	}
	if (sampler_scheduler_runqueue)
		hist_add(bank->depth, READ3(raw, next, se.cfs_rq, rq, nr_running));
	if (sampler_scheduler_interference) {
		bank->stint = (bank->stint + 1) & (STINTS - 1);
		bank->stints[bank->stint & (STINTS - 1)].rank = next_pid ? cgroup_rank(next_slot) : RANK_LAST;
		bank->stints[bank->stint & (STINTS - 1)].since = now;
	}
	return 0;
}

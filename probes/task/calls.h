/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * sys_enter and sys_exit: counts a call when it is entered, as the original
 * does, and times it when it is left. A call that never returns (exit) is
 * counted and not timed.
 */
#pragma once

#include "switch.h"
#include "syscalls.h"

/* The class of each call by number: amd64, then arm64. A hole is `other`. */
#define CALLS 512
const volatile u8 syscall_class[2][CALLS] = {
	{ SYSCALL_CLASSES_AMD64 },
	{ SYSCALL_CLASSES_ARM64 },
};
const volatile bool rz_arm64 = false;

#define X86_TS_COMPAT 0x0002	    /* thread_info.status: a 32-bit call is under way */
#define ARM64_TIF_32BIT (1ul << 22) /* thread_info.flags: a 32-bit task */

/* 32-bit calls have numbers of their own, which the table does not know. */
inline_ bool is_compat(struct task_struct *task, const bool raw)
{
	if (rz_arm64)
		return READ(raw, task, thread_info.flags) & ARM64_TIF_32BIT;
	return bpf_core_field_exists(struct thread_info, status) && READ(raw, task, thread_info.status) & X86_TS_COMPAT;
}

inline_ int call_enter(u64 *ctx, const bool raw)
{
	struct task_struct *task = raw ? (void *)bpf_get_current_task() : bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct task_bank *bank = cpu_bank(&task_banks, cpu);
	u64 id = ctx[1];
	u32 op = OP_OTHER;

	if (!bank)
		return 0;
	if (id < CALLS && !is_compat(task, raw))
		op = syscall_class[rz_arm64][id];
	if (op >= OPS) /* for the verifier, which does not read the table */
		return 0;
	if (sampler_syscall_counts) {
		struct task_cgroup *cgroup = cgroup_bank(&task_cgroups, cpu, task_cgroup_slot(task, raw));

		bank_add(&bank->calls[op], 1);
		if (cgroup)
			cgroup_add(&cgroup->calls[op], 1);
	}
	if (sampler_syscall_latency) {
		bank->call.op = op;
		bank->call.start = bpf_ktime_get_ns();
	}
	return 0;
}

/*
 * The call that the current task was switched out in, where no program saw it
 * get this CPU (docs/probes.md). It is forgotten, so that it is not found again.
 */
inline_ struct call take_up(struct task_bank *bank, const bool raw)
{
	struct call call = {};
	u32 pid = bpf_get_current_pid_tgid();

	if (!bank->holder || bank->holder == pid + 1ull)
		return call;
	struct task_struct *task = raw ? (void *)bpf_get_current_task() : bpf_get_current_task_btf();
	struct task_state *state = task_state(task, pid, false, raw);

	if (state) {
		call = state->call;
		state->call.start = 0;
	}
	return call;
}

inline_ int call_exit(const bool raw)
{
	struct task_bank *bank = cpu_bank(&task_banks, bpf_get_smp_processor_id());

	if (!bank)
		return 0;
	struct call call = bank->call;

	if (__builtin_expect(!call.start, 0))
		call = take_up(bank, raw);
	if (__builtin_expect(!call.start, 0))
		return 0;
	u64 took = bpf_ktime_get_ns() - call.start;

	bank->call.start = 0;
	if (call.op < OPS)
		hist_add(bank->call_latency[call.op], took);
	return 0;
}

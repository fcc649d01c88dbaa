/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * Tasks that are born, become another program, and die: a program for each of
 * the three hooks, which are cold.
 */
#include "cgroup.bpf.h"

SAMPLER(process);

enum kind { KIND_PROCESS, KIND_THREAD, KINDS };
#define KIND LABEL("kind", "process|thread")
enum cause { CAUSE_SUCCESS, CAUSE_FAILURE, CAUSE_SIGNAL, CAUSES };

struct process_bank {
	COUNTER(forks, [KINDS], process, "process_forks", "", "tasks that were made", KIND);
	COUNTER(execs, , process, "process_execs", "", "processes that became another program");
	COUNTER(exits, [KINDS][CAUSES], process, "process_exits", "",
		"tasks that ended, by whether they exited with 0, with something else or by a signal", KIND
		LABEL("cause", "success|failure|signal"));
} BANK;
BANKS(process_banks, struct process_bank);

struct process_cgroup {
	TOUCHED;
	COUNTER(forks, [KINDS], process, "cgroup_process_forks", "", "tasks that tasks of the cgroup made", KIND);
	COUNTER(execs, , process, "cgroup_process_execs", "", "processes of the cgroup that became another program");
	COUNTER(exits, [KINDS], process, "cgroup_process_exits", "", "tasks of the cgroup that ended", KIND);
};
CGROUP_BANKS(process_cgroups, struct process_cgroup);


struct task_struct___ids { int pid, tgid; int exit_code; } KERNEL;

inline_ u32 kind_of(struct task_struct *task, const bool raw)
{
	struct task_struct___ids *t = (void *)task;

	return READ(raw, t, pid) == READ(raw, t, tgid) ? KIND_PROCESS : KIND_THREAD;
}

inline_ int forked(struct task_struct *parent, struct task_struct *child, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct process_bank *bank = cpu_bank(&process_banks, cpu);
	struct process_cgroup *cgroup = cgroup_bank(&process_cgroups, cpu, task_cgroup_slot(parent, raw));
	u32 kind = kind_of(child, raw);

	if (bank)
		bank_add(kind == KIND_PROCESS ? &bank->forks[KIND_PROCESS] : &bank->forks[KIND_THREAD], 1);
	if (cgroup)
		cgroup_add(kind == KIND_PROCESS ? &cgroup->forks[KIND_PROCESS] : &cgroup->forks[KIND_THREAD], 1);
	return 0;
}

inline_ int executed(struct task_struct *task, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct process_bank *bank = cpu_bank(&process_banks, cpu);
	struct process_cgroup *cgroup = cgroup_bank(&process_cgroups, cpu, task_cgroup_slot(task, raw));

	if (bank)
		bank_add(&bank->execs, 1);
	if (cgroup)
		cgroup_add(&cgroup->execs, 1);
	return 0;
}

inline_ int exited(struct task_struct *task, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct process_bank *bank = cpu_bank(&process_banks, cpu);
	struct process_cgroup *cgroup = cgroup_bank(&process_cgroups, cpu, task_cgroup_slot(task, raw));
	struct task_struct___ids *t = (void *)task;
	int code = READ(raw, t, exit_code);
	/* wait(2): the signal is in the low seven bits. */
	u64 kind = kind_of(task, raw), cause = code & 0x7f ? CAUSE_SIGNAL : code ? CAUSE_FAILURE : CAUSE_SUCCESS;

	OPAQUE(kind);
	OPAQUE(cause);
	if (kind >= KINDS || cause >= CAUSES)
		return 0;
	if (bank)
		bank_add(&bank->exits[kind][cause], 1);
	if (cgroup)
		cgroup_add(&cgroup->exits[kind], 1);
	return 0;
}

SEC("tp_btf/sched_process_fork") NEEDS("process")
int on_fork(u64 *ctx)
{
	return forked((void *)ctx[0], (void *)ctx[1], false);
}

SEC("raw_tp/sched_process_fork") NEEDS("process")
int on_fork__raw(u64 *ctx)
{
	return forked((void *)ctx[0], (void *)ctx[1], true);
}

SEC("tp_btf/sched_process_exec") NEEDS("process")
int on_exec(u64 *ctx)
{
	return executed((void *)ctx[0], false);
}

SEC("raw_tp/sched_process_exec") NEEDS("process")
int on_exec__raw(u64 *ctx)
{
	return executed((void *)ctx[0], true);
}

SEC("tp_btf/sched_process_exit") NEEDS("process")
int on_exit(u64 *ctx)
{
	return exited((void *)ctx[0], false);
}

SEC("raw_tp/sched_process_exit") NEEDS("process")
int on_exit__raw(u64 *ctx)
{
	return exited((void *)ctx[0], true);
}

char LICENSE[] SEC("license") = "GPL";

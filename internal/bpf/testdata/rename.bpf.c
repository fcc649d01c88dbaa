/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * Counts task renames in every way a probe can count, by every rung: of tasks
 * whose name was "renamed", because a machine renames a task for each program
 * that it starts.
 */
#include "cgroup.bpf.h"
#include "hist.bpf.h"

SAMPLER(rename);
SAMPLER(rename_more);

struct rename_bank {
	COUNTER_PER_CPU(renames, , rename, "task_renames", "", "task renames");
	COUNTER(kinds, [2][3], rename, "task_renames_by", "", "task renames, twice labelled",
		LABEL("a", "x|y") LABEL("b", "p|q|r") LABEL("fixed", "yes"));
	HISTOGRAM(sizes, , rename_more, "task_rename_size", "bytes", "a histogram of a constant");
	COUNTER(unseen, , rename_more, "task_renames_lost", "", "always one a rename", LOST);
} BANK;
BANKS(rename_banks, struct rename_bank);

struct rename_cgroup {
	TOUCHED;
	COUNTER(renames, , rename, "cgroup_task_renames", "", "task renames by cgroup");
};
CGROUP_BANKS(rename_cgroups, struct rename_cgroup);

inline_ int count(const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct rename_bank *bank = cpu_bank(&rename_banks, cpu);
	struct rename_cgroup *cgroup = current_cgroup(&rename_cgroups, cpu, raw);

	char name[16] __attribute__((aligned(8))) = {};

	bpf_get_current_comm(name, sizeof(name));
	if (!bank || !cgroup || *(u64 *)name != 0x64656d616e6572 /* "renamed" */)
		return 0;
	if (sampler_rename) {
		bank_add(&bank->renames, 1);
		bank_add(&bank->kinds[1][2], 1);
		cgroup_add(&cgroup->renames, 1);
	}
	if (sampler_rename_more) {
		hist_add(bank->sizes, 100);
		bank_add(&bank->unseen, 1);
	}
	return 0;
}

SEC("tp_btf/task_rename") NEEDS("rename|rename_more") int on_rename(u64 *ctx) { return count(false); }
SEC("raw_tp/task_rename") NEEDS("rename|rename_more") int on_rename__raw(u64 *ctx) { return count(true); }
SEC("tp/task/task_rename") NEEDS("rename|rename_more") int on_rename__tp(void *ctx) { return count(true); }

char LICENSE[] SEC("license") = "GPL";

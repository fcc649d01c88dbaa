/* SPDX-License-Identifier: GPL-2.0-only */

/* Work that a task does from one tracepoint to another, and may sleep in. */
#pragma once

#include "mem.h"

inline_ u64 span_key(enum span what)
{
	return (u64)what << 32 | (u32)bpf_get_current_pid_tgid();
}

inline_ void span_begin(enum span what)
{
	u64 key = span_key(what), now = bpf_ktime_get_ns();

	bpf_map_update_elem(&mem_spans, &key, &now, BPF_ANY);
}

/* How long it took; 0: its beginning is not known. */
inline_ u64 span_end(enum span what)
{
	u64 key = span_key(what), *begun = bpf_map_lookup_elem(&mem_spans, &key);

	if (!begun)
		return 0;
	u64 took = bpf_ktime_get_ns() - *begun;

	bpf_map_delete_elem(&mem_spans, &key);
	return took ? took : 1;
}

inline_ int reclaim_end(enum reclaim kind, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct mem_bank *bank = cpu_bank(&mem_banks, cpu);
	struct mem_cgroup *cgroup = current_cgroup(&mem_cgroups, cpu, raw);
	u64 took = span_end(SPAN_RECLAIM + kind);

	if (!bank)
		return 0;
	if (took)
		hist_add(bank->reclaim[kind], took);
	else
		bank_add(&bank->reclaim_lost, 1);
	if (cgroup) {
		cgroup_add(&cgroup->reclaims[kind], 1);
		cgroup_add(&cgroup->reclaim_time[kind], took);
	}
	return 0;
}

inline_ int compaction_end(const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct mem_bank *bank = cpu_bank(&mem_banks, cpu);
	struct mem_cgroup *cgroup = current_cgroup(&mem_cgroups, cpu, raw);
	u64 took = span_end(SPAN_COMPACTION);

	if (!bank)
		return 0;
	if (took)
		hist_add(bank->compaction, took);
	else
		bank_add(&bank->compaction_lost, 1);
	if (cgroup)
		cgroup_add(&cgroup->compaction_time, took);
	return 0;
}

inline_ int writeback_end(void)
{
	struct mem_bank *bank = cpu_bank(&mem_banks, bpf_get_smp_processor_id());
	u64 took = span_end(SPAN_WRITEBACK);

	if (!bank)
		return 0;
	if (took)
		hist_add(bank->writeback, took);
	else
		bank_add(&bank->writeback_lost, 1);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * Page faults: what the CPU raises (exceptions:page_fault_*, x86), and what
 * the kernel does about them (handle_mm_fault, which also serves the kernel's
 * own need for a program's pages).
 */
#pragma once

#include "mem.h"

inline_ int exception(enum mode mode, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct mem_bank *bank = cpu_bank(&mem_banks, cpu);
	struct mem_cgroup *cgroup = current_cgroup(&mem_cgroups, cpu, raw);

	if (bank)
		bank_add(&bank->exceptions[mode], 1);
	if (cgroup)
		cgroup_add(&cgroup->exceptions[mode], 1);
	return 0;
}

inline_ u64 *fault_begun(const bool create, const bool raw)
{
	if (!raw)
		return bpf_task_storage_get(&mem_faults, bpf_get_current_task_btf(), 0, create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	u32 pid = bpf_get_current_pid_tgid();
	u64 none = 0, *begun = bpf_map_lookup_elem(&mem_faults_by_pid, &pid);

	if (!begun && create) {
		bpf_map_update_elem(&mem_faults_by_pid, &pid, &none, BPF_NOEXIST);
		begun = bpf_map_lookup_elem(&mem_faults_by_pid, &pid);
	}
	return begun;
}

/*
 * A fault that had to let go of its locks is tried again, with TRIED if it
 * waited for a device: the time counts from the first try.
 */
inline_ int fault_enter(u32 flags, const bool raw)
{
	if (flags & FAULT_FLAG_TRIED)
		return 0;
	u64 *begun = fault_begun(true, raw);

	if (begun)
		*begun = bpf_ktime_get_ns() & ~1ull; /* fault_exit keeps a note in the lowest bit */
	return 0;
}

inline_ int fault_exit(u32 result, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id(), kind;
	struct mem_bank *bank = cpu_bank(&mem_banks, cpu);
	struct mem_cgroup *cgroup = current_cgroup(&mem_cgroups, cpu, raw);
	u64 *begun = fault_begun(false, raw);

	if (!bank)
		return 0;
	if (result & VM_FAULT_RETRY) {
		/* The lowest bit says that a try was a major one; so fine is no clock. */
		if (begun && result & VM_FAULT_MAJOR)
			*begun |= 1;
		return 0;
	}
	if (result & VM_FAULT_ERROR)
		return 0;
	if (!begun || !*begun) {
		bank_add(&bank->fault_lost, 1);
		return 0;
	}
	kind = result & VM_FAULT_MAJOR || *begun & 1 ? FAULT_MAJOR : FAULT_MINOR;
	hist_add(bank->faults[kind], bpf_ktime_get_ns() - *begun);
	*begun = 0;
	if (cgroup)
		cgroup_add(&cgroup->faults[kind], 1);
	return 0;
}

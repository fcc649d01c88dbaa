/* SPDX-License-Identifier: GPL-2.0-only */

/* The domain of cgroups, by kernfs id. */
#pragma once

#include "slots.bpf.h"

SLOTS(cgroup);
#define CGROUP_BANKS(map, value_type) SLOT_BANKS(map, value_type, cgroup, "name")

/* p->a->b->c, by plain loads or, in programs without BTF, by a helper. */
#define READ(raw, p, a) ((raw) ? BPF_CORE_READ(p, a) : (p)->a)
#define READ2(raw, p, a, b) ((raw) ? BPF_CORE_READ(p, a, b) : (p)->a->b)
#define READ3(raw, p, a, b, c) ((raw) ? BPF_CORE_READ(p, a, b, c) : (p)->a->b->c)
#define READ4(raw, p, a, b, c, d) ((raw) ? BPF_CORE_READ(p, a, b, c, d) : (p)->a->b->c->d)

/* Cgroups are those of the v1 cpu controller. */
const volatile bool rz_cgroup_v1 = false;

inline_ u64 task_cgroup_id(struct task_struct *task, const bool raw)
{
	if (rz_cgroup_v1)
		return READ4(raw, task, sched_task_group, css.cgroup, kn, id);
	return READ4(raw, task, cgroups, dfl_cgrp, kn, id);
}

inline_ u32 task_cgroup_slot(struct task_struct *task, const bool raw)
{
	return cgroup_slot(task_cgroup_id(task, raw));
}

/* The slot of the current task's cgroup. 3ca1032ab7ab (5.11) added bpf_get_current_task_btf. */
inline_ u32 current_slot(const bool raw)
{
	u64 id;

	if (raw || !bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf))
		id = task_cgroup_id((void *)bpf_get_current_task(), true);
	else
		id = task_cgroup_id(bpf_get_current_task_btf(), false);
	return cgroup_slot(id);
}

/* The words of the current task's cgroup in a CGROUP_BANKS map. */
inline_ void *current_cgroup(void *map, u32 cpu, const bool raw)
{
	return cgroup_bank(map, cpu, current_slot(raw));
}

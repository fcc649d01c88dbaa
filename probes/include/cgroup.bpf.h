/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * From a task to the slot of its cgroup, by a table that user space keeps:
 * open addressing over plain arrays, because an array look-up is inlined and
 * costs nothing next to a hash look-up (37 ns). Slot 0 is every cgroup that
 * has no slot of its own.
 */
#pragma once

#include "metric.bpf.h"

struct cgroup_cell {
	u64 id; /* kernfs id; 0: empty, ~0: deleted */
	u64 slot;
};

/* One table for all probes; made and sized at load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 8);
	__type(key, u32);
	__type(value, struct cgroup_cell);
} cgroup_table SEC(".maps");

const volatile bool rz_cgroup_v1 = false;
const volatile u32 rz_cgroup_shift = 61; /* 64 - log2(size of the table) */

#define CGROUP_PROBES 8

inline_ u32 cgroup_slot(u64 id)
{
	u32 mask = (1u << (64 - rz_cgroup_shift)) - 1;
	u32 home = (id * 0x9E3779B97F4A7C15ull) >> rz_cgroup_shift;

#pragma unroll
	for (u32 i = 0; i < CGROUP_PROBES; i++) {
		u32 at = (home + i) & mask;
		struct cgroup_cell *cell = bpf_map_lookup_elem(&cgroup_table, &at);

		if (!cell || !cell->id)
			return 0;
		if (cell->id == id) {
			u32 slot = cell->slot;

			return slot < rz_slots ? slot : 0;
		}
	}
	return 0;
}

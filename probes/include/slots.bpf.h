/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * Tells things apart that come and go: cgroups, block devices, interfaces. A
 * domain is one kind of thing. Each thing has a slot in the banks of its
 * domain, found by a table that user space keeps: open addressing over plain
 * arrays, because an array look-up is inlined and costs nothing next to a hash
 * look-up (37 ns). Slot 0 is everything that has no slot of its own.
 */
#pragma once

#include "hist.bpf.h"

struct slot_cell {
	u64 id; /* 0: empty, ~0: deleted */
	u64 slot;
};

#define SLOT_PROBES 8

inline_ u32 slot_find(void *table, u64 id, u32 shift, u32 slots)
{
	u32 mask = (1u << (64 - shift)) - 1;
	u32 home = (id * 0x9E3779B97F4A7C15ull) >> shift;

#pragma unroll
	for (u32 i = 0; i < SLOT_PROBES; i++) {
		u32 at = (home + i) & mask;
		struct slot_cell *cell = bpf_map_lookup_elem(table, &at);

		if (!cell || !cell->id)
			return 0;
		if (cell->id == id) {
			u32 slot = cell->slot;

			return slot < slots ? slot : 0;
		}
	}
	return 0;
}

/*
 * SLOTS(d, keys) makes domain d, whose things are labelled by keys ("a,b"):
 *   d_slot(id)             the slot of a thing
 *   d_bank(map, cpu, slot) its words in a SLOT_BANKS map
 *   d_add, d_hist_add      adds to them
 * One table serves all probes; the constants are set at load. Slots are many,
 * so a host with many CPUs has fewer banks of them than CPUs (a power of two),
 * and adds may meet: then they are atomic.
 */
#define SLOTS(d) \
	struct { \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, 8); \
		__type(key, u32); \
		__type(value, struct slot_cell); \
	} d##_table SEC(".maps"); \
	const volatile u32 rz_##d##_slots = 1; \
	const volatile u32 rz_##d##_banks = 1; \
	const volatile bool rz_##d##_shared = false; \
	const volatile u32 rz_##d##_shift = 61; /* 64 - log2(size of the table) */ \
	inline_ u32 d##_slot(u64 id) \
	{ \
		return slot_find(&d##_table, id, rz_##d##_shift, rz_##d##_slots); \
	} \
	inline_ void *d##_bank(void *map, u32 cpu, u32 slot) \
	{ \
		u32 i = (cpu & (rz_##d##_banks - 1)) * rz_##d##_slots + slot; \
		u64 *touched = bpf_map_lookup_elem(map, &i); \
		if (touched) \
			*(volatile u64 *)touched = 1; \
		return touched; \
	} \
	inline_ void d##_add(u64 *word, u64 n) \
	{ \
		if (rz_##d##_shared) \
			shared_add(word, n); \
		else \
			*word += n; \
	} \
	inline_ void d##_hist_add(u64 *buckets, u64 v) \
	{ \
		u64 i = hist_index(v, 3); \
		OPAQUE(i); \
		if (i < HIST_BUCKETS(3)) { \
			d##_add(&buckets[i], 1); \
			hist_touch(buckets, i); \
		} \
	} \
	struct rz_##d##_end

/*
 * The banks of a domain whose things have labels keys ("a,b"). The value begins
 * with TOUCHED, by which a look-up tells user space that a program is about to
 * count: most things of a host do nothing most of the time, and are not read.
 */
#define SLOT_BANKS(map, value_type, d, keys) \
	_Static_assert(__builtin_offsetof(value_type, touched) == 0, "TOUCHED comes first"); \
	BANK_MAP_(map, value_type, "bank:" #d "=" keys)
#define TOUCHED u64 touched

/*
 * Pairs of things: RANKS(d) after SLOTS(d). User space gives the heaviest
 * things a rank, and d_rank(slot) is that of a slot. Rank 0 is all others, and
 * the last is free for what is no thing. A member of a bank of the domain with
 * WEIGHT is what makes a thing heavy.
 */
#define RANKS_MAX 16
#define RANK_LAST (RANKS_MAX - 1)
#define RANKS(d) \
	struct { \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, 1); /* set at load */ \
		__type(key, u32); \
		__type(value, u64); \
	} d##_ranks SEC(".maps") TAG("ranks:" #d); \
	inline_ u32 d##_rank(u32 slot) \
	{ \
		u64 *rank = bpf_map_lookup_elem(&d##_ranks, &slot); \
		return rank ? *rank & RANK_LAST : 0; \
	} \
	struct rz_##d##_ranks_end
#define WEIGHT TAG("weight")

/*
 * Banks by CPU, of counters u64 member[RANKS_MAX][RANKS_MAX] by two things of
 * the domain, labelled by keys ("first,second"); last names the last rank of
 * the second.
 */
#define PAIR_BANKS(map, value_type, d, keys, last) BANK_MAP_(map, value_type, "pairs:" #d "=" keys "=" last)

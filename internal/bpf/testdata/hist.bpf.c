/* SPDX-License-Identifier: GPL-2.0-only */

/* Computes the buckets of a list of values, one a run, for the test that holds
 * hist.bpf.h against internal/hist. */
#include "hist.bpf.h"

#define VALUES (1 << 20)

struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(map_flags, BPF_F_MMAPABLE); __uint(max_entries, VALUES);
	 __type(key, u32); __type(value, u64); } values SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(map_flags, BPF_F_MMAPABLE); __uint(max_entries, VALUES);
	 __type(key, u32); __type(value, u64); } indices SEC(".maps");

const volatile u32 power = 3;
u32 next;

SEC("socket") int index_next(void *ctx)
{
	u32 i = next & (VALUES - 1);
	u64 *value = bpf_map_lookup_elem(&values, &i), *index = bpf_map_lookup_elem(&indices, &i);

	next++;
	if (!value || !index)
		return 0;
	switch (power) { /* a constant in the probes */
	case 2: *index = hist_index(*value, 2); break;
	case 3: *index = hist_index(*value, 3); break;
	case 4: *index = hist_index(*value, 4); break;
	case 5: *index = hist_index(*value, 5); break;
	case 6: *index = hist_index(*value, 6); break;
	case 7: *index = hist_index(*value, 7); break;
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

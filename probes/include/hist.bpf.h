/* SPDX-License-Identifier: GPL-2.0-only */

/* The H2 histogram's index; internal/hist has the same in Go. */
#pragma once

#include "metric.bpf.h"

/*
 * The position of the highest set bit; v is not zero. BPF has no instruction
 * for it before v4, so it is a search by halves.
 */
inline_ u32 log2_u64(u64 v)
{
	u32 r = 0;

	if (v >> 32) { v >>= 32; r = 32; }
	u32 w = v;
	if (w >> 16) { w >>= 16; r += 16; }
	if (w >> 8) { w >>= 8; r += 8; }
	if (w >> 4) { w >>= 4; r += 4; }
	if (w >> 2) { w >>= 2; r += 2; }
	return r + (w >> 1);
}

/* The bucket of v in a histogram of 2^power buckets an octave. */
inline_ u32 hist_index(u64 v, const u32 power)
{
	if (v < (2ull << power))
		return v;
	u32 shift = log2_u64(v) - power;

	return (shift << power) + (u32)(v >> shift);
}

/*
 * Counts v in a histogram of power 3. The comparison can never hold; it shows
 * the verifier the bound that it cannot compute.
 */
inline_ void hist_add(u64 *buckets, u64 v)
{
	u32 i = hist_index(v, 3);

	if (i < HIST_BUCKETS(3))
		bank_add(&buckets[i], 1);
}

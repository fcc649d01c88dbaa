/* SPDX-License-Identifier: GPL-2.0-only */

/* The H2 histogram's index; internal/hist has the same in Go. */
#pragma once

#include "metric.bpf.h"

/* The position of the highest set bit of 0..255, each octave twice the last. */
#define X2(n) n, n
#define X4(n) X2(n), X2(n)
#define X8(n) X4(n), X4(n)
#define X16(n) X8(n), X8(n)
#define X32(n) X16(n), X16(n)
#define X64(n) X32(n), X32(n)
const volatile u8 log2_of_byte[256] = { 0, 0, X2(1), X4(2), X8(3), X16(4), X32(5), X64(6), X64(7), X64(7) };

/*
 * The position of the highest set bit; v is not zero. BPF has no instruction
 * for it before v4. A table of bytes needs two comparisons for all times up to
 * four seconds; a search by halves needs five.
 */
inline_ u32 log2_u64(u64 v)
{
	u32 shift = 0;

	if (v >> 32)
		shift = v >> 48 ? v >> 56 ? 56 : 48 : v >> 40 ? 40 : 32;
	else if (v >> 8)
		shift = v >> 16 ? v >> 24 ? 24 : 16 : 8;
	return shift + log2_of_byte[(v >> shift) & 255];
}

/* The bucket of v in a histogram of 2^power buckets an octave. */
inline_ u32 hist_index(u64 v, const u32 power)
{
	if (v < (2ull << power))
		return v;
	u32 shift = log2_u64(v) - power;

	return (shift << power) + (u32)(v >> shift);
}

/* Tells that bucket i of a histogram of power 3 has counted, after it did. */
inline_ void hist_touch(u64 *buckets, u64 i)
{
	barrier();
	((u8 *)&buckets[HIST_BUCKETS(3)])[i >> 6] = 1;
}

/*
 * Counts v in a histogram of power 3. The comparison can never hold; it shows
 * the verifier the bound that it cannot compute.
 */
inline_ void hist_add(u64 *buckets, u64 v)
{
	u64 i = hist_index(v, 3);

	OPAQUE(i);
	if (i < HIST_BUCKETS(3)) {
		bank_add(&buckets[i], 1);
		hist_touch(buckets, i);
	}
}

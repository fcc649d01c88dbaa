/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * Declares metrics, each once: the macros leave BTF tags from which the agent
 * builds its schema. docs/probes.md describes them.
 *
 * A probe keeps its words in banks: one value struct for each CPU (BANKS), or
 * for each thing of a domain (slots.bpf.h). Each member is a metric or scratch.
 */
#pragma once

#include "kernel.bpf.h"

#define TAG(text) __attribute__((btf_decl_tag(text)))

/* A switch in the configuration. Off, the verifier removes what it guards. */
#define SAMPLER(name) const volatile bool sampler_##name = true
/* A program is loaded only while one of these samplers ("a|b") is on. */
#define NEEDS(samplers) TAG("needs:" samplers)

#define METRIC_(sampler, name, kind, unit, help) \
	TAG("metric:" name) TAG("sampler:" #sampler) TAG("kind:" kind) TAG("unit:" unit) TAG("help:" help)

/*
 * Members of a bank. dims is empty or the array dimensions that the labels
 * take; the labels follow as LABEL(...)s, outermost first.
 */
#define COUNTER(member, dims, sampler, name, unit, help, ...) \
	u64 member dims METRIC_(sampler, name, "counter", unit, help) __VA_ARGS__
#define COUNTER_PER_CPU(member, dims, sampler, name, unit, help, ...) \
	u64 member dims METRIC_(sampler, name, "counter", unit, help) TAG("per:cpu") __VA_ARGS__
#define HISTOGRAM(member, dims, sampler, name, unit, help, ...) \
	u64 member dims[HIST_BUCKETS(3) + 1] METRIC_(sampler, name, "histogram/3", unit, help) __VA_ARGS__
#define LABEL(key, values) TAG("label:" key "=" values)
/* The member also counts as events the probe could not attribute. */
#define LOST TAG("lost")

/*
 * Buckets of a histogram with 2^power buckets an octave. In a bank a word
 * follows them of which each byte tells whether anything was counted in eight
 * octaves since user space looked, so that it need not read them all.
 */
#define HIST_BUCKETS(power) ((65 - (power)) << (power))

/* Banks of different CPUs share no cache line. */
#define BANK __attribute__((aligned(64)))

#define BANK_MAP_(map, value_type, tag) \
	struct { \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, 1); /* set at load */ \
		__type(key, u32); \
		__type(value, value_type); \
	} map SEC(".maps") TAG(tag)
#define BANKS(map, value_type) BANK_MAP_(map, value_type, "bank:cpu")

/* The bank of a CPU in a BANKS map, which has one for each possible CPU. */
inline_ void *cpu_bank(void *map, u32 cpu)
{
	return bpf_map_lookup_elem(map, &cpu);
}

/*
 * Tracepoints run their programs with preemption off (include/linux/tracepoint.h,
 * __DO_TRACE), and only a CPU itself writes to its bank: no atomic add.
 */
inline_ void bank_add(u64 *word, u64 n)
{
	*word += n;
}

/*
 * Adds to a word that other CPUs may add to. Relaxed, it is the add that every
 * kernel has; for a stronger order the compiler takes the add that also reads
 * (BPF_FETCH), which came with Linux 5.12.
 */
inline_ void shared_add(u64 *word, u64 n)
{
	__atomic_fetch_add(word, n, __ATOMIC_RELAXED);
}

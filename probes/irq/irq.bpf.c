/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * What interrupts tasks: software and hardware interrupts, the CPUs' own
 * vectors, flushes of the TLB; and how long CPUs are idle between. README.md
 * has what it costs.
 *
 * No argument of these tracepoints is a pointer that is followed, so a
 * program and its twin for kernels without BTF (__raw) are the same but for
 * how the current task's cgroup is found. Indices have 64 bits because older
 * verifiers (6.1) lose the bounds of narrower ones.
 */
#include "irq.h"

/* A program and its twin at a tracepoint; body(ctx, raw) is what they do. */
#define AT(hook, name, samplers, body) \
	SEC("tp_btf/" #hook) NEEDS(samplers) int name(u64 *ctx) { return body(ctx, false); } \
	SEC("raw_tp/" #hook) NEEDS(samplers) int name##__raw(u64 *ctx) { return body(ctx, true); }

inline_ struct irq_bank *this_cpu(void)
{
	return cpu_bank(&irq_banks, bpf_get_smp_processor_id());
}

/* The time since *start, which is forgotten; 0 where the start was not seen. */
inline_ u64 since(u64 *start)
{
	u64 then = *start;

	*start = 0;
	return then ? bpf_ktime_get_ns() - then : 0;
}

inline_ int softirq_raise(u64 *ctx, const bool raw)
{
	struct irq_bank *bank = this_cpu();
	u64 kind = ctx[0];

	if (bank && kind < SOFTIRQS && !bank->raised[kind])
		bank->raised[kind] = bpf_ktime_get_ns();
	return 0;
}

inline_ int softirq_entry(u64 *ctx, const bool raw)
{
	struct irq_bank *bank = this_cpu();
	u64 kind = ctx[0];

	if (!bank || kind >= SOFTIRQS)
		return 0;
	u64 now = bpf_ktime_get_ns();

	bank->softirq_start = now;
	if (sampler_cpu_softirq)
		bank_add(&bank->softirqs[kind], 1);
	if (sampler_cpu_softirq_latency && bank->raised[kind]) {
		hist_add(bank->softirq_latency[kind], now - bank->raised[kind]);
		bank->raised[kind] = 0;
	}
	return 0;
}

inline_ int softirq_exit(u64 *ctx, const bool raw)
{
	struct irq_bank *bank = this_cpu();
	u64 kind = ctx[0];

	if (bank && kind < SOFTIRQS)
		bank_add(&bank->softirq_time[kind], since(&bank->softirq_start));
	return 0;
}

AT(softirq_raise, on_softirq_raise, "cpu_softirq_latency", softirq_raise)
AT(softirq_entry, on_softirq_entry, "cpu_softirq|cpu_softirq_latency", softirq_entry)
AT(softirq_exit, on_softirq_exit, "cpu_softirq", softirq_exit)

inline_ int hardirq_entry(u64 *ctx, const bool raw)
{
	struct irq_bank *bank = this_cpu();

	if (!bank)
		return 0;
	bank_add(&bank->hardirqs, 1);
	bank->hardirq_start = bpf_ktime_get_ns();
	return 0;
}

inline_ int hardirq_exit(u64 *ctx, const bool raw)
{
	struct irq_bank *bank = this_cpu();

	if (!bank || !bank->hardirq_start)
		return 0;
	u64 took = since(&bank->hardirq_start);

	bank_add(&bank->hardirq_time, took);
	hist_add(bank->hardirq_latency, took);
	return 0;
}

AT(irq_handler_entry, on_hardirq_entry, "cpu_hardirq", hardirq_entry)
AT(irq_handler_exit, on_hardirq_exit, "cpu_hardirq", hardirq_exit)

inline_ int vector_entry(enum vector kind)
{
	struct irq_bank *bank = this_cpu();

	if (!bank)
		return 0;
	bank_add(&bank->vectors[kind], 1);
	bank->vector_start = bpf_ktime_get_ns();
	return 0;
}

inline_ int vector_exit(enum vector kind)
{
	struct irq_bank *bank = this_cpu();

	if (bank)
		bank_add(&bank->vector_time[kind], since(&bank->vector_start));
	return 0;
}

/* Both ends of a vector (arch/x86/include/asm/trace/irq_vectors.h). */
#define VECTOR_AT(vector, kind) \
	inline_ int vector##_entry(u64 *ctx, const bool raw) { return vector_entry(kind); } \
	inline_ int vector##_exit(u64 *ctx, const bool raw) { return vector_exit(kind); } \
	AT(vector##_entry, on_##vector##_entry, "cpu_vectors", vector##_entry) \
	AT(vector##_exit, on_##vector##_exit, "cpu_vectors", vector##_exit)

VECTOR_AT(local_timer, VECTOR_TIMER)
VECTOR_AT(reschedule, VECTOR_RESCHEDULE)
VECTOR_AT(call_function, VECTOR_CALL)
VECTOR_AT(call_function_single, VECTOR_CALL_SINGLE)
VECTOR_AT(irq_work, VECTOR_WORK)

inline_ int tlb_flush(u64 *ctx, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 reason = ctx[0];
	struct irq_bank *bank = cpu_bank(&irq_banks, cpu);
	struct irq_cgroup *cgroup = current_cgroup(&irq_cgroups, cpu, raw);

	if (reason > FLUSH_UNKNOWN)
		reason = FLUSH_UNKNOWN;
	if (bank)
		bank_add(&bank->flushes[reason], 1);
	if (cgroup)
		cgroup_add(&cgroup->flushes[reason], 1);
	return 0;
}

AT(tlb_flush, on_tlb_flush, "cpu_tlb_flush", tlb_flush)

/*
 * Every architecture has the tracepoint, but only x86 passes it. This one, at
 * which next to nothing ever happens, is there on x86 alone: without it the
 * sampler is unsupported, instead of a zero that is not true.
 */
inline_ int only_on_x86(u64 *ctx, const bool raw)
{
	return 0;
}

AT(x86_platform_ipi_entry, on_platform_ipi, "cpu_tlb_flush", only_on_x86)

#define PWR_EVENT_EXIT ((u32)-1) /* include/trace/events/power.h */

/* A CPU goes idle, or wakes up. */
inline_ int cpu_idle(u64 *ctx, const bool raw)
{
	struct irq_bank *bank = this_cpu();
	u32 state = ctx[0];

	if (!bank)
		return 0;
	if (state != PWR_EVENT_EXIT) {
		bank->idle_start = bpf_ktime_get_ns();
		return 0;
	}
	u64 took = since(&bank->idle_start);

	if (took)
		hist_add(bank->idle, took);
	return 0;
}

AT(cpu_idle, on_cpu_idle, "cpu_idle_periods", cpu_idle)

char LICENSE[] SEC("license") = "GPL";

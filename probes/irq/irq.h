/* SPDX-License-Identifier: GPL-2.0-only */

/* The metrics of this probe, and when what runs on a CPU began. */
#pragma once

#include "cgroup.bpf.h"

SAMPLER(cpu_softirq);
SAMPLER(cpu_softirq_latency);
SAMPLER(cpu_hardirq);
SAMPLER(cpu_vectors);
SAMPLER(cpu_tlb_flush);
SAMPLER(cpu_idle_periods);

/* The softirqs by number (include/linux/interrupt.h), as the original names them. */
#define SOFTIRQS 10
#define SOFTIRQ LABEL("kind", "hi|timer|net_tx|net_rx|block|irq_poll|tasklet|sched|hrtimer|rcu")

/* The vectors of x86's local APIC that can be timed. */
enum vector { VECTOR_TIMER, VECTOR_RESCHEDULE, VECTOR_CALL, VECTOR_CALL_SINGLE, VECTOR_WORK, VECTORS };
#define VECTOR LABEL("kind", "local_timer|reschedule|call_function|call_function_single|irq_work")

/* enum tlb_flush_reason, which got its last (remote_wrong_cpu) after 6.12; what a later kernel adds is unknown. */
enum flush { FLUSH_UNKNOWN = 6, FLUSHES };
#define FLUSH LABEL("reason", "task_switch|remote_shootdown|local_shootdown|local_mm_shootdown|remote_send_ipi|" \
		    "remote_wrong_cpu|unknown")

struct irq_bank {
	/*
	 * When it began on this CPU, bpf_ktime_get_ns(); 0: unseen. Softirqs do
	 * not interrupt each other, nor do handlers, which run with interrupts
	 * off; a handler may interrupt a softirq.
	 */
	u64 softirq_start;
	u64 hardirq_start;
	u64 vector_start;
	u64 idle_start;
	u64 raised[SOFTIRQS]; /* first since it last ran; 0: is not */
	COUNTER_PER_CPU(softirqs, [SOFTIRQS], cpu_softirq, "softirq", "interrupts", "software interrupts run, by kind", SOFTIRQ);
	COUNTER_PER_CPU(softirq_time, [SOFTIRQS], cpu_softirq, "softirq_time", "nanoseconds",
			"time in software interrupts, with the hardware interrupts that came meanwhile, by kind", SOFTIRQ);
	COUNTER_PER_CPU(hardirqs, , cpu_hardirq, "hardirq", "interrupts",
			"handlers of hardware interrupts run; an interrupt on a shared line runs each of the line's");
	COUNTER_PER_CPU(hardirq_time, , cpu_hardirq, "hardirq_time", "nanoseconds", "time in handlers of hardware interrupts");
	COUNTER_PER_CPU(vectors, [VECTORS], cpu_vectors, "hardirq_vector", "interrupts",
			"interrupts of the CPU's own timer and from other CPUs, by kind", VECTOR);
	COUNTER_PER_CPU(vector_time, [VECTORS], cpu_vectors, "hardirq_vector_time", "nanoseconds",
			"time in interrupts of the CPU's own timer and from other CPUs, by kind", VECTOR);
	COUNTER_PER_CPU(flushes, [FLUSHES], cpu_tlb_flush, "cpu_tlb_flush", "", "flushes of the TLB, by reason", FLUSH);
	HISTOGRAM(softirq_latency, [SOFTIRQS], cpu_softirq_latency, "softirq_latency", "nanoseconds",
		  "time from raising a software interrupt to running it, by kind", SOFTIRQ);
	HISTOGRAM(hardirq_latency, , cpu_hardirq, "hardirq_latency", "nanoseconds",
		  "time that a handler of a hardware interrupt took");
	HISTOGRAM(idle, , cpu_idle_periods, "cpu_idle_period", "nanoseconds",
		  "time from a CPU's going idle to its waking up, for whatever reason");
} BANK;
BANKS(irq_banks, struct irq_bank);

struct irq_cgroup {
	TOUCHED;
	COUNTER(flushes, [FLUSHES], cpu_tlb_flush, "cgroup_cpu_tlb_flush", "",
		"flushes of the TLB while a task of the cgroup had the CPU, by reason", FLUSH);
};
CGROUP_BANKS(irq_cgroups, struct irq_cgroup);

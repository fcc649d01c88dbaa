/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * What memory costs tasks: reclaim and compaction, page faults, misses of the
 * page cache, writeback, and being killed for want of it. README.md has what
 * the probe costs.
 *
 * A program has a twin (__raw) for kernels without BTF of their own.
 */
#include "span.h"
#include "fault.h"
#include "cache.h"
#include "../fs/regs.h"

/* A program and its twin at a tracepoint. */
#define __maybe_unused __attribute__((unused))
#define AT(hook, name, samplers, ...) \
	SEC("tp_btf/" #hook) NEEDS(samplers) int name(u64 *ctx) { __maybe_unused const bool raw = false; __VA_ARGS__; return 0; } \
	SEC("raw_tp/" #hook) NEEDS(samplers) int name##__raw(u64 *ctx) { __maybe_unused const bool raw = true; __VA_ARGS__; return 0; }

AT(mm_vmscan_direct_reclaim_begin, on_reclaim_begin, "memory_reclaim", span_begin(SPAN_RECLAIM + RECLAIM_DIRECT))
AT(mm_vmscan_direct_reclaim_end, on_reclaim_end, "memory_reclaim", reclaim_end(RECLAIM_DIRECT, raw))
AT(mm_vmscan_memcg_reclaim_begin, on_cgroup_reclaim_begin, "memory_reclaim", span_begin(SPAN_RECLAIM + RECLAIM_CGROUP))
AT(mm_vmscan_memcg_reclaim_end, on_cgroup_reclaim_end, "memory_reclaim", reclaim_end(RECLAIM_CGROUP, raw))
AT(mm_compaction_begin, on_compaction_begin, "memory_compaction", span_begin(SPAN_COMPACTION))
AT(mm_compaction_end, on_compaction_end, "memory_compaction", compaction_end(raw))
AT(writeback_start, on_writeback_start, "memory_writeback", span_begin(SPAN_WRITEBACK))
AT(writeback_written, on_writeback_end, "memory_writeback", writeback_end())
AT(page_fault_user, on_user_fault, "memory_fault_exceptions", exception(MODE_USER, raw))
AT(page_fault_kernel, on_kernel_fault, "memory_fault_exceptions", exception(MODE_KERNEL, raw))
AT(mm_filemap_add_to_page_cache, on_page_added, "memory_page_cache", page_added((void *)ctx[0], raw))
AT(mm_filemap_get_pages, on_pages_read, "memory_page_cache_reads", pages_read((void *)ctx[0], ctx[1], ctx[2], raw))

/*
 * The slot of the victim's cgroup. Where the kernel tells only its number, the
 * cgroup is known if the victim is the one that asked for memory.
 */
inline_ u32 victim_slot(u64 victim, const bool raw)
{
	u64 ids = bpf_get_current_pid_tgid();

	if (bpf_core_type_exists(btf_trace_mark_victim___since_6_9))
		return task_cgroup_slot((void *)victim, raw);
	return (u32)victim == (u32)ids || (u32)victim == ids >> 32 ? current_slot(raw) : 0;
}

inline_ void killed(u64 victim, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct mem_bank *bank = cpu_bank(&mem_banks, cpu);
	struct mem_cgroup *cgroup = cgroup_bank(&mem_cgroups, cpu, victim_slot(victim, raw));

	if (bank)
		bank_add(&bank->oom_kills, 1);
	if (cgroup)
		cgroup_add(&cgroup->oom_kills, 1);
}

AT(mark_victim, on_kill, "memory_oom", killed(ctx[0], raw))

/* handle_mm_fault(vma, address, flags, regs); bce617edecad (5.9) added regs. */
SEC("fentry/handle_mm_fault") NEEDS("memory_fault_latency")
int on_fault_enter(u64 *ctx)
{
	return fault_enter(ctx[2], false);
}

SEC("fentry/handle_mm_fault") NEEDS("memory_fault_latency")
int on_fault_enter__hash(u64 *ctx)
{
	return fault_enter(ctx[2], true);
}

SEC("kprobe/handle_mm_fault") NEEDS("memory_fault_latency")
int on_fault_enter__kprobe(void *ctx)
{
	return fault_enter(ARG3(ctx), true);
}

SEC("fexit/handle_mm_fault") NEEDS("memory_fault_latency")
int on_fault_exit(u64 *ctx)
{
	return fault_exit(ctx[4], false);
}

SEC("fexit/handle_mm_fault") NEEDS("memory_fault_latency")
int on_fault_exit__hash(u64 *ctx)
{
	return fault_exit(ctx[4], true);
}

SEC("kretprobe/handle_mm_fault") NEEDS("memory_fault_latency")
int on_fault_exit__kprobe(void *ctx)
{
	return fault_exit(RESULT(ctx), true);
}

char LICENSE[] SEC("license") = "GPL";

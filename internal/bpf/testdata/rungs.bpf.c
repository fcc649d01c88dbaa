/* SPDX-License-Identifier: GPL-2.0-only */

/* Hooks that only some kernels have, each with the rungs it can have. */
#include "metric.bpf.h"

SAMPLER(function);
SAMPLER(only_tp);
SAMPLER(nowhere);

struct rungs_bank {
	COUNTER(functions, , function, "function_calls", "", "calls of a function of the kernel");
	COUNTER(renames, , only_tp, "tracepoint_renames", "", "task renames by a classic tracepoint");
	COUNTER(never, , nowhere, "never_counted", "", "of a hook that no kernel has");
} BANK;
BANKS(rungs_banks, struct rungs_bank);

#define COUNT(member) \
	struct rungs_bank *bank = cpu_bank(&rungs_banks, bpf_get_smp_processor_id()); \
	if (bank) \
		bank_add(&bank->member, 1); \
	return 0

SEC("fentry/__set_task_comm") NEEDS("function") int on_function(u64 *ctx) { COUNT(functions); }
SEC("kprobe/__set_task_comm") NEEDS("function") int on_function__kprobe(void *ctx) { COUNT(functions); }
SEC("tp/task/task_rename") NEEDS("only_tp") int on_tracepoint(void *ctx) { COUNT(renames); }
SEC("raw_tp/no_such_tracepoint") NEEDS("nowhere") int on_nothing(void *ctx) { COUNT(never); }

char LICENSE[] SEC("license") = "GPL";

/* SPDX-License-Identifier: GPL-2.0-only */

/* Hooks that only some kernels have, each with the rungs it can have. */
#include "metric.bpf.h"

SAMPLER(function);
SAMPLER(only_tp);
SAMPLER(nowhere);
SAMPLER(no_argument);
SAMPLER(no_helper);

struct rungs_bank {
	COUNTER(functions, , function, "function_calls", "", "calls of a function of the kernel");
	COUNTER(renames, , only_tp, "tracepoint_renames", "", "task renames by a classic tracepoint");
	COUNTER(never, , nowhere, "never_counted", "", "of a hook that no kernel has");
	COUNTER(argument, , no_argument, "arguments", "", "of an argument that no kernel gives");
	COUNTER(helper, , no_helper, "helped", "", "of a helper that no kernel has");
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
SEC("tp_btf/task_rename") NEEDS("no_argument") int on_missing_argument(u64 *ctx) { if (ctx[9]) { COUNT(argument); } return 0; }
SEC("raw_tp/task_rename") NEEDS("no_argument") int on_missing_argument__raw(u64 *ctx) { if (ctx[9]) { COUNT(argument); } return 0; }
static long (*no_helper)(void) = (void *)9999;
SEC("raw_tp/task_rename") NEEDS("no_helper") int on_missing_helper(void *ctx) { if (no_helper()) { COUNT(helper); } return 0; }

char LICENSE[] SEC("license") = "GPL";

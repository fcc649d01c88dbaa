/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * Counts and times calls of the functions in user space that the configuration
 * names. Each function has instances of these two programs of its own, told
 * apart by a constant: bpf_get_attach_cookie came only with Linux 5.15.
 * README.md says what a call costs, and which functions must not be timed.
 */
#include "usercall.h"

/*
 * The stack pointer is where the ABI of ptrace(2) has it: asm/ptrace.h, struct
 * pt_regs of x86-64 and struct user_pt_regs, with which arm64's begins.
 */
inline_ u64 stack_pointer(void *ctx)
{
	u64 sp = 0;

	bpf_probe_read_kernel(&sp, sizeof(sp), ctx + (rz_arm64 ? 31 * 8 : 19 * 8));
	return sp;
}

inline_ struct call this_call(u64 sp)
{
	struct call call = { bpf_get_current_pid_tgid() >> 32, rz_function, sp };

	return call;
}

inline_ int enter(void *ctx)
{
	struct usercall_calls *calls = function_bank(&usercall_calls, bpf_get_smp_processor_id(), function_slot(rz_function));

	if (calls)
		function_add(&calls->calls, 1);
	if (rz_timed) {
		/* x86-64 has pushed the return address. */
		struct call call = this_call(stack_pointer(ctx) + (rz_arm64 ? 0 : 8));
		u64 now = bpf_ktime_get_ns();

		bpf_map_update_elem(&usercall_begun, &call, &now, BPF_ANY);
	}
	return 0;
}

inline_ int leave(void *ctx)
{
	u64 now = bpf_ktime_get_ns();
	struct usercall_times *times = timed_bank(&usercall_times, bpf_get_smp_processor_id(), timed_slot(rz_function));
	struct call call = this_call(stack_pointer(ctx));
	u64 *begun = bpf_map_lookup_elem(&usercall_begun, &call);

	if (!times)
		return 0;
	if (begun) {
		timed_hist_add(times->latency, now - *begun);
		bpf_map_delete_elem(&usercall_begun, &call);
	} else {
		timed_add(&times->lost, 1);
	}
	return 0;
}

/*
 * 89ae89f53d20 (6.6) attaches to functions without perf events, which take
 * 0.1 s each to detach.
 */
SEC("uprobe.multi") NEEDS("usercall")
int usercall_enter(void *ctx)
{
	return enter(ctx);
}

SEC("uprobe") NEEDS("usercall")
int usercall_enter__perf(void *ctx)
{
	return enter(ctx);
}

SEC("uretprobe.multi") NEEDS("usercall")
int usercall_leave(void *ctx)
{
	return leave(ctx);
}

SEC("uretprobe") NEEDS("usercall")
int usercall_leave__perf(void *ctx)
{
	return leave(ctx);
}

char LICENSE[] SEC("license") = "GPL";

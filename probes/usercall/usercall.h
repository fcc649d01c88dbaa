/* SPDX-License-Identifier: GPL-2.0-only */

/* The metrics of this probe, and what it remembers of a call. */
#pragma once

#include "slots.bpf.h"

SAMPLER(usercall);

/* The functions, and those of them that are timed; both by their id. */
SLOTS(function);
SLOTS(timed);

struct usercall_calls {
	TOUCHED;
	COUNTER(calls, , usercall, "usercall", "", "calls of the function");
};
SLOT_BANKS(usercall_calls, struct usercall_calls, function, "library,function");

struct usercall_times {
	TOUCHED;
	COUNTER(lost, , usercall, "usercall_discarded_samples", "",
		"returns from the function that were not timed: the call was not seen, or could not be remembered");
	HISTOGRAM(latency, , usercall, "usercall_latency", "nanoseconds", "time from a call of the function to its return");
};
SLOT_BANKS(usercall_times, struct usercall_times, timed, "library,function");

const volatile u32 rz_function = 0;   /* id of the function that this instance is attached to */
const volatile bool rz_timed = false; /* its returns are seen */
const volatile bool rz_arm64 = false;

/*
 * A call that has not returned yet, by where it lies on its stack: calls of one
 * function can nest to any depth and be left by longjmp, and a coroutine can
 * move to another thread. Those that never return are forgotten in time (LRU).
 */
struct call {
	u32 process;
	u32 function;
	u64 sp; /* of the caller, as it is again after the return */
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct call);
	__type(value, u64); /* bpf_ktime_get_ns() when it began */
} usercall_begun SEC(".maps");

/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * What tasks do: get and lose a CPU, wait for one, sleep, migrate, call the
 * kernel. Three hooks with one program each, because entering a program costs
 * more than most of what it does (README.md has the figures).
 *
 * Each program has a twin (__raw) for kernels without BTF of their own, which
 * reads through helpers and keeps a task's state in a hash.
 */
#include "switch.h"
#include "calls.h"

SEC("tp_btf/sched_switch") NEEDS("scheduler_runqueue|scheduler_interference|cpu_migrations|syscall_latency")
int on_switch(u64 *ctx)
{
	return task_switch(ctx, false);
}

SEC("raw_tp/sched_switch") NEEDS("scheduler_runqueue|scheduler_interference|cpu_migrations|syscall_latency")
int on_switch__raw(u64 *ctx)
{
	return task_switch(ctx, true);
}

SEC("tp_btf/sys_enter") NEEDS("syscall_counts|syscall_latency")
int on_enter(u64 *ctx)
{
	return call_enter(ctx, false);
}

SEC("raw_tp/sys_enter") NEEDS("syscall_counts|syscall_latency")
int on_enter__raw(u64 *ctx)
{
	return call_enter(ctx, true);
}

SEC("tp_btf/sys_exit") NEEDS("syscall_latency")
int on_exit(u64 *ctx)
{
	return call_exit(false);
}

SEC("raw_tp/sys_exit") NEEDS("syscall_latency")
int on_exit__raw(u64 *ctx)
{
	return call_exit(true);
}

char LICENSE[] SEC("license") = "GPL";

/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * The kernel's types, as far as the probes read them. Each struct names only
 * the fields that are read; CO-RE finds their offsets in the running kernel.
 * A field that was renamed or moved has a flavour (struct name___since) with
 * the commit that changed it.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;

#define KERNEL __attribute__((preserve_access_index))
#define inline_ static __always_inline

/*
 * Makes the compiler forget what it knows of x, so that a comparison after it
 * stays in the program: verifiers before 6.3 forget the bounds of what is
 * spilled.
 */
#define OPAQUE(x) asm volatile("" : "+r"(x))

struct kernfs_node { u64 id; } KERNEL;
struct cgroup { struct kernfs_node *kn; } KERNEL;
struct cgroup_subsys_state { struct cgroup *cgroup; } KERNEL;
struct css_set { struct cgroup *dfl_cgrp; } KERNEL;
struct task_group { struct cgroup_subsys_state css; } KERNEL;

struct rq { u64 clock; unsigned int nr_running; } KERNEL;
struct cfs_rq { struct rq *rq; } KERNEL;
struct sched_entity { struct cfs_rq *cfs_rq; } KERNEL;

/* Times in nanoseconds of the run queue's clock (kernel/sched/stats.h). */
struct sched_info {
	unsigned long long run_delay;    /* waited for a CPU, all told */
	unsigned long long last_arrival; /* when it last got a CPU */
	unsigned long long last_queued;  /* when it was last queued for one; 0: is not */
} KERNEL;

struct thread_info {
	unsigned long flags;
	u32 status; /* x86 only */
} KERNEL;

struct task_struct {
	struct thread_info thread_info;
	int pid;
	struct sched_entity se;
	struct sched_info sched_info;
	struct css_set *cgroups;
	struct task_group *sched_task_group;
} KERNEL;

/* 2f064a59a11f (5.14) renamed task_struct.state to __state. */
struct task_struct___before_5_14 { long state; } KERNEL;
struct task_struct___since_5_14 { unsigned int __state; } KERNEL;

/*
 * fa2c3254d7cf (5.18) passes the state that prev was switched out with to the
 * sched_switch tracepoint, because task_struct.__state may change before a
 * program reads it; 9c2136be0878 (5.19, and stable 5.18) made it the last
 * argument. The tracepoint's BTF prototype tells which kernel this is.
 */
struct task_struct;
typedef void (*btf_trace_sched_switch___since_5_19)(void *, bool, struct task_struct *,
						    struct task_struct *, unsigned int);
typedef void (*btf_trace_sched_switch___in_5_18)(void *, bool, unsigned int,
						 struct task_struct *, struct task_struct *);

/* include/linux/sched.h: never runs again; the last switch of an exiting task. */
#define TASK_DEAD 0x80

struct gendisk { int major, first_minor; } KERNEL;
struct blkcg { struct cgroup_subsys_state css; } KERNEL;
struct blkcg_gq { struct blkcg *blkcg; } KERNEL;
struct bio { struct blkcg_gq *bi_blkg; } KERNEL;
struct request_queue { struct gendisk *disk; } KERNEL; /* d152c682f03c (5.15) */
struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	struct bio *bio;
	u64 start_time_ns; /* CLOCK_MONOTONIC, when it was allocated; 0: iostats is off */
} KERNEL;
/* f3fa33acca9f (5.17) removed request.rq_disk for request.q->disk. */
struct request___before_5_17 { struct gendisk *rq_disk; } KERNEL;

/* a54895fa057c (5.11) took the queue, which came first, off the tracepoints of requests. */
typedef void (*btf_trace_block_rq_issue___since_5_11)(void *, struct request *);

/* The kernfs id of the root of the unified hierarchy (fs/kernfs/dir.c, kernfs_create_root). */
#define ROOT_CGROUP 1

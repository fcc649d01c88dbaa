/* SPDX-License-Identifier: GPL-2.0-only */

/* The metrics of this probe, and what it remembers of a task. */
#pragma once

#include "cgroup.bpf.h"
#include "types.h"

SAMPLER(fs_latency);
SAMPLER(fs_ext4);

/* The operations, in the order of the label's values; EXT4_SYNC is no label. */
enum op { OP_READ, OP_WRITE, OP_OPEN, OP_FSYNC, OP_STAT, OP_READDIR, OPS, EXT4_SYNC };
#define OP LABEL("op", "read|write|open|fsync|stat|readdir")

/* The file systems that are told apart, in the order of the label's values. */
enum fs { FS_EXT4, FS_XFS, FS_BTRFS, FS_TMPFS, FS_OVERLAY, FS_NFS, FS_FUSE, FS_OTHER, FILE_SYSTEMS };
#define FS LABEL("fs", "ext4|xfs|btrfs|tmpfs|overlay|nfs|fuse|other")

struct fs_bank {
	COUNTER(lost, , fs_latency, "fs_discarded_samples", "",
		"operations that were not timed: they began unseen, or the task could not be remembered", LOST);
	COUNTER(ext4_lost, , fs_ext4, "fs_ext4_discarded_samples", "",
		"syncs of ext4 that were not timed: they began unseen, or the task could not be remembered", LOST);
	HISTOGRAM(latency, [FILE_SYSTEMS][OPS], fs_latency, "fs_latency", "nanoseconds",
		  "time of an operation on a file or directory, by file system", FS OP);
	HISTOGRAM(ext4_sync, , fs_ext4, "fs_ext4_sync_latency", "nanoseconds",
		  "time in which ext4 (or ext2 or ext3 as ext4) wrote a file for fsync, fdatasync or O_SYNC");
} BANK;
BANKS(fs_banks, struct fs_bank);

struct fs_cgroup {
	TOUCHED;
	COUNTER(operations, [OPS], fs_latency, "cgroup_fs_operations", "",
		"operations on files and directories by tasks of the cgroup", OP);
	COUNTER(time, [OPS], fs_latency, "cgroup_fs_time", "nanoseconds",
		"time of operations on files and directories by tasks of the cgroup", OP);
};
CGROUP_BANKS(fs_cgroups, struct fs_cgroup);

/*
 * The operations that a task is in: one, but a file system that lies on
 * another (overlay) calls the other's.
 */
#define DEPTH 4
struct operation {
	u64 key;   /* the pointer that the function was called with + op: the verifier lets nobody OR one */
	u64 begun; /* bpf_ktime_get_ns() */
};
struct fs_task {
	u64 depth;
	struct operation operations[DEPTH];
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fs_task);
} fs_tasks SEC(".maps");

/* The same for kernels without task storage, which came with 5.11 and needs BTF. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct fs_task);
} fs_tasks_by_pid SEC(".maps");

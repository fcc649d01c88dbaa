/* SPDX-License-Identifier: GPL-2.0-only */

/* An operation: when it begins, on what, and when it ends. */
#pragma once

#include "fs.h"

/*
 * The file system of an inode; FILE_SYSTEMS for what is none: sockets, pipes
 * and devices, and file systems of the kernel's own (proc, sysfs), which have
 * neither a device nor a name here.
 */
inline_ u32 fs_of(struct inode *inode, const bool raw)
{
	u32 kind = READ(raw, inode, i_mode) & S_IFMT;

	if (kind != S_IFREG && kind != S_IFDIR)
		return FILE_SYSTEMS;
	switch (READ2(raw, inode, i_sb, s_magic)) {
	case EXT4_SUPER_MAGIC: return FS_EXT4; /* ext2 and ext3 too */
	case XFS_SUPER_MAGIC: return FS_XFS;
	case BTRFS_SUPER_MAGIC: return FS_BTRFS;
	case TMPFS_MAGIC: return FS_TMPFS;
	case OVERLAYFS_SUPER_MAGIC: return FS_OVERLAY;
	case NFS_SUPER_MAGIC: return FS_NFS;
	case FUSE_SUPER_MAGIC: return FS_FUSE;
	}
	return READ3(raw, inode, i_sb, s_type, fs_flags) & FS_REQUIRES_DEV ? FS_OTHER : FILE_SYSTEMS;
}

inline_ struct fs_task *fs_task(const bool create, const bool raw)
{
	if (!raw)
		return bpf_task_storage_get(&fs_tasks, bpf_get_current_task_btf(), 0, create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	u32 pid = bpf_get_current_pid_tgid();
	struct fs_task *task = bpf_map_lookup_elem(&fs_tasks_by_pid, &pid);

	if (!task && create) {
		struct fs_task none = {};

		bpf_map_update_elem(&fs_tasks_by_pid, &pid, &none, BPF_NOEXIST);
		task = bpf_map_lookup_elem(&fs_tasks_by_pid, &pid);
	}
	return task;
}

/* on is what the function was called with: a pointer, its lowest bits zero. */
inline_ int begin(enum op op, u64 on, const bool raw)
{
	struct fs_task *task = fs_task(true, raw);

	if (!task)
		return 0; /* its end counts it as lost */
	/* So full it can only be of operations whose end was missed. */
	u64 at = task->depth < DEPTH ? task->depth : 0;

	task->operations[at].key = on + op;
	task->operations[at].begun = bpf_ktime_get_ns();
	task->depth = at + 1;
	return 0;
}

/*
 * When the operation under way began, 0: unseen. Those above it ended unseen.
 * *on may be 0, where the end does not tell: then it is the last of its kind.
 */
inline_ u64 end(enum op op, u64 *on, const bool raw)
{
	struct fs_task *task = fs_task(false, raw);

	if (!task)
		return 0;
	for (int at = DEPTH - 1; at >= 0; at--) {
		u64 key = task->operations[at].key;

		if ((u64)at >= task->depth || (*on ? key != *on + op : (key & 7) != op))
			continue;
		*on = key & ~7ull;
		task->depth = at;
		return task->operations[at].begun;
	}
	return 0;
}

inline_ int count(enum op op, u32 fs, u64 begun, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct fs_bank *bank = cpu_bank(&fs_banks, cpu);
	struct fs_cgroup *cgroup = current_cgroup(&fs_cgroups, cpu, raw);
	u64 took = begun ? bpf_ktime_get_ns() - begun : 0;

	if (!bank || fs >= FILE_SYSTEMS)
		return 0;
	if (begun)
		hist_add(bank->latency[fs][op], took);
	else
		bank_add(&bank->lost, 1);
	if (cgroup) {
		cgroup_add(&cgroup->operations[op], 1);
		cgroup_add(&cgroup->time[op], took);
	}
	return 0;
}

/* A function whose first argument is an open file. */
inline_ int file_begin(enum op op, struct file *file, const bool raw)
{
	struct inode *inode = READ(raw, file, f_inode);

	return fs_of(inode, raw) < FILE_SYSTEMS ? begin(op, (u64)file, raw) : 0;
}

inline_ int file_end(enum op op, struct file *file, const bool raw)
{
	u64 on = (u64)file;
	u32 fs = fs_of(READ(raw, file, f_inode), raw);

	return fs < FILE_SYSTEMS ? count(op, fs, end(op, &on, raw), raw) : 0;
}

/* The same where the end does not tell which file it was. */
inline_ int file_end_raw(enum op op)
{
	u64 on = 0, begun = end(op, &on, true);
	struct file *file = (void *)on;

	return begun ? count(op, fs_of(BPF_CORE_READ(file, f_inode), true), begun, true) : 0;
}

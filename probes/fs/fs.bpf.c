/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * How long operations on files take, by file system. All file systems are
 * called through the same few functions (fs/read_write.c, namei.c, sync.c,
 * stat.c, readdir.c), so one probe serves them all. README.md says what does
 * not pass through them, and what the probe costs.
 *
 * A function's program has twins: one (__hash) for kernels without task
 * storage, before 5.11, and one (__kprobe) for those where functions cannot be
 * attached to by BTF.
 */
#include "operation.h"
#include "regs.h"

/* Both ends of a function whose first argument is an open file. */
#define FILE_FUNCTION(function, op) \
	SEC("fentry/" #function) NEEDS("fs_latency") int function##_enter(u64 *ctx) \
	{ return file_begin(op, (void *)ctx[0], false); } \
	SEC("fentry/" #function) NEEDS("fs_latency") int function##_enter__hash(u64 *ctx) \
	{ return file_begin(op, (void *)ctx[0], true); } \
	SEC("kprobe/" #function) NEEDS("fs_latency") int function##_enter__kprobe(void *ctx) \
	{ return file_begin(op, (void *)ARG1(ctx), true); } \
	SEC("fexit/" #function) NEEDS("fs_latency") int function##_exit(u64 *ctx) \
	{ return file_end(op, (void *)ctx[0], false); } \
	SEC("fexit/" #function) NEEDS("fs_latency") int function##_exit__hash(u64 *ctx) \
	{ return file_end(op, (void *)ctx[0], true); } \
	SEC("kretprobe/" #function) NEEDS("fs_latency") int function##_exit__kprobe(void *ctx) \
	{ return file_end_raw(op); }

FILE_FUNCTION(vfs_read, OP_READ)
FILE_FUNCTION(vfs_write, OP_WRITE)
FILE_FUNCTION(vfs_fsync_range, OP_FSYNC)
FILE_FUNCTION(iterate_dir, OP_READDIR)

/* struct file *do_filp_open(dfd, pathname, op) */
SEC("fentry/do_filp_open") NEEDS("fs_latency")
int open_enter(u64 *ctx)
{
	return begin(OP_OPEN, ctx[1], false);
}

SEC("fentry/do_filp_open") NEEDS("fs_latency")
int open_enter__hash(u64 *ctx)
{
	return begin(OP_OPEN, ctx[1], true);
}

SEC("kprobe/do_filp_open") NEEDS("fs_latency")
int open_enter__kprobe(void *ctx)
{
	return begin(OP_OPEN, ARG2(ctx), true);
}

/* on is 0 where the end does not tell. */
inline_ int open_end(u64 on, struct file *file, const bool raw)
{
	u64 begun = end(OP_OPEN, &on, raw);

	/* A file that is not there is in no file system. */
	return IS_ERR(file) ? 0 : count(OP_OPEN, fs_of(READ(raw, file, f_inode), raw), begun, raw);
}

SEC("fexit/do_filp_open") NEEDS("fs_latency")
int open_exit(u64 *ctx)
{
	return open_end(ctx[1], (void *)ctx[3], false);
}

SEC("fexit/do_filp_open") NEEDS("fs_latency")
int open_exit__hash(u64 *ctx)
{
	return open_end(ctx[1], (void *)ctx[3], true);
}

SEC("kretprobe/do_filp_open") NEEDS("fs_latency")
int open_exit__kprobe(void *ctx)
{
	return open_end(0, (void *)RESULT(ctx), true);
}

/* int vfs_getattr_nosec(path, ...); compilers put vfs_getattr, which calls it, into its callers. */
SEC("fentry/vfs_getattr_nosec") NEEDS("fs_latency")
int stat_enter(u64 *ctx)
{
	return begin(OP_STAT, ctx[0], false);
}

SEC("fentry/vfs_getattr_nosec") NEEDS("fs_latency")
int stat_enter__hash(u64 *ctx)
{
	return begin(OP_STAT, ctx[0], true);
}

SEC("kprobe/vfs_getattr_nosec") NEEDS("fs_latency")
int stat_enter__kprobe(void *ctx)
{
	return begin(OP_STAT, ARG1(ctx), true);
}

inline_ int stat_end(struct path *path, const bool raw)
{
	u64 on = (u64)path, begun = end(OP_STAT, &on, raw);

	return count(OP_STAT, fs_of(READ2(raw, path, dentry, d_inode), raw), begun, raw);
}

SEC("fexit/vfs_getattr_nosec") NEEDS("fs_latency")
int stat_exit(u64 *ctx)
{
	return stat_end((void *)ctx[0], false);
}

SEC("fexit/vfs_getattr_nosec") NEEDS("fs_latency")
int stat_exit__hash(u64 *ctx)
{
	return stat_end((void *)ctx[0], true);
}

SEC("kretprobe/vfs_getattr_nosec") NEEDS("fs_latency")
int stat_exit__kprobe(void *ctx)
{
	u64 on = 0, begun = end(OP_STAT, &on, true);
	struct path *path = (void *)on;

	return begun ? count(OP_STAT, fs_of(BPF_CORE_READ(path, dentry, d_inode), true), begun, true) : 0;
}

/* ext4 has tracepoints at both ends of a sync, for kernels without the above. */
inline_ int ext4_end(u64 inode, const bool raw)
{
	struct fs_bank *bank = cpu_bank(&fs_banks, bpf_get_smp_processor_id());
	u64 begun = end(EXT4_SYNC, &inode, raw);

	if (!bank)
		return 0;
	if (begun)
		hist_add(bank->ext4_sync, bpf_ktime_get_ns() - begun);
	else
		bank_add(&bank->ext4_lost, 1);
	return 0;
}

SEC("tp_btf/ext4_sync_file_enter") NEEDS("fs_ext4")
int on_ext4_enter(u64 *ctx)
{
	struct file *file = (void *)ctx[0];

	return begin(EXT4_SYNC, (u64)file->f_inode, false);
}

SEC("raw_tp/ext4_sync_file_enter") NEEDS("fs_ext4")
int on_ext4_enter__raw(u64 *ctx)
{
	struct file *file = (void *)ctx[0];

	return begin(EXT4_SYNC, (u64)BPF_CORE_READ(file, f_inode), true);
}

SEC("tp_btf/ext4_sync_file_exit") NEEDS("fs_ext4")
int on_ext4_exit(u64 *ctx)
{
	return ext4_end(ctx[0], false);
}

SEC("raw_tp/ext4_sync_file_exit") NEEDS("fs_ext4")
int on_ext4_exit__raw(u64 *ctx)
{
	return ext4_end(ctx[0], true);
}

char LICENSE[] SEC("license") = "GPL";

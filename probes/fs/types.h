/* SPDX-License-Identifier: GPL-2.0-only */

/* The kernel's types that only this probe reads, and the numbers of file systems. */
#pragma once

#include "kernel.bpf.h"

struct file_system_type { int fs_flags; } KERNEL;
struct super_block { unsigned long s_magic; struct file_system_type *s_type; } KERNEL;
struct inode { unsigned short i_mode; struct super_block *i_sb; } KERNEL;
struct dentry { struct inode *d_inode; } KERNEL;
struct path { struct dentry *dentry; } KERNEL;
struct file { struct inode *f_inode; } KERNEL;

/* include/uapi/linux/stat.h */
#define S_IFMT 00170000
#define S_IFDIR 0040000
#define S_IFREG 0100000

#define FS_REQUIRES_DEV 1 /* include/linux/fs.h: it lies on a block device */
#define IS_ERR(p) ((u64)(p) >= (u64)-4095)

/* include/uapi/linux/magic.h; XFS has its own in fs/xfs/libxfs/xfs_format.h. */
#define EXT4_SUPER_MAGIC 0xEF53
#define XFS_SUPER_MAGIC 0x58465342
#define BTRFS_SUPER_MAGIC 0x9123683E
#define TMPFS_MAGIC 0x01021994
#define OVERLAYFS_SUPER_MAGIC 0x794c7630
#define NFS_SUPER_MAGIC 0x6969
#define FUSE_SUPER_MAGIC 0x65735546

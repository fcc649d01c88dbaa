/* SPDX-License-Identifier: GPL-2.0-only */

/* The kernel's types that only this probe reads. */
#pragma once

#include "kernel.bpf.h"

/*
 * How many pages a folio has, as a power of two. ebc1baf5c9b4 (6.6) moved it
 * into the flags of the second page; before 6.1 struct folio did not have it.
 */
struct folio___since_6_6 { unsigned long _flags_1; } KERNEL;
struct folio___since_6_1 { unsigned char _folio_order; } KERNEL;
enum pageflags { PG_head = 16 };

struct inode___size { s64 i_size; } KERNEL;
struct address_space { struct inode___size *host; } KERNEL;

/* 72ba14deb40a (6.9, and stable 6.1) passes the victim itself, not its number. */
typedef void (*btf_trace_mark_victim___since_6_9)(void *, struct task_struct *, unsigned int);

/* include/linux/mm_types.h: enum vm_fault_reason, FAULT_FLAG_TRIED. */
#define VM_FAULT_OOM 0x1
#define VM_FAULT_SIGBUS 0x2
#define VM_FAULT_MAJOR 0x4
#define VM_FAULT_HWPOISON 0x10
#define VM_FAULT_HWPOISON_LARGE 0x20
#define VM_FAULT_SIGSEGV 0x40
#define VM_FAULT_RETRY 0x400
#define VM_FAULT_FALLBACK 0x800
#define VM_FAULT_ERROR (VM_FAULT_OOM | VM_FAULT_SIGBUS | VM_FAULT_SIGSEGV | VM_FAULT_HWPOISON | \
			VM_FAULT_HWPOISON_LARGE | VM_FAULT_FALLBACK)
#define FAULT_FLAG_TRIED 0x20

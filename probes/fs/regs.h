/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * The first arguments and the result of a function, for kprobes and
 * kretprobes. CO-RE finds the registers in the running kernel's own struct
 * pt_regs, so that one object serves both architectures: of the two ways, the
 * one that this kernel does not have is removed when the object is loaded.
 */
#pragma once

#include "kernel.bpf.h"

/* The calling conventions: System V psABI for x86-64, AAPCS64. */
struct pt_regs___x86 { unsigned long di, si, dx, ax; } KERNEL;
struct pt_regs___arm64 { u64 regs[31]; } KERNEL;

#define ON_X86 bpf_core_field_exists(struct pt_regs___x86, di)
#define REGISTER(ctx, x86, arm64) \
	(ON_X86 ? BPF_CORE_READ((struct pt_regs___x86 *)(ctx), x86) : BPF_CORE_READ((struct pt_regs___arm64 *)(ctx), arm64))
#define ARG1(ctx) REGISTER(ctx, di, regs[0])
#define ARG2(ctx) REGISTER(ctx, si, regs[1])
#define ARG3(ctx) REGISTER(ctx, dx, regs[2])
#define RESULT(ctx) REGISTER(ctx, ax, regs[0])

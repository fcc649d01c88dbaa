/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * The page cache: what is added to it, and what reads look up in it. tmpfs and
 * the swap cache have their own ways and are not in it.
 */
#pragma once

#include "mem.h"

/* log2 of the page size. */
const volatile u32 rz_page_shift = 12;

inline_ u64 flags_of(void *folio, const bool raw)
{
	u64 flags = 0;

	/* They come first in a page, whatever type they have. */
	if (!raw)
		return *(u64 *)folio;
	bpf_probe_read_kernel(&flags, sizeof(flags), folio);
	return flags;
}

/* The pages of a folio; before 6.1 a large one counts as one page. */
inline_ u64 pages_of(void *folio, const bool raw)
{
	u32 order = 0;

	if (!(flags_of(folio, raw) >> bpf_core_enum_value(enum pageflags, PG_head) & 1))
		return 1;
	if (bpf_core_field_exists(struct folio___since_6_1, _folio_order)) {
		struct folio___since_6_1 *f = folio;

		order = READ(raw, f, _folio_order);
	} else if (bpf_core_field_exists(struct folio___since_6_6, _flags_1)) {
		struct folio___since_6_6 *f = folio;

		order = READ(raw, f, _flags_1) & 0xff;
	}
	return 1ull << (order & 31);
}

inline_ int page_added(void *folio, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct mem_bank *bank = cpu_bank(&mem_banks, cpu);
	struct mem_cgroup *cgroup = current_cgroup(&mem_cgroups, cpu, raw);
	u64 pages = pages_of(folio, raw);

	if (bank)
		bank_add(&bank->misses, pages);
	if (cgroup)
		cgroup_add(&cgroup->misses, pages);
	return 0;
}

/*
 * A read looked up the pages from at to last of a file. It comes again for
 * each batch of pages that it found, with the same last; and last may lie
 * behind the end of the file.
 */
inline_ int pages_read(struct address_space *mapping, u64 at, u64 last, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct mem_bank *bank = cpu_bank(&mem_banks, cpu);
	u64 task = bpf_get_current_pid_tgid(), size = READ2(raw, mapping, host, i_size);

	if (!bank || !size)
		return 0;
	u64 end = (size - 1) >> rz_page_shift;
	bool more = bank->read_task == task && bank->read_mapping == (u64)mapping && bank->read_last == last && at > bank->read_at;

	bank->read_task = task;
	bank->read_mapping = (u64)mapping;
	bank->read_last = last;
	bank->read_at = at;
	if (last > end)
		last = end;
	if (more || at > last)
		return 0;
	struct mem_cgroup *cgroup = current_cgroup(&mem_cgroups, cpu, raw);

	bank_add(&bank->reads, last - at + 1);
	if (cgroup)
		cgroup_add(&cgroup->reads, last - at + 1);
	return 0;
}

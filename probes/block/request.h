/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * The life of a request: block_rq_insert when it is queued (not all are),
 * block_rq_issue when it is handed to the driver,
 * block_rq_requeue when the driver gives it back, block_rq_complete. A request
 * remembers when it was made (start_time_ns).
 */
#pragma once

#include "block.h"

inline_ u64 op_of(struct request *rq, const bool raw)
{
	u64 op = READ(raw, rq, cmd_flags) & 0xff; /* REQ_OP_MASK, include/linux/blk_types.h */

	return op < OP_OTHER ? op : OP_OTHER; /* READ, WRITE, FLUSH, DISCARD are 0 to 3 */
}

/* The words of the request's disk. */
inline_ struct block_disk *disk_of(struct request *rq, u32 cpu, const bool raw)
{
	struct gendisk *disk;

	if (bpf_core_field_exists(struct request___before_5_17, rq_disk)) {
		struct request___before_5_17 *before = (void *)rq;

		disk = READ(raw, before, rq_disk);
	} else {
		disk = READ2(raw, rq, q, disk);
	}
	u64 dev = disk ? (u64)READ(raw, disk, major) << 20 | READ(raw, disk, first_minor) : 0;

	return block_bank(&block_disks, cpu, dev ? block_slot(dev) : 0);
}

/*
 * The slot of the cgroup that asked. A bio belongs to the cgroup that its page
 * or its submitter was charged to, if the io controller is on there; otherwise
 * it says the nearest parent, which may be the root. Then the task that hands
 * the request to the driver is the better guess. In v1 the ids of the blkio
 * hierarchy mean nothing in that of the cpu controller.
 */
inline_ u32 cgroup_of(struct request *rq, const bool raw)
{
	struct bio *bio = READ(raw, rq, bio);
	struct blkcg_gq *group = bio && !rz_cgroup_v1 ? READ(raw, bio, bi_blkg) : NULL;

	if (group) {
		u64 id = READ4(raw, group, blkcg, css.cgroup, kn, id);

		if (id != ROOT_CGROUP)
			return cgroup_slot(id);
	}
	return current_slot(raw);
}

/*
 * The request's address as a number: the verifier lets no pointer be computed
 * with, and what comes out of a map is none.
 */
inline_ u64 address_of(struct request *rq, struct block_bank *bank)
{
	*(volatile u64 *)&bank->request = (u64)rq;
	return *(volatile u64 *)&bank->request;
}

/* The i-th cell that may hold the request. */
inline_ struct flight *flight_at(u64 request, u32 i)
{
	u32 at = ((request >> 6) * 0x9E3779B97F4A7C15ull >> 40) + i;

	at &= FLIGHTS - 1;
	return bpf_map_lookup_elem(&block_flights, &at);
}

inline_ struct flight *flight_find(u64 request)
{
	for (u32 i = 0; i < FLIGHT_PROBES; i++) {
		struct flight *f = flight_at(request, i);

		if (!f || f->request == request)
			return f;
	}
	return NULL;
}

/*
 * Remembers a request for which the current task's cgroup asks. Where there is
 * no room its completion counts it as discarded.
 */
inline_ struct flight *flight_begin(u64 request, u32 cgroup)
{
	for (u32 i = 0; i < FLIGHT_PROBES; i++) {
		struct flight *f = flight_at(request, i);

		if (!f)
			return NULL;
		if (f->request)
			continue;
		f->issued = 0;
		f->cgroup = cgroup;
		f->request = request;
		return f;
	}
	return NULL;
}

/*
 * The class of what a request ended with: a blk_status_t (positive) since
 * 8a7d267b4a2c (5.16), an errno (negative) before; block/blk-core.c,
 * blk_errors, has both.
 */
inline_ u64 error_of(s32 status)
{
	switch (status) {
	case 10: case 7: case -5: case -61: return ERR_IO; /* IOERR, MEDIUM */
	case 2: case -110: return ERR_TIMEOUT;
	case 3: case -28: return ERR_NOSPC;
	case 5: case 6: case -121: case -52: return ERR_TARGET; /* TARGET, RESV_CONFLICT */
	case 8: case -84: return ERR_PROTECTION;
	case 1: case -95: return ERR_UNSUPPORTED;
	}
	return ERR_OTHER;
}

/*
 * A request is put into a queue by who made it; a worker of the kernel's may
 * then hand it to the driver.
 */
inline_ int request_insert(struct request *rq, const bool raw)
{
	struct block_bank *bank = cpu_bank(&block_banks, bpf_get_smp_processor_id());

	if (!bank)
		return 0;
	u64 request = address_of(rq, bank);

	if (!flight_find(request))
		flight_begin(request, cgroup_of(rq, raw));
	return 0;
}

inline_ int request_issue(struct request *rq, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct block_bank *bank = cpu_bank(&block_banks, cpu);

	if (!bank)
		return 0;
	if (sampler_blockio_requests) {
		struct block_disk *disk = disk_of(rq, cpu, raw);
		u64 op = op_of(rq, raw);

		OPAQUE(op);
		if (disk && op < OPS)
			block_add(&disk->issued[op], 1);
	}
	u64 request = address_of(rq, bank);
	struct flight *flight = flight_find(request);

	if (!flight)
		flight = flight_begin(request, sampler_blockio_requests ? cgroup_of(rq, raw) : 0);
	if (flight)
		flight->issued = bpf_ktime_get_ns();
	return 0;
}

inline_ int request_requeue(struct request *rq, const bool raw)
{
	struct block_disk *disk = disk_of(rq, bpf_get_smp_processor_id(), raw);

	if (disk)
		block_add(&disk->requeues[op_of(rq, raw)], 1);
	return 0;
}

/* Counts what a request moved; the driver may complete it in parts. */
inline_ void count(struct block_disk *disk, struct block_cgroup *cgroup, u64 op, u32 bytes, s32 status, bool last)
{
	OPAQUE(op);
	if (op >= OPS)
		return;
	block_add(&disk->bytes[op], bytes);
	if (cgroup)
		cgroup_add(&cgroup->bytes[op], bytes);
	if (!last)
		return;
	block_add(&disk->operations[op], 1);
	if (cgroup)
		cgroup_add(&cgroup->operations[op], 1);
	if (bytes)
		block_hist_add(disk->size[op], bytes);
	if (status)
		block_add(&disk->errors[op][error_of(status)], 1);
}

inline_ void time(struct block_disk *disk, u64 op, u64 issued, u64 made)
{
	u64 now = bpf_ktime_get_ns();

	OPAQUE(op);
	if (op >= OPS)
		return;
	block_hist_add(disk->latency[op], now - issued);
	if (!made)
		return;
	/* The kernel may stamp a batch of requests by one reading of the clock. */
	block_hist_add(disk->queue_latency[op], issued > made ? issued - made : 0);
	block_hist_add(disk->total_latency[op], now - made);
}

inline_ int request_complete(struct request *rq, s32 status, u32 bytes, const bool raw)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 op = op_of(rq, raw);
	bool last = bytes >= READ(raw, rq, __data_len);
	struct block_bank *bank = cpu_bank(&block_banks, cpu);
	struct block_disk *disk = disk_of(rq, cpu, raw);

	if (!bank)
		return 0;
	struct flight *flight = flight_find(address_of(rq, bank));

	/*
	 * An empty write that carries a flush (block/blk-flush.c) is never
	 * handed to the driver; the flush is, and counts.
	 */
	if (!disk || (!bytes && op == OP_WRITE && !(flight && flight->issued)))
		return 0;
	if (sampler_blockio_requests) {
		u32 slot = flight ? flight->cgroup : 0;

		count(disk, cgroup_bank(&block_cgroups, cpu, slot < rz_cgroup_slots ? slot : 0), op, bytes, status, last);
	}
	if (!last)
		return 0;
	if (sampler_blockio_latency) {
		if (flight && flight->issued)
			time(disk, op, flight->issued, READ(raw, rq, start_time_ns));
		else
			bank_add(&bank->discarded, 1);
	}
	if (flight)
		flight->request = 0;
	return 0;
}

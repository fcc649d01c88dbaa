/* SPDX-License-Identifier: GPL-2.0-only */

/* The metrics of this probe, and what it remembers of a request. */
#pragma once

#include "cgroup.bpf.h"

SAMPLER(blockio_latency);
SAMPLER(blockio_requests);

/* The domain of disks, by dev_t. */
SLOTS(block);

/* The operations (enum req_op), in the order of the label's values. */
enum op { OP_READ, OP_WRITE, OP_FLUSH, OP_DISCARD, OP_OTHER, OPS };
#define OP LABEL("op", "read|write|flush|discard|other")

/* The classes of errors, in the order of the label's values. */
enum error { ERR_IO, ERR_TIMEOUT, ERR_NOSPC, ERR_TARGET, ERR_PROTECTION, ERR_UNSUPPORTED, ERR_OTHER, ERRORS };

struct block_disk {
	TOUCHED;
	HISTOGRAM(latency, [OPS], blockio_latency, "blockio_latency", "nanoseconds",
		  "time from handing a request to the driver to its completion", OP);
	HISTOGRAM(queue_latency, [OPS], blockio_latency, "blockio_queue_latency", "nanoseconds",
		  "time from making a request to handing it to the driver", OP);
	HISTOGRAM(total_latency, [OPS], blockio_latency, "blockio_request_latency", "nanoseconds",
		  "time from making a request to its completion", OP);
	HISTOGRAM(size, [OPS], blockio_requests, "blockio_size", "bytes",
		  "bytes of a request at its completion; requests without data are not in it", OP);
	COUNTER(operations, [OPS], blockio_requests, "blockio_operations", "", "requests completed", OP);
	COUNTER(bytes, [OPS], blockio_requests, "blockio_bytes", "bytes", "bytes of completed requests", OP);
	COUNTER(issued, [OPS], blockio_requests, "blockio_issued", "",
		"requests handed to the driver, again after each requeue", OP);
	COUNTER(requeues, [OPS], blockio_requests, "blockio_requeues", "", "requests that the driver gave back to be tried again", OP);
	COUNTER(errors, [OPS][ERRORS], blockio_requests, "blockio_errors", "", "requests that failed", OP
		LABEL("error", "io|timeout|nospc|target|protection|unsupported|other"));
};
SLOT_BANKS(block_disks, struct block_disk, block, "device");

struct block_cgroup {
	TOUCHED;
	COUNTER(operations, [OPS], blockio_requests, "cgroup_blockio_operations", "",
		"requests of the cgroup that completed", OP);
	COUNTER(bytes, [OPS], blockio_requests, "cgroup_blockio_bytes", "bytes",
		"bytes of the cgroup's requests that completed", OP);
};
CGROUP_BANKS(block_cgroups, struct block_cgroup);

struct block_bank {
	COUNTER(discarded, , blockio_latency, "blockio_discarded_samples", "",
		"completed requests that were not timed: their issue was not seen, or was forgotten for want of room", LOST);
	u64 request; /* scratch */
} BANK;
BANKS(block_banks, struct block_bank);

/*
 * A request under way. The kernel notes when it handed a request to the driver
 * only while somebody asked for statistics of the queue (QUEUE_FLAG_STATS,
 * block/blk-stat.c), so it is noted here: in a table by the request's address,
 * with open addressing, because a hash would cost some 300 ns a request.
 */
struct flight {
	u64 request; /* 0: free */
	u64 issued;  /* bpf_ktime_get_ns() */
	u64 cgroup;  /* slot */
	u64 _unused;
};
#define FLIGHTS 8192
#define FLIGHT_PROBES 8
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLIGHTS);
	__type(key, u32);
	__type(value, struct flight);
} block_flights SEC(".maps");

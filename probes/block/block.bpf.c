/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * What the disks do: requests by disk and operation, how long each waited and
 * how long the device took. README.md has what it costs.
 *
 * Requests are those of blk-mq: a device-mapper device made of others has none
 * of its own (/proc/diskstats counts its bios).
 */
#include "request.h"

/* The request among the tracepoint's arguments. */
#define RQ(ctx) ((struct request *)(bpf_core_type_exists(btf_trace_block_rq_issue___since_5_11) ? (ctx)[0] : (ctx)[1]))

SEC("tp_btf/block_rq_insert") NEEDS("blockio_requests")
int on_insert(u64 *ctx)
{
	return request_insert(RQ(ctx), false);
}

SEC("raw_tp/block_rq_insert") NEEDS("blockio_requests")
int on_insert__raw(u64 *ctx)
{
	return request_insert(RQ(ctx), true);
}

SEC("tp_btf/block_rq_issue") NEEDS("blockio_latency|blockio_requests")
int on_issue(u64 *ctx)
{
	return request_issue(RQ(ctx), false);
}

SEC("raw_tp/block_rq_issue") NEEDS("blockio_latency|blockio_requests")
int on_issue__raw(u64 *ctx)
{
	return request_issue(RQ(ctx), true);
}

SEC("tp_btf/block_rq_requeue") NEEDS("blockio_requests")
int on_requeue(u64 *ctx)
{
	return request_requeue(RQ(ctx), false);
}

SEC("raw_tp/block_rq_requeue") NEEDS("blockio_requests")
int on_requeue__raw(u64 *ctx)
{
	return request_requeue(RQ(ctx), true);
}

SEC("tp_btf/block_rq_complete") NEEDS("blockio_latency|blockio_requests")
int on_complete(u64 *ctx)
{
	return request_complete((void *)ctx[0], ctx[1], ctx[2], false);
}

SEC("raw_tp/block_rq_complete") NEEDS("blockio_latency|blockio_requests")
int on_complete__raw(u64 *ctx)
{
	return request_complete((void *)ctx[0], ctx[1], ctx[2], true);
}

char LICENSE[] SEC("license") = "GPL";

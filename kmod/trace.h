/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints of the module's own, for perf, trace-cmd and bpftrace; no cost while they are off. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM fabstat

#if !defined(FABSTAT_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define FABSTAT_TRACE_H

#include <linux/tracepoint.h>
#include <linux/types.h>

#ifndef FABSTAT_TRACE_TYPES
#define FABSTAT_TRACE_TYPES

/* The longest name of an operation, of an event. */
#define FABSTAT_OP_LEN		8
#define FABSTAT_EVENT_LEN	24

/* What both events tell of a request. */
struct fabstat_traced {
	dev_t dev;
	u64 sector;
	u32 bytes;
	u32 queue;
	u32 sent_back;
	const char *op;
	const char *reason;	/* of the error or the refusal; "-": none */
	u64 device_ns;		/* since the last issue; 0: it was refused before that */
	u64 total_ns;		/* since the first issue or refusal */
};
#endif

DECLARE_EVENT_CLASS(fabstat_request,
	TP_PROTO(const struct fabstat_traced *request),
	TP_ARGS(request),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, sector)
		__field(u32, bytes)
		__field(u32, queue)
		__field(u32, sent_back)
		__array(char, op, FABSTAT_OP_LEN)
		__array(char, reason, FABSTAT_EVENT_LEN)
		__field(u64, device_ns)
		__field(u64, total_ns)
	),
	TP_fast_assign(
		__entry->dev = request->dev;
		__entry->sector = request->sector;
		__entry->bytes = request->bytes;
		__entry->queue = request->queue;
		__entry->sent_back = request->sent_back;
		strscpy(__entry->op, request->op, FABSTAT_OP_LEN);
		strscpy(__entry->reason, request->reason, FABSTAT_EVENT_LEN);
		__entry->device_ns = request->device_ns;
		__entry->total_ns = request->total_ns;
	),
	TP_printk("%u,%u %s sector=%llu bytes=%u queue=%u device_ns=%llu total_ns=%llu sent_back=%u reason=%s",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->op, __entry->sector,
		  __entry->bytes, __entry->queue, __entry->device_ns, __entry->total_ns,
		  __entry->sent_back, __entry->reason)
);

/* A request completed that took slow_ms or longer since its first issue. */
DEFINE_EVENT(fabstat_request, slow,
	TP_PROTO(const struct fabstat_traced *request),
	TP_ARGS(request)
);

/* A request was refused, or sent back, and will be issued again. */
DEFINE_EVENT(fabstat_request, refused,
	TP_PROTO(const struct fabstat_traced *request),
	TP_ARGS(request)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>

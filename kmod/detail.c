// SPDX-License-Identifier: GPL-2.0
/*
 * Details that not everybody wants to pay for: how long requests waited before they were issued,
 * device times by size, and the slowest requests of each device. Most requests need only what is
 * in detail.h; here is the rest.
 *
 * Off by default, and then a jump that is patched out. The wait counts from the moment when the
 * block layer got what the request carries, by its own stamps (fabstat_waited_ns()): a request
 * waits for a tag, in a plug, in an I/O scheduler, for a budget.
 */
#include <linux/module.h>

#include "clock.h"
#include "compat.h"
#include "counters.h"
#include "detail.h"
#include "slowest.h"

DEFINE_STATIC_KEY_FALSE(fabstat_detail);

static int detail_set(const char *value, const struct kernel_param *param)
{
	bool on;
	int err = kstrtobool(value, &on);

	if (err)
		return err;
	if (on && !static_key_enabled(&fabstat_detail)) {
		/* The slowest of a former time would hide those of this one. */
		fabstat_slowest_begin();
		static_branch_enable(&fabstat_detail);
	} else if (!on) {
		static_branch_disable(&fabstat_detail);
	}
	return 0;
}

static int detail_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%c\n", static_key_enabled(&fabstat_detail) ? 'Y' : 'N');
}

static const struct kernel_param_ops detail_ops = { .set = detail_set, .get = detail_get };

module_param_cb(detail, &detail_ops, NULL, 0644);
MODULE_PARM_DESC(detail, "record queue wait, times by size and the slowest requests (default N)");

/* Returns where details of the request at @place are kept, if need be beside everybody's. */
static struct fabstat_extra *extra_of(const struct fabstat_place *place)
{
	struct fabstat_extra *extra = READ_ONCE(place->piece->extra);

	if (extra == fabstat_no_extra)
		extra = fabstat_extra_create(place->piece);
	return extra + place->index;
}

/* @rq was issued at @now, and is in the books. Called from probes. */
void fabstat_detail_issue(const struct fabstat_place *place, struct request *rq, u64 now)
{
	const struct fabstat_retry *retry = fabstat_retry(place->slot);
	s64 wait_ns = fabstat_waited_ns(rq, fabstat_monotonic(now));
	struct fabstat_extra *extra = extra_of(place);
	/* One that was only held back so far is issued for the first time. */
	bool again = retry && retry->first_issue;
	u8 op = place->slot->op;

	if (again || wait_ns == FABSTAT_UNKNOWN) {
		wait_ns = 0;
	} else {
		wait_ns = max_t(s64, wait_ns, 0);
		local64_add(wait_ns, &place->cpu->wait_ns[op]);
		fabstat_record(place->cpu, op, FABSTAT_WAIT, wait_ns);
	}
	/* What one that is issued again waited at first is known if that was seen. */
	if (!again || READ_ONCE(extra->issued) < retry->first_issue)
		WRITE_ONCE(extra->wait_ns, wait_ns);
	else if (fabstat_extra_spills(extra))
		/* That may be another device's. */
		WRITE_ONCE(extra->wait_ns, 0);
	WRITE_ONCE(extra->issued, now);
	WRITE_ONCE(extra->cpu, raw_smp_processor_id());
}

/* A request is about to leave the books. Called from probes. */
void fabstat_detail_complete(const struct fabstat_place *place, const struct fabstat_done *done)
{
	struct fabstat_extra *extra = extra_of(place);

	if (fabstat_has_size(done->op))
		fabstat_record(place->cpu, done->op,
			       FABSTAT_SIZES + fabstat_size_class(place->slot->bytes), done->ns);
	/* It may have been issued before this was switched on. */
	if (READ_ONCE(extra->issued) != done->issued)
		extra = NULL;
	fabstat_slowest_note(place, done, extra);
}

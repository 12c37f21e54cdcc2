// SPDX-License-Identifier: GPL-2.0
/*
 * Clones: the requests that dm-multipath makes to send its own ones down a path.
 *
 * They end in a function of dm's, which is learned from the first of them; none of dm's symbols
 * is used, and the address is compared, never called.
 */
#include <linux/module.h>
#include <linux/notifier.h>

#include "probes.h"

static const void *clone_end_io;

/* Returns true if @rq is such a clone. */
bool fabstat_is_clone(const struct request *rq)
{
	const void *end_io = rq->end_io;

	return end_io && end_io == READ_ONCE(clone_end_io);
}

/* A clone is about to be sent down its path; dm-multipath alone has this event. */
notrace void fabstat_probe_remap(void *data, struct request *rq, dev_t from, sector_t sector)
{
	const void *end_io = rq->end_io;

	if (unlikely(READ_ONCE(clone_end_io) != end_io))
		WRITE_ONCE(clone_end_io, end_io);
}

/* What another module puts where dm's function was is no clone's end. */
static int module_notify(struct notifier_block *nb, unsigned long event, void *data)
{
	const void *end_io = READ_ONCE(clone_end_io);

	if (event == MODULE_STATE_GOING && within_module((unsigned long)end_io, data))
		WRITE_ONCE(clone_end_io, NULL);
	return NOTIFY_OK;
}

static struct notifier_block module_nb = { .notifier_call = module_notify };

int fabstat_dm_init(void)
{
	return register_module_notifier(&module_nb);
}

void fabstat_dm_exit(void)
{
	unregister_module_notifier(&module_nb);
}

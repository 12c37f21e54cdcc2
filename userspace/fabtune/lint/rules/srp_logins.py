# SPDX-License-Identifier: GPL-2.0-or-later
"""Credits, descriptors and channels of SRP logins (drivers/infiniband/ulp/srp/ib_srp.c)."""

from collections.abc import Iterator

from fabtune.lint.rule import Case, Scene, case, rule


@rule(
    "srp-queue-above-credits",
    "notice",
    seen="queue_size {wanted} asked for, {granted} granted",
    so="the target's credits are the limit; LIO grants at most 128 a channel",
    fix="set srp.queue_size to {granted}, or add channels",
    example={"srp.queue_size": "200"},
)
def srp_queue_above_credits(scene: Scene) -> Iterator[Case]:
    """The login's answer cuts the queue to the credits that the target grants."""
    wanted = scene.number("srp.queue_size")
    for login in scene.facts.srp:
        if wanted and 0 < login.can_queue < wanted:
            yield case(login.port, wanted=wanted, granted=login.can_queue)


@rule(
    "srp-credits-exhausted",
    "warning",
    seen="zero_req_lim is {times}: the target's credits ran out that many times",
    so="requests waited at the initiator",
    fix="use more channels (srp.ch_count) or a target with more credits",
)
def srp_credits_exhausted(scene: Scene) -> Iterator[Case]:
    """zero_req_lim counts the requests that found no credit."""
    for login in scene.facts.srp:
        if login.zero_req_lim > 0:
            yield case(login.port, times=login.zero_req_lim)


@rule(
    "srp-sg-without-ext",
    "warning",
    seen="sg_tablesize {table} > cmd_sg_entries {inline} without allow_ext_sg",
    so="requests that do not fit one registered region fail",
    fix="set srp.allow_ext_sg, or lower srp.sg_tablesize",
)
def srp_sg_without_ext(scene: Scene) -> Iterator[Case]:
    """What does not fit the command's own table needs an external one."""
    for login in scene.facts.srp:
        if login.sg_tablesize > login.cmd_sg_entries > 0 and not login.allow_ext_sg:
            yield case(login.port, table=login.sg_tablesize, inline=login.cmd_sg_entries)


@rule(
    "srp-channels-above-vectors",
    "notice",
    seen="{channels} channels share {vectors} completion vectors",
    so="several channels complete on one CPU",
    fix="set srp.ch_count to {vectors}",
)
def srp_channels_above_vectors(scene: Scene) -> Iterator[Case]:
    """Each channel takes one completion vector of the adapter, and they wrap around."""
    for login in scene.facts.srp:
        if 0 < login.comp_vectors < login.ch_count:
            yield case(login.port, channels=login.ch_count, vectors=login.comp_vectors)

# SPDX-License-Identifier: GPL-2.0-or-later
"""Which steps `fabtune tune` would try for what a look saw."""

import gzip
import json
from pathlib import Path

import attrs
import pytest
from test_shown_line import delivering, lines, wanted_of  # noqa: F401
from tuned_looks import no_path, paced_line  # noqa: F401

from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.view import View
from fabtune.autotune.wanted import wanted_steps
from fabtune.model import typed
from fabtune.model.observation import INITIATOR, Observation
from fabtune.why.judging import Share, judged

_BURSTS = json.loads(gzip.decompress((Path(__file__).parent / "data/observations-bursts.json.gz").read_bytes()))


@pytest.mark.parametrize("name", sorted(_BURSTS))
def test_where_bursts_may_look_like_a_full_line_a_longer_buffer_is_tried_once(name: str) -> None:
    """It brought these from 2/3 of their line to all of it; who stays at once never learns that."""
    seen = typed.STRICT.read(Observation, _BURSTS[name], name)
    now, learnt, aim = View((seen,), tuple(judged(seen)), ()), Learnt(), Aim(Goal.THROUGHPUT)
    found = list(wanted_steps(now, aim, learnt))
    (share,) = found[0].reason.shares
    assert "tcp.wmem_max" in share.lifts and share.ends == (INITIATOR,)
    assert "lio.max_outstanding_r2t" in found[0].whole.tunables, "what a new connection takes with it"
    learnt.tried.add(share.limiter)
    assert not any(
        share.limiter in {one.limiter for one in step.reason.shares} for step in wanted_steps(now, aim, learnt)
    )


@pytest.mark.usefixtures("lines")
def test_a_buffer_that_memory_bounds_where_nobody_knows_the_rate_follows_what_the_line_has_shown() -> None:
    """Half of 8 MiB held a line of 939 Mb/s and 73 ms at 64 of 117 MB/s."""
    found = paced_line(None)
    share = Share("send-buffer", 0.6, "the target's send buffer", lifts=("tcp.wmem_max",), ends=("target",))
    held = attrs.evolve(found, ways=tuple(attrs.evolve(one, shares=(share,)) for one in found.ways))
    bounded, shown = wanted_of(delivering(held, 1.0, 1.0, sent_again=0))[:2]
    assert bounded.estimated and not shown.estimated
    assert {one.reason.shares[0].limiter for one in (bounded, shown)} == {"send-buffer"}
    assert shown.reason.rate_bit_per_s == pytest.approx(8 * 20e6 * 1514 / 1448, rel=0.01)
    # What somebody told is planned for as it is.
    assert len(wanted_of(held)) == 1, "nothing was shown"

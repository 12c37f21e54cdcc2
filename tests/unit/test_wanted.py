# SPDX-License-Identifier: GPL-2.0-or-later
"""Which steps `fabtune tune` would try for what a look saw."""

import gzip
import json
from pathlib import Path

import pytest

from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.view import View
from fabtune.autotune.wanted import wanted_steps
from fabtune.model import typed
from fabtune.model.observation import INITIATOR, Observation
from fabtune.why.judging import judged

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

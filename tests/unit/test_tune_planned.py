# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune tune: what a step plans for which of several sessions."""

import attrs
from test_autotune import no_path, paced_line  # noqa: F401

from fabtune.autotune.tuned_ends import Lifting
from fabtune.autotune.view import View
from fabtune.autotune.wanted import _disks
from fabtune.catalog.tunable import shipped_catalog
from fabtune.model.device import Device
from fabtune.model.observation import Observation
from fabtune.tune.lift import Reason
from fabtune.tune.plan import CHANGE, NOT_LIMITED, REFUSED, Row
from fabtune.tune.saved_plan import SavedPlan
from fabtune.why.judging import Share

WINDOW = Share("receive-window", 1.0, "the window", lifts=("iscsi.tcp_window",), ends=("initiator",))


def at(portal: str, disk: str = "sda", rtt_ms: float | None = None) -> Observation:
    """A session with this portal and disk, at such a round trip where one is told."""
    (seen,) = paced_line(None).seen
    seen = attrs.evolve(seen, device=disk, session=attrs.evolve(seen.session, portal=portal, disks=(disk,)))
    if rtt_ms is None:
        return seen
    ends = {
        name: attrs.evolve(
            end,
            socket=attrs.evolve(
                end.socket, samples=tuple(attrs.evolve(one, min_rtt_ms=rtt_ms) for one in end.socket.samples)
            ),
        )
        for name, end in (("initiator", seen.initiator), ("target", seen.target))
        if end and end.socket
    }
    return attrs.evolve(seen, **ends)


def looked_at(*seen: Observation) -> View:
    """A look at sessions of which the window of each limits."""
    (way,) = paced_line(None).ways
    ways = tuple(attrs.evolve(way, device=one.device, shares=(WINDOW,)) for one in seen)
    return View(seen, ways, (20e6,) * 8)


def row(tunable: str, portal: str, now: str, wanted: str) -> Row:
    identity = f"iqn.2026-01.lab.fabtune:target,{portal}"
    return Row(
        shipped_catalog().tunables[tunable], "initiator", Device("record", identity, portal), now, wanted, CHANGE, ""
    )


def test_the_pause_of_a_session_that_nobody_named_is_not_written_into_its_record() -> None:
    """`tune --on FAR` left a DefaultTime2Wait of 0 in the near session's record."""
    far, near = "10.2.0.1:3260", "10.9.0.1:3260"
    rows = [row("iscsi.time2wait", one, "2", "0") for one in (far, near)]
    rows.append(row("iscsi.tcp_window", far, "524288", "0"))
    now = looked_at(at(far))
    reason = Reason("wan", 1e8, (), (WINDOW,), _disks(now, lambda _: [WINDOW]))
    saved = SavedPlan("", "", "", "", "", "wan", ("initiator",), (), "", None, {}, tuple(rows))
    found = Lifting(reason, 100.0, estimated=True, connects=True).in_place(saved).rows
    states = {(one.tunable.name, one.device.label): one.state for one in found if one.device}
    assert states == {
        ("iscsi.tcp_window", far): CHANGE, ("iscsi.time2wait", far): CHANGE, ("iscsi.time2wait", near): REFUSED,
    }  # fmt: skip
    assert [one.note for one in found if one.state == REFUSED] == [NOT_LIMITED], "what nobody needs may change"

# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""What fabtune tune says of the values that stay: what a reboot takes away, and whom bbr leaves little."""

from collections.abc import Callable

import attrs
import pytest
from tuned_looks import ASKED, Make, climber, no_path, nobody, seen  # noqa: F401

from fabtune.autotune import step as stepping
from fabtune.autotune.climb import climb
from fabtune.autotune.made import Made
from fabtune.catalog.tunable import shipped_catalog
from fabtune.model.device import Device
from fabtune.tune.plan import CHANGE, Row

_BOOT = (
    "a reboot leaves node records, and takes {} away: fabtune-apply.service and "
    "fabtune-apply-sessions.service, enabled {}, write that again"
)
_NEIGHBOURS = (
    "step {} brought bbr, which leaves the cubic of others little of a line: when others come to use it, take that "
    "step back and tune again"
)


def _made(end: str, host: str, **values: str) -> Made:
    tunables = [(shipped_catalog().tunables[name.replace("__", ".")], value) for name, value in values.items()]
    rows = [Row(one, end, Device(one.scope, one.scope, one.scope), "1", value, CHANGE, "") for one, value in tunables]
    return Made(end, host, f"T-{end}", tuple(rows))


@pytest.fixture
def remarks_of(climber: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return the remarks of a climb whose steps write so; each is as fast again, but for those that are `slow`."""

    def run(*steps: list[Made], slow: int = 0) -> list[str]:
        rates = [10.0 * 2**turn for turn in range(len(steps) + 1 - slow)]
        climber([seen(rate, f"limiter-{turn}") for turn, rate in enumerate([*rates, *[rates[-1]] * slow])])
        todo = iter(steps)
        monkeypatch.setattr(stepping.TuningStep, "_write", lambda self: self.ends.extend(next(todo)))
        return climb(attrs.evolve(ASKED, most_steps=len(steps)), nobody).remarks

    return run


def test_what_a_reboot_takes_away_is_said_with_what_keeps_it(remarks_of: Callable[..., list[str]]) -> None:
    """After a reboot a session had tune's node record, and none of the buffers that go with it."""
    here = _made("initiator", "", iscsi__tcp_window="0", tcp__rmem_max="33554432")
    assert remarks_of([here]) == [_BOOT.format("tcp.rmem_max", "here")]
    there = _made("target", "storage.example", tcp__wmem_max="33554432", connection__pacing="12000000")
    names = "tcp.wmem_max, connection.pacing, tcp.rmem_max"
    assert remarks_of([there, here]) == [_BOOT.format(names, "on storage.example and here")]


def test_what_a_reboot_leaves_or_has_as_well_is_no_loss(remarks_of: Callable[..., list[str]]) -> None:
    assert remarks_of([_made("initiator", "", iscsi__tcp_window="0", connection__pacing="0")]) == []
    assert remarks_of([_made("initiator", "", tcp__rmem_max="33554432")], slow=1) == []


def test_where_bbr_stays_it_is_said_whom_it_leaves_little(remarks_of: Callable[..., list[str]]) -> None:
    wider, bbr = _made("initiator", "", iscsi__tcp_window="0"), _made("target", "", route__congctl="bbr")
    assert remarks_of([wider], [bbr])[1:] == [_NEIGHBOURS.format(2)]
    # Another congestion control in its place, or none of it kept.
    cubic = _made("target", "", route__congctl="cubic")
    assert not [one for one in remarks_of([bbr], [cubic]) if "bbr" in one]
    assert remarks_of([bbr], slow=1) == []

# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune tune: what its steps pace to is the same share of a line by connection and by a NIC's fq."""

from collections.abc import Callable

import attrs
import pytest
from test_connection import able, host  # noqa: F401 - fixture
from test_tune_planned import FOUR, sharing
from tuned_looks import no_path  # noqa: F401 - fixture

from fabtune.autotune import wanted
from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.view import View
from fabtune.autotune.wanted import Wanted
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.facts.collect import collect
from fabtune.host.portal_options import Options
from fabtune.model.observation import Observation
from fabtune.model.path import NetworkPath
from fabtune.tune.plan import CHANGE, NO_DEVICE, make_plan, tunables_of
from fabtune.tune.request import request

_LINE_BIT_PER_S = 100e6
# A frame that Linux counts and one on the wire, for 1448 bytes of payload over IPv4 at MTU 1500.
_PAYLOAD, _COUNTED, _ON_THE_WIRE = 1448, 1514, 1538


def overflow(now: View) -> Wanted:
    return next(iter(wanted._against_overflow(now, (), _LINE_BIT_PER_S)))


def probing(now: View) -> Wanted:
    return wanted._without_probing(now, _LINE_BIT_PER_S)


def queue(now: View) -> Wanted:
    return list(wanted._shorter_queues(now, Aim(Goal.LATENCY), {wanted.QUEUED_REQUESTS}))[0]


def paces(step: Wanted, nic_mtu: int, given: str) -> set[float]:
    """Return what the plan of a step lets a connection send, in bytes/s, by that tunable."""
    asked = request(step.reason.profile, None, "", None, None, step.settings)
    assert step.reason.rate_bit_per_s
    path = NetworkPath(0.02, step.reason.rate_bit_per_s / 8, nic_mtu)
    facts = collect(tunables_of(asked.profile))
    plan = make_plan(asked.profile, ("initiator", "target"), facts, path, asked.parameters)
    found = (one for one in plan.rows if one.tunable.name == given and one.state in (CHANGE, NO_DEVICE))
    return {float(one.wanted or 0) for one in found}


@pytest.fixture(name="line")
def _line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views show such a line, whatever their observations do, and a queue on it."""
    monkeypatch.setattr(View, "filled_bit_per_s", _LINE_BIT_PER_S)
    monkeypatch.setattr(View, "queue_on_path", True)
    monkeypatch.setattr(View, "shown", None)
    monkeypatch.setattr(View, "floods", False)


def over_ipv6(seen: Observation) -> Observation:
    socket = seen.initiator.socket
    assert socket is not None
    socket = attrs.evolve(socket, mss_bytes=1428, local="[fd00:1::1]:42000", remote="[fd00:2::1]:3260")
    return attrs.evolve(seen, initiator=attrs.evolve(seen.initiator, socket=socket), target=None)


@pytest.mark.parametrize("nic_mtu", [1500, 9000])
@pytest.mark.parametrize("payload", [_PAYLOAD, 1428])
@pytest.mark.parametrize("step", [overflow, probing, queue])
@pytest.mark.usefixtures("host", "line")
def test_a_step_s_pace_is_the_same_share_of_the_line_by_connection_and_by_nic(
    monkeypatch: pytest.MonkeyPatch,
    step: Callable[[View], Wanted],
    payload: int,
    nic_mtu: int,
) -> None:
    """TCP paces payload alone: held to as many bytes as a line has with headers, it has 1.046 of what that carries.

    A queue of an eighth of the BDP overflows at that.  What a NIC could send in longer packets is of no account.
    """
    now = sharing(FOUR[0] if payload == _PAYLOAD else over_ipv6(FOUR[0]))
    (by_nic,) = paces(step(now), nic_mtu, "qdisc.maxrate")
    able(monkeypatch, Options())
    (by_connection,) = paces(step(now), nic_mtu, "connection.pacing")
    assert by_connection / payload == pytest.approx(by_nic / _COUNTED, rel=1e-5)
    assert 0.99 * _LINE_BIT_PER_S / 8 < by_nic <= _LINE_BIT_PER_S / 8


@pytest.mark.usefixtures("host", "line")
def test_a_told_line_s_queue_is_emptied_by_connection_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told has the bytes between packets, too."""
    monkeypatch.setattr(View, "rate_bit_per_s", _LINE_BIT_PER_S)
    able(monkeypatch, Options())
    (pace,) = paces(queue(sharing(FOUR[0])), 1500, "connection.pacing")
    assert pace == pytest.approx(_LINE_BIT_PER_S / 8 * _PAYLOAD / _ON_THE_WIRE, rel=1e-5)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(("headers", "payload"), [(52, _PAYLOAD), (72, 1428)])
def test_wan_clean_paces_connections_at_what_a_told_line_carries(
    monkeypatch: pytest.MonkeyPatch,
    headers: int,
    payload: int,
) -> None:
    """Cubic that is paced above a line loses what its queue has no room for."""
    able(monkeypatch, Options())
    profile = load_profile("wan-clean", shipped_catalog())
    path = NetworkPath(0.02, _LINE_BIT_PER_S / 8, header_bytes=headers)
    plan = make_plan(profile, ("initiator",), collect(tunables_of(profile)), path, {})
    (row,) = [one for one in plan.rows if one.tunable.name == "connection.pacing"]
    assert float(row.wanted or 0) == pytest.approx(_LINE_BIT_PER_S / 8 * payload / _ON_THE_WIRE, rel=1e-5)

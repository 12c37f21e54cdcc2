# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""fabtune tune: what cannot be planned is no step; why is said, and the next one is tried."""

from collections.abc import Callable, Sequence
from pathlib import Path

import hosttree
import pytest
from kept_looks import kept
from test_guard_portals import Connect, connect, host, over_tcp  # noqa: F401
from test_host_texts import spoil

from fabtune.autotune import climb as climbing
from fabtune.autotune import step as stepping
from fabtune.autotune.climb import Climb
from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.disturbed import Witness
from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.new_connections import NewConnections
from fabtune.autotune.step import TuningStep
from fabtune.autotune.tuned_ends import AwayTarget, Lifting, NearEnd, NoStepError
from fabtune.autotune.view import View
from fabtune.autotune.wanted import Wanted
from fabtune.backends import record
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import portal_options
from fabtune.host.portal_options import Options
from fabtune.host.run import Ended
from fabtune.model.observation import ENDS, INITIATOR, TARGET
from fabtune.tune import path_choice, reconnect, saved_plan
from fabtune.tune.far_end import FarEnd
from fabtune.tune.lift import Reason
from fabtune.tune.request import plan_for, request
from fabtune.tune.saved_plan import SavedPlan
from fabtune.why.judging import Share, judged

Next = Callable[[Sequence[Wanted]], tuple[TuningStep | None, list[str]]]
_SESSIONS, _RTT_MS = 24, 50.0
_BUFFERS = ("tcp.rmem_max", "tcp.wmem_max")


def against(
    limiter: str, lifts: tuple[str, ...], rtt_ms: float | None = _RTT_MS, profile: str = "wan", estimated: bool = False
) -> Wanted:
    """A step that lifts these tunables, at both ends as far as they have them, on a line of 10 Gb/s."""
    share = Share(limiter, 1.0, "", lifts=lifts, ends=ENDS, profile=profile)
    return Wanted(Reason(profile, 1e10, (), (share,), (), rtt_ms), estimated=estimated)


@pytest.fixture
def chosen(host: Path, monkeypatch: pytest.MonkeyPatch) -> Next:
    """Choose among these steps; return the one that is taken, and what is said of the others below the table."""
    monkeypatch.setattr(portal_options, "given", lambda _: Options())
    monkeypatch.setattr(reconnect, "why_not_for", lambda *_: "")
    seen = kept("untouched-read", 1, _RTT_MS)
    now, aim, asked = (
        View((seen,), tuple(judged(seen)), (1e6,) * 8),
        Aim(Goal.THROUGHPUT),
        ClimbAsked((), None, None, 4, 8),
    )

    def choose(steps: Sequence[Wanted]) -> tuple[TuningStep | None, list[str]]:
        monkeypatch.setattr(stepping, "wanted_steps", lambda *_: iter(steps))
        learnt = Learnt()
        anew = NewConnections(lambda _: None)
        step = TuningStep.next(asked, aim, now, learnt, lambda _: None, Witness(), anew)
        return step, climbing._of_path(Climb(now, now, aim, learnt=learnt))

    return choose


@pytest.fixture
def many(host: Path, connect: Connect) -> None:
    """So many sessions that twice what such a path holds, for each, is more than the memory of the host."""
    for number in range(2, _SESSIONS + 1):
        hosttree.log_in(host, number)
        over_tcp(host, number)
    record.BACKEND.forget()
    connect(*[(number, _RTT_MS) for number in range(1, _SESSIONS + 1)])


@pytest.mark.usefixtures("many")
def test_buffers_beyond_memory_are_no_step_and_the_next_one_is_taken(chosen: Next) -> None:
    """The write refused them, with exit 2, and advised an option that tune does not take."""
    wide = [against(name, (*_BUFFERS, "iscsi.tcp_window")) for name in ("receive-window", "send-buffer")]
    step, said = chosen([*wide, against("slow-start", ("tcp.slow_start_after_idle",))])
    assert step and step.limiters == ("slow-start",)
    (why,) = [one for one in said if "memory" in one]
    assert why.startswith(f"left alone at the initiator: {', '.join(_BUFFERS)}, iscsi.tcp_window: too much memory")
    assert f"buffers of {_SESSIONS} sessions" in why and "--set" not in why


@pytest.mark.usefixtures("many")
def test_buffers_that_memory_bounds_are_a_step(chosen: Next) -> None:
    step, said = chosen([against("receive-window", _BUFFERS, estimated=True)])
    assert step and not [one for one in said if "memory" in one]


@pytest.mark.usefixtures("many")
def test_buffers_beyond_the_memory_of_a_target_elsewhere_are_no_step_either() -> None:
    """Its own fabtune refuses them, when it is to write them."""
    there, facts = plan_for(request("wan", TARGET, "", f"{_RTT_MS}ms", "10gbit", (), only=_BUFFERS))
    text = saved_plan.plan_text(saved_plan.of(there, facts, shipped_catalog()))

    class Far(FarEnd):
        def __init__(self) -> None:
            self.host = "target.example"

        def plan(self, *_: object) -> SavedPlan:
            return saved_plan.parse(text.encode(), self.host, shipped_catalog())

    wanted = against("receive-window", _BUFFERS)
    with pytest.raises(
        FabtuneError, match=r"^target\.example: left alone at the target: tcp\.rmem_max.*: too much memory at worst"
    ):
        AwayTarget(Far()).plan(Lifting(wanted.reason, _RTT_MS, estimated=False))
    assert NearEnd(INITIATOR, "").plan(Lifting(wanted.reason, _RTT_MS, estimated=True)).rows


@pytest.fixture
def rdma(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session has no TCP connection."""
    for place in ("sys/devices/platform/host1/scsi_host/host1", "sys/class/scsi_host/host1"):
        hosttree.put(host / place / "proc_name", "iscsi_iser")
    monkeypatch.setattr(HostSnapshot, "sockets", [])
    monkeypatch.setattr(HostSnapshot, "connections", [])


@pytest.mark.usefixtures("rdma")
def test_what_a_profile_needs_an_unseen_round_trip_for_is_no_step_and_the_next_one_is_taken(
    host: Path, chosen: Next
) -> None:
    """It ended with exit 2, and asked for --rtt, which tune does not have; then nothing said how to go on."""
    spoil(host, "node.session.iscsi.ImmediateData", "No")
    steps = [against(name, (f"iscsi.{name}",), None, "lan") for name in ("queue_depth", "immediate_data")]
    step, said = chosen(steps)
    assert step and step.limiters == ("immediate_data",)
    (why,) = [one for one in said if one.startswith("left alone")]
    assert why.startswith("left alone at the initiator: iscsi.queue_depth: the round trip")
    assert "`fabtune plan lan --role initiator --rtt TIME --rate RATE --only iscsi.queue_depth --out FILE`" in why
    words = [
        "plan",
        "lan",
        "--role",
        "initiator",
        "--rtt",
        "20ms",
        "--rate",
        "1gbit",
        "--only",
        "iscsi.queue_depth",
        "--out",
        "-",
    ]
    assert main(words) == ExitCode.DONE


@pytest.mark.usefixtures("rdma")
def test_where_no_nic_tells_the_rate_it_is_that_which_is_said_to_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said of a round trip that was seen that it was not."""
    monkeypatch.setattr(path_choice, "fastest_nic_bit_per_s", lambda _: None)
    share = Share("depth", 1.0, "", lifts=("iscsi.queue_depth",), ends=ENDS, profile="lan")
    with pytest.raises(NoStepError, match="the line's rate is not known, .*; give it by --rate$"):
        NearEnd(INITIATOR, "").plan(Lifting(Reason("lan", None, (), (share,), (), _RTT_MS), _RTT_MS, estimated=True))


def test_what_a_target_elsewhere_needs_a_round_trip_for_is_no_step_either(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "round trip and rate unknown: give --rtt and --rate"
    monkeypatch.setattr(FarEnd, "_run", lambda *_: Ended(ExitCode.USAGE, "", f"fabtune: {said}"))
    far = object.__new__(FarEnd)
    far.host = "target.example"
    reason = against("send-buffer", ("tcp.wmem_max",), None).reason
    with pytest.raises(NoStepError, match="^target.example: left alone at the target: tcp.wmem_max: the") as caught:
        AwayTarget(far).plan(Lifting(reason, None, estimated=True))
    assert "on target.example `fabtune plan wan --role target --rtt TIME --rate RATE --only tcp.wmem_max" in str(
        caught.value
    )
    # What was told is not missing.
    with pytest.raises(FabtuneError, match=said):
        AwayTarget(far).plan(Lifting(reason, _RTT_MS, estimated=True))

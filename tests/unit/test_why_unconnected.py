# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions without a TCP connection (SRP, iSER): what requests and refusals tell, and what they do not."""

import gzip
import json
from pathlib import Path

import attrs
import pytest

from fabtune.cli import whatif
from fabtune.measure import look
from fabtune.model import typed
from fabtune.model.beside_seen import BesideSeen
from fabtune.model.observation import BackstoreSeen, Observation
from fabtune.tune import lift
from fabtune.why import words
from fabtune.why.judging import Judged, judged

_KEPT = Path(__file__).parent / "data/observations.json.gz"


def _srp(name: str, *, rate: float | None = None, no_credit: int | None = 0, **disk: object) -> Observation:
    """Return a kept look as an SRP login's, whose connection nobody sees."""
    seen = typed.STRICT.read(Observation, json.loads(gzip.decompress(_KEPT.read_bytes()))[name], "")
    session = attrs.evolve(
        seen.session, state="running", transport="srp", negotiated={}, rdma=True, no_credit=no_credit
    )
    return attrs.evolve(
        seen, session=session, target=None, rate_bytes_per_s=rate, rate_by="--rate" if rate else "",
        initiator=attrs.evolve(seen.initiator, socket=None, nic=None, qdisc=None),
        disk=attrs.evolve(seen.disk, **disk),
    )  # fmt: skip


def _one(seen: Observation) -> Judged:
    (found,) = judged(seen)
    assert sum(share.share for share in found.shares) == pytest.approx(1) and not found.both_ends
    return found


def _with_target(seen: Observation, mean_ms: float) -> Observation:
    done = seen.disk.ways["read"].completed
    store = BackstoreSeen("sdz", {"read": done}, {"read": mean_ms}, mean_ms / 100, mean_ms / 100)
    target = attrs.evolve(seen.initiator, end="target", threads=(), backstores=(store,))
    return attrs.evolve(seen, target=target)


def test_without_a_refusal_it_is_the_load_the_line_or_the_target() -> None:
    found = _one(_srp("untouched-read"))
    assert found.first.limiter == "cannot-tell-unconnected" and {"load", "line"} <= set(found.first.among)
    assert "cannot tell what limits them" in words.verdict(found) and not found.liftable


def test_credits_that_run_out_are_named_with_what_may_keep_them() -> None:
    seen = _srp("untouched-read", no_credit=70, refusals={"host_busy": 1000})
    found = _one(seen)
    assert found.first.limiter == "cannot-tell-credits" and "srp-credits" in found.first.among
    told = {one.counter: one.value for one in found.first.evidence}
    assert told["out of SRP credits"] == "70 times (zero_req_lim)" and "refused: host_busy" in told
    # An iSER session's driver refuses for want of a command.
    other = _one(_srp("untouched-read", no_credit=None, refusals={"host_busy": 1000}))
    assert other.first.limiter == "cannot-tell-reached"


@pytest.mark.parametrize(("mean_ms", "limiter"), [(0.1, "srp-credits"), (600.0, "target-disk")])
def test_with_the_line_s_rate_and_the_target_s_end_what_keeps_the_credits_is_told(mean_ms: float, limiter: str) -> None:
    """The line has ten times as much left, and the target's disk answers at once, or has them for all the time."""
    seen = _srp("untouched-read", rate=125e6, no_credit=70, refusals={"host_busy": 1000})
    assert _one(seen).first.limiter == "cannot-tell-credits"
    found = _one(_with_target(seen, mean_ms))
    assert found.first.limiter == limiter
    assert ("srp.queue_size" in found.first.lifts) == (limiter == "srp-credits")


def test_a_queue_that_is_reached_with_credits_left_is_not_called_a_want_of_them() -> None:
    seen = _srp("untouched-read", rate=125e6, no_credit=0, refusals={"host_busy": 1000})
    found = _one(_with_target(seen, 0.1))
    assert found.first.limiter == "srp-queue" and "srp.queue_size" in found.first.lifts


def test_a_target_is_the_login_s_only_where_one_disk_did_just_its_requests() -> None:
    """Any busier storage host passed for it, and another initiator's disk for this one's."""
    seen = _with_target(_srp("untouched-read"), 1.0)
    assert seen.target
    (mine,) = seen.target.backstores
    done = mine.completed["read"]
    twice = attrs.evolve(mine, name="sdy", completed={"read": 2 * done})
    for stores, right in (((mine,), True), ((twice,), False), ((mine, twice), False), ((), False)):
        assert look._did(attrs.evolve(seen.target, backstores=stores), seen.disk) == right
    idle = attrs.evolve(mine, name="sdx", completed={"read": done // 50})
    assert look._did(attrs.evolve(seen.target, backstores=(idle, mine)), seen.disk)


def test_whatif_says_of_a_profile_that_it_cannot_tell() -> None:
    """It ended with a usage error, and said nothing of the iSCSI disks beside."""
    told = whatif._tell(_srp("untouched-read"), ["wan"])
    assert told.ways == [] and told.asked.unknown == ("wan",)


def test_an_srp_login_beside_an_iscsi_session_does_not_take_its_profile_s_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    login = _with_target(_srp("untouched-read", rate=125e6, no_credit=70, refusals={"host_busy": 1000}), 0.1)
    kept = json.loads(gzip.decompress(_KEPT.read_bytes()))["untouched-read"]
    session = attrs.evolve(typed.STRICT.read(Observation, kept, ""), device="sdb")
    monkeypatch.setattr(lift, "with_known_rate", lambda seen, _: list(seen))
    for seen, profile in (((login, session), "wan"), ((session, login), "wan"), ((login,), "srp")):

        class Looked:
            def __init__(self, *_: object) -> None:
                pass

            def over(self, _: float, seen: tuple[Observation, ...] = seen) -> tuple[Observation, ...]:
                return seen

        monkeypatch.setattr(lift, "Look", Looked)
        assert lift.reason(1.0, "target", None).profile == profile


def test_a_full_line_is_no_want_of_credits() -> None:
    seen = _srp("untouched-read", no_credit=70, refusals={"host_busy": 1000})
    carried = seen.disk.ways["read"].moved_bytes / seen.disk.elapsed_s
    found = _one(attrs.evolve(_with_target(seen, 0.1), rate_bytes_per_s=carried * 1.06, rate_by="--rate"))
    assert found.first.limiter == "line" and not found.liftable


def test_disks_of_one_login_that_fill_the_line_together_want_no_credits() -> None:
    seen = _srp("untouched-read", no_credit=70, refusals={"host_busy": 1000})
    carried = seen.disk.ways["read"].moved_bytes / seen.disk.elapsed_s
    others = {"read": 3 * carried}
    seen = attrs.evolve(
        _with_target(seen, 0.1), rate_bytes_per_s=4 * carried * 1.06, rate_by="--rate",
        session=attrs.evolve(seen.session, disks=("sda", "sdb", "sdc", "sdd")),
        beside=BesideSeen(("sdb", "sdc", "sdd"), others, others),
    )  # fmt: skip
    found = _one(seen)
    assert found.first.limiter == "line" and found.at_the_bound and not found.liftable


def test_a_port_that_is_lost_blocks_all() -> None:
    seen = _srp("untouched-read")
    found = _one(attrs.evolve(seen, session=attrs.evolve(seen.session, state="lost")))
    assert found.first.limiter == "blocked-session"

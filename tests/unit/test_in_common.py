# SPDX-License-Identifier: GPL-2.0-or-later
"""What the slow ones of a fleet have in common, over made observations of 3 initiators and 3 targets."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import attrs
import hosttree
import pytest

from fabtune.cli import why
from fabtune.cli.main import verb_parser
from fabtune.host import sockets, targets
from fabtune.host.sockets import TcpSocket
from fabtune.measure import connection_group, look
from fabtune.model import typed
from fabtune.model.observation import INITIATOR, TARGET, BackstoreSeen, EndSeen, Observation
from fabtune.why.in_common import InCommon, in_common, members_of
from fabtune.why.judging import every_limiter
from fabtune.why.same_time import at_the_same_time
from fabtune.why.summing_up import with_rate

_KEPT: dict[str, object] = {
    name: raw
    for file in ("observations.json.gz", "observations-100mbit.json.gz")
    for name, raw in json.loads(gzip.decompress((Path(__file__).parent / "data" / file).read_bytes())).items()
}
Where = Callable[[int, int], bool]


def _seen(name: str, target: str, portal: str) -> Observation:
    seen = typed.STRICT.read(Observation, _KEPT[name], name)
    session = attrs.evolve(seen.session, target=target, portal=portal)
    return attrs.evolve(seen, session=session, rate_bytes_per_s=200e6 / 8, rate_by="--rate")


def _late(seen: Observation) -> Observation:
    """The target's disk takes most of a request's time."""
    assert seen.target
    way = attrs.evolve(seen.disk.ways["write"], device_ms=120.0, total_ms=120.0, block_ms=120.0)
    disk = BackstoreSeen("dm-0", {"write": 100}, {"write": 98.0}, 0.99, 2.0)
    target = attrs.evolve(seen.target, backstores=(disk,))
    return attrs.evolve(seen, disk=attrs.evolve(seen.disk, ways={"write": way}), target=target)


def test_whose_doing_each_limiter_is_stands_with_the_limiter() -> None:
    """A table in a file of its own had them, so that a new one was nobody's, and nothing said so."""
    found: dict[str, set[str]] = {}
    for one in every_limiter():
        found.setdefault(one.doing, set()).add(one.name)
    assert found.pop("target") == {
        "target-disk", "target-cpu", "cannot-tell-target", "task-set-full", "command-window", "srp-credits",
    }  # fmt: skip
    assert found.pop("path") == {
        "line", "competing-traffic", "cannot-tell-queue", "loss", "mtu-black-hole", "blocked-session",
    }  # fmt: skip
    assert found.pop("initiator") == {"initiator-cpu", "nr-requests", "queue-depth", "session-commands", "srp-queue"}
    assert set(found) == {""}


def _fleet(slow: Where, *, name: str = "untouched-read", portal: str = "10.0.{}.1:3260") -> InCommon:
    """Initiators 0..2 each have a disk of targets 0..2; those for which `slow` says so are held back, others full."""

    def one(initiator: int, target: int) -> Observation:
        place = f"iqn.t{target}", portal.format(target)
        if not slow(initiator, target):
            return _seen("wan-read", *place)
        return _late(_seen("wan-depth2w", *place)) if name == "late" else _seen(name, *place)

    return in_common(members_of({f"i{host}": [one(host, target) for target in range(3)] for host in range(3)}))


def test_the_slow_initiator_is_named() -> None:
    found = _fleet(lambda initiator, _: initiator == 1)
    assert (found.kind, found.names, found.limiter) == ("initiator", ("i1",), "receive-window")
    assert found.sentence.startswith("3 of 9 are slow, 3 of these by receive window; these and no others")


def test_the_slow_target_is_told_from_the_path_by_what_limits() -> None:
    found = _fleet(lambda _, target: target == 2, name="late")
    assert (found.kind, found.names) == ("target", ("iqn.t2",))
    found = _fleet(lambda _, target: target == 2, name="loss-read")
    assert (found.kind, found.names) == ("path", ("10.0.2.1:3260",))


def test_two_slow_targets_are_both_named() -> None:
    found = _fleet(lambda _, target: target != 0, name="late")
    assert (found.kind, found.names) == ("target", ("iqn.t1", "iqn.t2"))
    assert "the targets iqn.t1, iqn.t2" in found.sentence


def test_a_path_that_several_targets_share_is_named() -> None:
    def one(target: int, name: str) -> Observation:
        return _seen(name, f"iqn.t{target}", "10.0.0.1:3260" if target < 2 else "10.0.9.1:3260")

    hosts = {f"i{host}": [one(0, "loss-read"), one(1, "loss-read"), one(2, "wan-read")] for host in range(2)}
    assert in_common(members_of(hosts)).kind == "path"


def test_what_target_and_path_explain_alike_is_not_decided_without_evidence() -> None:
    found = _fleet(lambda _, target: target == 2)
    assert not found.kind and found.apart == ("target", "path")
    assert "cannot tell whether that is the target or the path" in found.sentence


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        (lambda initiator, target: initiator == target, "neither a target nor a path nor an initiator"),
        (lambda initiator, target: True, "none is there to hold them against"),
        (lambda initiator, target: False, "none of 9 is slow"),
    ],
)
def test_nothing_is_blamed_without_a_pattern(slow: Where, said: str) -> None:
    found = _fleet(slow)
    assert not found.kind and not found.names and not found.apart
    assert said in found.sentence


def test_a_load_that_is_too_small_is_no_slow_member() -> None:
    assert not _fleet(lambda _, target: target == 1, name="wan-depth1").slow


@pytest.mark.parametrize("other", ["wan-depth1", "untold"])
def test_one_of_which_nothing_can_be_told_does_not_unmake_the_pattern(other: str) -> None:
    def one(name: str, target: str) -> Observation:
        seen = _seen("wan-read" if name == "untold" else name, target, f"{target}:3260")
        untold = attrs.evolve(seen, initiator=attrs.evolve(seen.initiator, socket=None), target=None)
        return attrs.evolve(untold, rate_bytes_per_s=None) if name == "untold" else seen

    hosts = {f"i{host}": [one("untouched-read", "iqn.a")] for host in range(9)}
    found = in_common(members_of({**hosts, "i9": [one(other, "iqn.a")], "i10": [one("wan-read", "iqn.b")]}))
    assert found.apart == ("target", "path") and len(found.slow) == 9
    # One of the same target that carries more than they do shows that the target is not what they lack.
    found = in_common(members_of({**hosts, "i9": [one("wan-read", "iqn.a")], "i10": [one("wan-read", "iqn.b")]}))
    assert "neither a target nor a path nor an initiator" in found.sentence
    # And one elsewhere that carries less is nothing to hold them against.
    found = in_common(members_of({**hosts, "i9": [one(other, "iqn.b")]}))
    assert not found.kind and not found.apart and "none of the others carries as much" in found.sentence


def test_who_shows_nothing_is_counted_in_the_sentence() -> None:
    def one(name: str, target: int) -> Observation:
        seen = _seen(name, f"iqn.t{target}", f"10.0.{target}.1:3260")
        return _late(seen) if name == "wan-depth2w" else seen

    hosts = {"i0": [one("wan-depth2w", 0)], "i1": [one("wan-depth2w", 0)], "i2": [one("depth1", 0)]}
    found = in_common(members_of({**hosts, "i3": [one("wan-read", 1)]}))
    assert found.sentence.endswith("these and no others but 1 that show nothing have the target iqn.t0 in common")
    untold = attrs.evolve(one("wan-read", 1), rate_bytes_per_s=None)
    untold = attrs.evolve(untold, initiator=attrs.evolve(untold.initiator, socket=None), target=None)
    assert in_common(members_of({"i": [untold]})).sentence == "none of 1 is known to be slow; of 1 it cannot be told"


def test_a_full_line_of_a_rate_that_nobody_told_is_neither_slow_nor_well() -> None:
    """None of them was said to be slow: others may have had the most of each line."""

    def untold(target: int) -> Observation:
        seen = _seen("line-unpaced-read", f"iqn.t{target}", f"10.0.{target}.1:3260")
        return attrs.evolve(seen, rate_bytes_per_s=None, rate_by="")

    found = in_common(members_of({"i0": [untold(0)], "i1": [untold(1)]}))
    assert not found.none_is_slow
    assert found.sentence == "none of 2 is known to be slow; of 2 it cannot be told"
    found = in_common(members_of({"i0": [untold(0)], "i1": [_seen("loss-read", "iqn.t1", "10.0.1.1:3260")]}))
    assert not found.kind and not found.well


@pytest.mark.parametrize(
    ("later_s", "joined", "note"),
    [(0.0, True, ""), (0.4, True, ""), (8.0, False, "up to 8.0 s earlier or later"), (None, False, "no word of when")],
)
def test_a_targets_end_is_joined_to_its_connection_where_both_were_looked_at_at_the_same_time(
    later_s: float | None, joined: bool, note: str
) -> None:
    both = _seen("maxrate-read", "iqn.t", "p")
    assert both.target
    mine = attrs.evolve(both.initiator, begun_unix_s=1e9)
    theirs = attrs.evolve(both.target, begun_unix_s=None if later_s is None else 1e9 + later_s)
    found = at_the_same_time({"i": [attrs.evolve(both, initiator=mine, target=None)]}, [theirs])
    (member,) = members_of(found.observations)
    assert (member.judged.first.limiter == "pacing") == joined == member.judged.both_ends
    assert joined or "pacing" in member.judged.first.among
    assert (note in found.notes[0]) if note else not found.notes


def test_a_targets_end_that_is_joined_tells_the_rate_of_its_nic() -> None:
    """The initiator alone took its own NIC's for the line's, and a full port of the target was a queue on the way."""
    both = _seen("line-unpaced-read", "iqn.t", "p")

    def near(end: EndSeen | None, speed_bytes_per_s: float) -> EndSeen:
        assert end and end.socket and end.nic
        samples = [attrs.evolve(one, min_rtt_ms=1.0) for one in end.socket.samples]
        nic = attrs.evolve(end.nic, speed_bytes_per_s=speed_bytes_per_s)
        socket = attrs.evolve(end.socket, samples=tuple(samples))
        return attrs.evolve(end, begun_unix_s=1e9, nic=nic, socket=socket)

    mine, theirs = near(both.initiator, 1.25e9), near(both.target, 100e6 / 8)
    for told, rate, limiter in ((None, 100e6 / 8, "line"), (50e6, 50e6, "competing-traffic")):
        alone = with_rate(attrs.evolve(both, initiator=mine, target=None, rate_bytes_per_s=None, rate_by=""), told)
        found = at_the_same_time({"i": [alone]}, [theirs])
        assert found.observations["i"][0].rate_bytes_per_s == rate
        (member,) = members_of(found.observations)
        assert (member.judged.first.limiter, member.judged.both_ends) == (limiter, True)


def test_each_end_keeps_when_its_look_began(monkeypatch: pytest.MonkeyPatch) -> None:
    end = SimpleNamespace(
        missing=[], read=lambda: None, close=lambda: None, common=lambda *_: EndSeen("target", "6.12", None),
        nic_seen=lambda *_: None, qdisc_seen=lambda *_: None, own_queue_seen=lambda *_: {},
    )  # fmt: skip
    monkeypatch.setattr(connection_group, "End", lambda *_, **_unused: end)
    monkeypatch.setattr(connection_group, "SocketSampler", lambda *_: SimpleNamespace(close=lambda: None, lacks=None))
    socket = TcpSocket("10.0.0.1", "10.0.0.2", 3260, 40000, 20.0, 20.0, 0, 10, 1448, 0, "cubic", 0, 0)
    group = connection_group.ConnectionGroup("target", "", [socket])
    monkeypatch.setattr("time.time", lambda: 1e9)
    group.begin()
    monkeypatch.setattr("time.time", lambda: 1e9 + 10)
    group.stop()
    assert group.seen(10.0)[socket].begun_unix_s == 1e9


def test_it_is_said_if_the_initiators_did_not_look_at_the_same_time() -> None:
    def notes(*later_s: float) -> tuple[str, ...]:
        one = _seen("wan-read", "iqn.t", "p")
        every = [attrs.evolve(one, initiator=attrs.evolve(one.initiator, begun_unix_s=1e9 + s)) for s in later_s]
        return at_the_same_time({f"i{place}": [seen] for place, seen in enumerate(every)}).notes

    assert notes(0.0, 0.2) == ()
    assert "their looks began up to 8.3 s apart" in notes(0.0, 8.3, 0.2)[0]


@pytest.mark.parametrize(("ahead_s", "waits"), [(5.0, True), (-3.0, False), (3600.0, False)])
@pytest.mark.parametrize("end", [INITIATOR, TARGET])
def test_a_look_is_ready_before_its_instant_and_waits_for_it_unless_a_clock_is_wrong(
    end: str, ahead_s: float, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosttree.enter(hosttree.make(tmp_path, 1), monkeypatch)
    done: list[str] = []

    def noted(what: str, found: object) -> object:
        done.append(what)
        return found

    mine = TcpSocket("10.0.0.1", "10.0.0.2", 3260, 40000, 20.0, 20.0, 0, 10, 1448, 0, "cubic", 1 << 18, 1 << 18)
    group = SimpleNamespace(begin=lambda: done.append("begin"), stop=lambda: None, seen=lambda _: {}, missing=())
    clock = [1e9]

    def sleep(left_s: float) -> None:
        done.append(f"wait {left_s:g}")
        clock[0] += left_s

    monkeypatch.setattr("time.time", lambda: clock[0])
    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr(sockets, "established", lambda _="": [mine])
    monkeypatch.setattr(targets, "groups", lambda: [SimpleNamespace(where={"portals": "10.0.0.1:3260"})])
    monkeypatch.setattr(look, "ConnectionGroup", lambda *_, **_unused: noted("ready", group))
    monkeypatch.setattr(look.Look, "end", lambda *_: [])
    monkeypatch.setattr(look, "_records", dict)
    monkeypatch.setattr(look, "_sampled", lambda *_: 1.0)
    monkeypatch.setattr(look, "fabstat_now", lambda: noted("fabstat", (None, "")))
    words = ["--at", str(1e9 + ahead_s), *(("--end", "target") if end == TARGET else ())]
    why.run_why(verb_parser("why").parse_args(words))
    before = done[: done.index("begin")]
    assert before == ["ready", *(["ready", "fabstat"] if end == INITIATOR else []), *(["wait 5"] if waits else [])]


def test_an_idle_fleet_has_nothing_to_say() -> None:
    assert "put it under its load" in in_common(members_of({"i": []})).sentence

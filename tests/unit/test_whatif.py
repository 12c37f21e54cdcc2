# SPDX-License-Identifier: GPL-2.0-or-later
"""What `whatif` may say of a change: nothing where nothing changes, no figure where the model does not know."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import attrs
import hosttree
import pytest

from fabtune.cli import main, whatif
from fabtune.errors import InputError
from fabtune.host import blocks, sockets
from fabtune.host.sessions import live_sessions
from fabtune.measure import look
from fabtune.measure.beside import Beside, Moved
from fabtune.measure.looked import Looked
from fabtune.model import typed
from fabtune.model.beside_seen import BesideSeen
from fabtune.model.foretell import Foretold, foretell, of_one_line
from fabtune.model.observation import Observation
from fabtune.tune import journal, lift
from fabtune.tune.asked import asked
from fabtune.why import words
from fabtune.why.judging import judged

_DATA = Path(__file__).parent / "data"
_KEPT: dict[str, object] = {
    name: one
    for kept in ("observations", "observations-100mbit", "observations-pairs")
    for name, one in json.loads(gzip.decompress((_DATA / f"{kept}.json.gz").read_bytes())).items()
}


def _seen(name: str, rate: float | None = None) -> Observation:
    seen = typed.STRICT.read(Observation, _KEPT[name], name)
    return attrs.evolve(seen, rate_bytes_per_s=rate or seen.rate_bytes_per_s or 25e6)


def _after(seen: Observation, *changes: str) -> list[Foretold]:
    return foretell(seen, asked(changes, seen).changes)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("both-queue-window-mixed-20ms", "iscsi.tcp_window=100000"),
        ("both-queue-window-mixed-20ms", "initiator:net.rmem_max=212992"),
        # The window is locked: what autotuning might have does not matter.
        ("both-queue-window-mixed-20ms", "initiator:tcp.rmem_max=64MiB"),
        # More than the kernel's limit to it, which locks the same buffer.
        ("untouched-write", "iscsi.tcp_window=400000"),
        ("initiator-wmem-write", "iscsi.tcp_window=0"),
        ("initiator-wmem-write", "initiator:tcp.wmem_max=150000"),
        ("cmds-max-read", "iscsi.cmds_max=16"),
        ("duty-pacing-30-read", "block.queue_depth=113"),
        ("duty-pacing-30-read", "block.nr_requests=113"),
        ("loss-read", "target:tcp.congestion_control=cubic"),
        ("maxrate-read", "target:qdisc.maxrate=50mbit"),
    ],
)
def test_what_is_there_already_changes_nothing(name: str, word: str) -> None:
    seen = _seen(name)
    for one in _after(seen, word):
        assert one.bytes_per_s == pytest.approx(one.now_bytes_per_s, rel=0.001), one
        assert (one.low, one.high) == (one.bytes_per_s, one.bytes_per_s)


def test_what_is_there_already_at_an_end_that_is_not_seen_changes_nothing_either() -> None:
    seen = attrs.evolve(_seen("target-wmem-read"), target=None)
    (one,) = _after(seen, "target:lio.max_burst=1048576")
    assert one.bytes_per_s == pytest.approx(one.now_bytes_per_s)


_OF_LIO, _OF_TGT = (
    f"{kind}.first_burst=262144 {kind}.max_burst=1048576 {kind}.initial_r2t=No {kind}.{commands}=128".split()
    for kind, commands in (("lio", "default_cmdsn_depth"), ("tgt", "max_queue_cmd"))
)


@pytest.mark.parametrize("both", [False, True])
def test_what_a_target_offers_brings_the_same_whatever_kind_it_is(both: bool) -> None:
    """Of tgt all was "not in the model"."""
    mine = ["iscsi.first_burst=262144", "iscsi.max_burst=1048576", "iscsi.initial_r2t=No"] if both else []
    of_lio, of_tgt = (_after(_seen("r2t-write", 12.5e6), *mine, *theirs) for theirs in (_OF_LIO, _OF_TGT))
    assert of_lio == of_tgt
    assert not both or (of_lio[0].bytes_per_s or 0.0) > 1.2 * of_lio[0].now_bytes_per_s
    assert asked(_OF_TGT, _seen("r2t-write")).unknown == ()


def test_what_kinds_of_target_do_not_have_alike_is_left_out_where_several_are_spoken_of() -> None:
    """`lan` speaks of each kind, and LIO's number of R2Ts was counted on whatever target was there."""
    seen = _seen("r2t-write", 12.5e6)
    wanted = asked(["lan"], seen)
    at_target = {change.tunable: value for change, value in wanted.changes.items() if change.end == "target"}
    assert at_target["MaxBurstLength"] == 1 << 20 and "MaxOutstandingR2T" not in at_target
    assert wanted.untold == ("lio.max_outstanding_r2t",)
    assert any("the other end offers the same" in note for one in foretell(seen, wanted.changes) for note in one.notes)
    # Who names one kind alone says which it is, and two values of one thing are no value.
    assert asked(["lio.max_outstanding_r2t=16"], seen).untold == ()
    assert asked(["lio.max_burst=1MiB", "tgt.max_burst=64KiB"], seen).untold == ("lio.max_burst", "tgt.max_burst")


def test_an_acl_s_command_window_goes_before_its_portal_group_s_in_whatever_order_they_are_told() -> None:
    words = ["lio.cmdsn_depth=16", "lio.default_cmdsn_depth=128"]
    for told in (words, words[::-1]):
        assert dict(asked(told, _seen("r2t-write")).changes) == {("target", "cmdsn_depth"): 16}


@pytest.mark.parametrize(
    "words",
    [
        ("iscsi.max_burst=1048576", "lio.max_burst=65536"),
        ("iscsi.initial_r2t=No", "lio.initial_r2t=Yes"),
        ("lio.max_outstanding_r2t=1", "iscsi.max_outstanding_r2t=16"),
    ],
)
def test_an_offer_that_the_other_end_does_not_follow_changes_nothing(words: tuple[str, ...]) -> None:
    (one,) = _after(_seen("r2t-write", 12.5e6), *words)
    assert one.bytes_per_s == pytest.approx(one.now_bytes_per_s, rel=0.001)
    assert not any("the other end offers" in note for note in one.notes)


def test_a_session_that_carries_more_than_the_model_explains_gets_no_figure() -> None:
    """A limit to the rate that was there for a part of the look: 9.5 MB/s came where it lets 4.0 pass."""
    (one,) = _after(_seen("duty-pacing-30-read"), "block.queue_depth=16")
    assert one.now.limiter == "unknown"
    assert one.bytes_per_s is None and one.low <= one.now_bytes_per_s <= (one.high or 0.0)
    assert any("more is carried" in note for note in one.notes)


def _one_of(seen: Observation, count: int) -> Observation:
    """Return the first of `count` disks of one session that divide among them what `seen` moved."""
    ways = {
        way: attrs.evolve(one, completed=one.completed // count, moved_bytes=one.moved_bytes // count)
        for way, one in seen.disk.ways.items()
    }
    samples = tuple(attrs.evolve(one, in_flight=one.in_flight // count) for one in seen.disk.samples)
    depth = seen.disk.mean_depth and seen.disk.mean_depth / count
    disk = attrs.evolve(seen.disk, ways=ways, samples=samples, mean_depth=depth)
    return attrs.evolve(
        seen, disk=disk, session=attrs.evolve(seen.session, disks=tuple(f"sd{i}" for i in range(count)))
    )


@pytest.mark.parametrize(("name", "line"), [("untouched-read", 23.9e6), ("untouched-write", 23.9e6)])
@pytest.mark.parametrize("count", [2, 8])
def test_a_disk_of_several_is_not_promised_what_the_session_can_carry(name: str, line: float, count: int) -> None:
    (one,) = _after(_one_of(_seen(name), count), "iscsi.tcp_window=0")
    assert one.bytes_per_s is None and one.high is not None and one.latency_ms is None
    # The least is what it has, the most what the others leave of the line.
    assert one.low == pytest.approx(one.now_bytes_per_s)
    assert one.high == pytest.approx(line - (count - 1) * one.now_bytes_per_s, rel=0.02)
    assert "shared" in " ".join(one.notes)
    # All together get what one disk would get alone.
    assert one.in_step_bytes_per_s is not None
    assert count * one.in_step_bytes_per_s == pytest.approx(line, rel=0.02)


def test_half_a_window_is_half_for_all_disks_of_the_session_together() -> None:
    whole, *_ = _after(_seen("untouched-read"), "iscsi.tcp_window=65536")
    one, *_ = _after(_one_of(_seen("untouched-read"), 4), "iscsi.tcp_window=65536")
    assert one.bytes_per_s is None and one.in_step_bytes_per_s is not None
    assert 4 * one.in_step_bytes_per_s == pytest.approx(whole.bytes_per_s, rel=0.05)
    assert one.high == pytest.approx(one.now_bytes_per_s)


def test_sessions_that_use_one_nic_share_the_line() -> None:
    """In a guest, two sessions of 2.4 MB/s each got 5.5 and 6.6 of 12 MB/s without the lock."""
    seen = _seen("untouched-read")
    moved = seen.disk.ways["read"].moved_bytes / seen.disk.elapsed_s
    seen = attrs.evolve(seen, beside=BesideSeen(("sdb",), {"read": moved / 2}, {}))
    (one,) = _after(seen, "iscsi.tcp_window=0")
    assert one.bytes_per_s is None
    assert one.high == pytest.approx(23.9e6 - moved / 2, rel=0.01)
    assert one.in_step_bytes_per_s == pytest.approx(23.9e6 * 2 / 3, rel=0.01)
    assert any("sdb" in note for note in one.notes)
    # The other direction's data is in nobody's way.
    (one,) = _after(attrs.evolve(seen, beside=BesideSeen(("sdb",), {"write": moved}, {})), "iscsi.tcp_window=0")
    assert one.bytes_per_s == pytest.approx(23.9e6, rel=0.01)


def test_what_disks_together_get_of_a_line_is_said_once() -> None:
    moved = 6e6
    seen = [
        attrs.evolve(_one_of(_seen("untouched-read"), 2), device=name, beside=BesideSeen((other,), {"read": moved},
        {"read": moved})) for name, other in (("sda", "sdb"), ("sdb", "sda"))
    ]  # fmt: skip
    told = [(one, _after(one, "iscsi.tcp_window=0")) for one in seen]
    (both,) = of_one_line(told)
    assert (both.devices, both.way) == (("sda", "sdb"), "read")
    assert both.bytes_per_s == pytest.approx(23.9e6, rel=0.02)
    assert not of_one_line(told[:1])
    # By the same NIC, but alone on their paths.
    apart = [(attrs.evolve(one, beside=BesideSeen((), {}, {})), ways) for one, ways in told]
    assert not of_one_line(apart)


def test_what_goes_another_way_is_not_added_up() -> None:
    def told(device: str, rtt_ms: float, portal: str, nic: bool = True) -> tuple[Observation, list[Foretold]]:
        seen = _one_of(_seen("untouched-read"), 2)
        socket = seen.initiator.socket
        assert socket
        samples = tuple(attrs.evolve(one, rtt_ms=rtt_ms, min_rtt_ms=rtt_ms) for one in socket.samples)
        initiator = attrs.evolve(seen.initiator, socket=attrs.evolve(socket, samples=samples))
        seen = attrs.evolve(
            seen, device=device, beside=BesideSeen(("other",), {"read": 6e6}, {"read": 6e6}), target=None,
            session=attrs.evolve(seen.session, portal=portal),
            initiator=initiator if nic else attrs.evolve(initiator, nic=None),
        )  # fmt: skip
        return seen, _after(seen, "iscsi.tcp_window=0")

    # One NIC, two paths; and NICs that are not known, of which one may be each session's own.
    far = [told("sda", 20.0, "p1"), told("sdc", 80.0, "p2"), told("sdb", 21.0, "p1"), told("sdd", 79.0, "p2")]
    assert [one.devices for one in of_one_line(far)] == [("sda", "sdb"), ("sdd", "sdc")]
    unknown = [told("sda", 20.0, "p1", nic=False), told("sdb", 20.0, "p2", nic=False)]
    assert not of_one_line(unknown)


def test_others_count_by_nic_and_session() -> None:
    disks = [
        Moved("sda", "eth0", "1", {"read": 3.0}), Moved("sdb", "eth0", "1", {"read": 2.0, "write": 1.0}),
        Moved("sdc", "eth0", "2", {"read": 5.0}), Moved("sdd", "eth1", "3", {"read": 9.0}),
        Moved("sde", "eth0", "4", {}),
    ]  # fmt: skip
    found = Beside(disks).of(disks[0])
    assert found.disks == ("sdc", "sdb")
    assert (found.bytes_per_s, found.session_bytes_per_s) == ({"read": 7.0, "write": 1.0}, {"read": 2.0, "write": 1.0})
    alone = Beside(disks).of(disks[3])
    assert (alone.disks, alone.bytes_per_s["read"]) == ((), 0.0)
    assert not Beside(disks).of(disks[4]).bytes_per_s


def test_why_says_too_that_what_lifting_brings_is_shared() -> None:
    (one,) = _after(_one_of(_seen("untouched-read"), 2), "iscsi.tcp_window=0")
    assert words.gain(one) == "; lifting it would give at most 18.0 MB/s, shared with other disks"
    # What was foretold of one that is alone stays what it was.
    (alone,) = _after(_seen("untouched-read"), "iscsi.tcp_window=0")
    assert words.gain(alone).startswith("; lifting it would give about 23.9 MB/s")


def _whatif(
    monkeypatch: pytest.MonkeyPatch, seen: Sequence[Observation], *line: str
) -> tuple[int, list[tuple[object, ...]]]:
    """Return the exit code of `fabtune whatif` that sees `seen`, and what it looked with."""
    asked_for: list[tuple[object, ...]] = []

    class Seeing:
        def __init__(self, *where: object) -> None:
            asked_for.append(where)

        def over(self, _: float) -> list[Observation]:
            return [attrs.evolve(one, rate_bytes_per_s=None, rate_by="") for one in seen]

    monkeypatch.setattr(whatif, "Look", Seeing)
    monkeypatch.setattr(journal, "transactions", list)
    return main.main(["whatif", *line]), asked_for


def test_several_disks_on_the_command_line_have_a_line_for_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    others = {"read": 6e6}
    seen = [
        attrs.evolve(_one_of(_seen("untouched-read"), 2), device=name, beside=BesideSeen((other,), others, others))
        for name, other in (("sda", "sdb"), ("sdb", "sda"))
    ]
    code, _ = _whatif(monkeypatch, seen, "iscsi.tcp_window=0", "--rate", "200mbit")
    said = capsys.readouterr().out
    assert code == 5 and "shared with sdb" in " ".join(said.split())
    assert "Reads of sda, sdb together: 12.0 MB/s now; then 23.9 MB/s" in said
    _whatif(monkeypatch, seen, "iscsi.tcp_window=0", "--rate", "200mbit", "--json")
    (both,) = json.loads(capsys.readouterr().out)["together"]
    assert both["devices"] == ["sda", "sdb"] and both["bytes_per_s"] == pytest.approx(23.9e6, rel=0.02)


def test_a_look_at_one_disk_counts_what_the_others_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path, 2), monkeypatch)
    monkeypatch.setattr(sockets, "established", lambda _="": [])
    one, _ = live_sessions()
    both = [Looked("sd1", one, None), Looked("sd2", one, None)]
    monkeypatch.setattr(look, "chosen", lambda names, _: both[: len(names) or None])
    counters = [blocks.directory(disk) / "stat" for disk in ("sd1", "sd2")]
    for each in counters:
        each.write_text("0 " * 17)
    looking = look.Look(["sd1"])
    looking.prepare()
    looking.begin()
    for each in counters:
        each.write_text("10 0 8000 5 " + "0 " * 13)
    looking.stop()
    (seen,) = looking.end(None, None)
    assert seen.beside and seen.beside.disks == ("sd2",)
    assert seen.beside.bytes_per_s["read"] == seen.beside.session_bytes_per_s["read"] > 0


def test_a_rate_below_what_is_carried_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = _whatif(monkeypatch, [_seen("queue-depth-read")], "block.queue_depth=128", "--rate", "20mbit")
    said = " ".join(capsys.readouterr().out.split())
    # Without the line's rate there is no figure; that it was not believed is said.
    assert code == 5 and "as --rate says" in said and "cannot tell" in said
    assert _whatif(monkeypatch, [_seen("queue-depth-read")], "block.queue_depth=128", "--rate", "100mbit")[0] == 0


def test_a_target_near_by_is_not_on_the_line_to_one_far_away() -> None:
    far, near, other = (
        Moved(disk, "eth0", str(sid), {"read": 1e6}, rtt)
        for sid, (disk, rtt) in enumerate((("sda", 20.0), ("sdb", 0.3), ("sdc", 21.0)))
    )
    found = Beside([near, far, other]).of(far)
    assert (found.disks, found.bytes_per_s["read"]) == (("sdc",), 1e6)
    # Where the NIC is not known, only what the session carries is.
    lost = Moved("sdb", "", "2", {"read": 1.0})
    assert not Beside([Moved("sda", "", "1", {"read": 1.0}), lost]).of(lost).disks


def _unseen(seen: Observation) -> Observation:
    """Return what is seen of a session whose connection is in another network namespace, or a card's."""
    return attrs.evolve(seen, initiator=attrs.evolve(seen.initiator, socket=None, nic=None), target=None)


@pytest.mark.parametrize("name", ["depth1", "untouched-read", "wan-write"])
def test_without_a_connection_there_is_no_figure(name: str) -> None:
    seen = _unseen(_seen(name))
    for word in ("block.queue_depth=64", "iscsi.tcp_window=131072"):
        (one,) = _after(seen, word)
        assert (one.bytes_per_s, one.latency_ms, one.now.limiter) == (None, None, "unknown")
        assert one.low == 0 and any("no connection" in note for note in one.notes)
    (same,) = foretell(seen, {})
    assert same.bytes_per_s == pytest.approx(same.now_bytes_per_s)


def test_a_profile_that_needs_the_round_trip_does_not_ask_for_the_rate() -> None:
    with pytest.raises(InputError, match="round trip") as error:
        asked(["wan"], _unseen(_seen("depth1")))
    assert "--rate" not in str(error.value)


@pytest.mark.parametrize("name", sorted(_KEPT))
def test_a_host_that_tells_no_number_of_commands_is_no_limit(name: str) -> None:
    seen = _seen(name)
    seen = attrs.evolve(seen, session=attrs.evolve(seen.session, can_queue=0))
    for one in _after(seen, "iscsi.tcp_window=0"):
        assert one.now.limiter != "session-commands" and one.first.limiter != "session-commands"
    bare = attrs.evolve(seen, disk=attrs.evolve(seen.disk, samples=(), mean_depth=None, limit=None, queue={}))
    bare = attrs.evolve(bare, initiator=attrs.evolve(seen.initiator, sysctls={}), target=None, rate_bytes_per_s=None)
    assert all(one.high is None or one.high >= one.low for one in foretell(bare, {}))


def test_the_target_s_host_is_looked_at_and_that_it_says_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = attrs.evolve(
        _seen("untouched-read"), target=None, missing=("the target's end: ssh nosuchhost: no such host",)
    )
    code, looked = _whatif(
        monkeypatch, [seen], "iscsi.tcp_window=0", "--rate", "200mbit", "--target-host", "nosuchhost"
    )
    assert looked == [([], None, "nosuchhost")] and code == 1
    assert "no such host" in capsys.readouterr().out
    there = _seen("untouched-read")
    assert _whatif(monkeypatch, [there], "iscsi.tcp_window=0", "--rate", "200mbit", "--target-host", "there")[0] == 0


def test_the_target_s_end_alone_foretells_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["whatif", "wan", "--end", "target"]) == 2
    assert "--end" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "end"), [("loss-read", "target"), ("loss-write", "initiator")])
@pytest.mark.parametrize("algorithm", ["bbr", "reno"])
def test_what_another_congestion_control_makes_of_losses_is_an_interval(name: str, end: str, algorithm: str) -> None:
    (one,) = _after(_seen(name), f"{end}:tcp.congestion_control={algorithm}")
    assert one.bytes_per_s is None and one.high is not None
    assert one.low <= one.now_bytes_per_s < one.high <= 23.92e6
    assert any("losses" in note for note in one.notes)


@pytest.mark.parametrize("algorithm", ["bogus", "BBR", "vegas", "dctcp"])
@pytest.mark.parametrize("name", ["loss-read", "untouched-read"])
def test_of_a_congestion_control_that_the_model_does_not_know_nothing_is_foretold(name: str, algorithm: str) -> None:
    (one,) = _after(_seen(name), f"target:tcp.congestion_control={algorithm}")
    assert one.bytes_per_s is None and one.low == 0
    assert any(f"'{algorithm}'" in note and "bbr, cubic" in note for note in one.notes)


@pytest.mark.parametrize(("kernel", "share"), [("6.12.117+deb13-amd64", 0.745), ("6.6.0", 0.745)])
def test_a_window_that_holds_next_is_the_kernel_s_share_of_its_buffer(kernel: str, share: float) -> None:
    (one,) = _after(_narrow(kernel), "iscsi.tcp_window=0")
    assert one.first.limiter == "receive-window"
    assert one.bytes_per_s == pytest.approx(share * (1 << 20) / 0.02, rel=0.05)


@pytest.mark.parametrize("kernel", ["6.1.0-28-amd64", "5.10.0", "6.5.0", "odd"])
def test_before_linux_6_6_the_share_of_the_buffer_is_between_half_and_three_quarters(kernel: str) -> None:
    (one,) = _after(_narrow(kernel), "iscsi.tcp_window=0")
    assert one.bytes_per_s is None and one.high is not None
    assert one.low == pytest.approx(0.5 * (1 << 20) / 0.02, rel=0.05)
    assert one.high == pytest.approx(0.75 * (1 << 20) / 0.02, rel=0.05)
    assert any(kernel in note for note in one.notes)
    # Of one that is not changed, what it carries is seen.
    (same,) = foretell(_narrow(kernel), {})
    assert same.bytes_per_s == pytest.approx(same.now_bytes_per_s)


def _narrow(kernel: str) -> Observation:
    """Return a look at a locked window, at 1 Gb/s, of a host whose other windows may be 1 MiB of buffer."""
    seen = _seen("untouched-read", 125e6)
    limits = {**seen.initiator.sysctls, "net.ipv4.tcp_rmem": "4096 131072 1048576"}
    assert seen.target
    far = attrs.evolve(seen.target, sysctls={**seen.target.sysctls, "net.ipv4.tcp_wmem": "4096 131072 67108864"})
    return attrs.evolve(seen, initiator=attrs.evolve(seen.initiator, kernel=kernel, sysctls=limits), target=far)


@pytest.mark.parametrize("name", sorted(_KEPT))
def test_what_limits_now_is_what_why_says(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = _seen(name)
    rate = f"{8 * (seen.rate_bytes_per_s or 0):.0f}bit"
    _whatif(monkeypatch, [seen], "iscsi.tcp_window=0", "--rate", rate, "--json")
    ways = {one["way"]: one for one in json.loads(capsys.readouterr().out)["devices"][0]["ways"]}
    for one in judged(lift.with_known_rate([seen], float(rate.removesuffix("bit")))[0]):
        way = ways[one.way]
        assert way["now_limiter"] == one.first.limiter
        if way["bytes_per_s"] == pytest.approx(way["now_bytes_per_s"], rel=0.01):
            assert way["limiter"] == one.first.limiter


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("iscsi.tcp_windo=0", "did you mean 'iscsi.tcp_window'?"),
        ("foo:iscsi.tcp_window=1", "found the end 'foo', expected one of"),
        ("iscsi.cmds_max=7e9", "iscsi.cmds_max=7e9"),
        ("./nosuch.toml", "nosuch.toml"),
        ("wann sda", "wann: no such block device, and no profile (did you mean 'wan'?); profiles: "),
        ("wan wann", "wann: no such block device, and no profile"),
        ("sda", "whatif sda: no profile and no NAME=VALUE"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_a_look_that_takes_ten_seconds(
    line: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hosttree.enter(hosttree.make(tmp_path, 1), monkeypatch)
    (tmp_path / "sys/block/sda").mkdir(parents=True, exist_ok=True)
    (tmp_path / "sys/class/block/sda").mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(whatif, "Look", lambda *_: pytest.fail("it looked"))
    assert main.main(["whatif", *line.split()]) == 2
    assert says in capsys.readouterr().err

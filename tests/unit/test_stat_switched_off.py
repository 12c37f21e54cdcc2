# SPDX-License-Identifier: GPL-2.0-or-later
"""fabstat that is loaded and counts nothing (enabled=N): nobody takes its silence for an answer."""

import json
from pathlib import Path

import pytest
from test_stat import reading
from test_stat_target import served

import fabtune.cli.stat
from fabtune.cli.main import main
from fabtune.errors import CannotTellError, ExitCode, FabtuneError
from fabtune.export import gather
from fabtune.host import tree
from fabtune.measure import disk_look, request_times, watch
from fabtune.measure.disk_look import DiskLook, counted_between, fabstat_now
from fabtune.stat import Snapshot, Waiting, parse, parse_target
from fabtune.stat.stuck import parse_stuck

_READ = "100 0 8000 50 0 0 0 0 0 0 0 0 0 0 0 0 0\n", "10100 0 20488000 90050 0 0 0 0 32 0 0 0 0 0 0 0 0\n"


def off(time_s: float = 2.0) -> Snapshot:
    return parse(reading([1000] * 5, time_ns=round(time_s * 1e9)).replace("enabled=1", "enabled=0"))


@pytest.fixture(autouse=True)
def switched_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let every reader find the module so, with an empty list of requests."""
    empty = parse_stuck("# fabstat-stuck 1\nlist time_ns=9 threshold_ns=60000000000 requests=0\n")
    for module in (fabtune.cli.stat, watch, gather):
        monkeypatch.setattr(module, "stuck", lambda: empty)
    for module in (fabtune.cli.stat, watch, gather, disk_look, request_times):
        monkeypatch.setattr(module, "snapshot", off)
    monkeypatch.setattr(watch, "LOADED", tmp_path)
    # Whatever waits on the computer that the tests run on.
    monkeypatch.setattr(fabtune.cli.stat, "unsent", lambda *asked: Waiting())


def test_an_empty_list_is_no_word_of_what_is_under_way(capsys: pytest.CaptureFixture[str]) -> None:
    """It was "no request is older than 60 s", on a host that hung."""
    assert main(["stuck"]) == ExitCode.CANNOT_TELL
    said = capsys.readouterr().out
    assert "Nothing is being counted" in said and "no request" not in said
    assert main(["stuck", "--json"]) == ExitCode.CANNOT_TELL
    assert json.loads(capsys.readouterr().out)["enabled"] is False


def test_a_load_that_is_judged_by_requests_that_hang_does_not_begin() -> None:
    with pytest.raises(FabtuneError, match="find requests that hang, but nothing is being counted: .*enabled=N"):
        watch.check_judge(60.0)


def test_the_metrics_count_no_stuck_requests_and_say_why() -> None:
    found = gather.Gatherer().gather()
    assert found.stuck is None and "switched off" in found.problems["stuck"]


def test_a_look_takes_the_block_layer_s_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """10,000 reads at depth 32 were none, and no depth, by a module that was loaded and off."""
    monkeypatch.setattr(tree, "SYS", tmp_path)
    (tmp_path / "block/sda").mkdir(parents=True)
    look, stat = DiskLook("sda"), tmp_path / "block/sda/stat"
    stat.write_text(_READ[0])
    look.begin()
    stat.write_text(_READ[1])
    look.sample(5.0)
    look.stop()
    assert fabstat_now()[0] is None and "switched off" in fabstat_now()[1]
    on = parse(reading([1000] * 5, time_ns=12 * 10**9))
    for pair in ((off(2), off(12)), (off(2), on)):
        seen = look.seen(counted_between(*pair), 10.0)
        assert not seen.by_fabstat and seen.ways["read"].completed == 10_000 and seen.mean_depth == 32
    with pytest.raises(CannotTellError, match="nothing is being counted"):
        request_times.check_histograms()


def test_an_interval_that_began_while_it_was_off_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = tmp_path / "a", tmp_path / "b"
    before.write_text(reading([1000]).replace("enabled=1", "enabled=0"))
    after.write_text(reading([1000] * 5, time_ns=3 * 10**9))
    assert main(["stat", "--diff", str(before), str(after)]) == ExitCode.DONE
    assert "Not all of this interval was counted" in " ".join(capsys.readouterr().out.split())
    assert main(["stat", "--json", "--diff", str(before), str(after)]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)["counted"] is False


@pytest.mark.parametrize("off", ["wanted", "target"])
def test_what_a_target_served_while_it_was_not_counted_is_said_to_be_missing(
    off: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Saved, switched on, saved again: rates of the whole interval, too low, and not a word."""
    before, after = tmp_path / "a", tmp_path / "b"
    before.write_text(served(10).replace(f" {off}=1 ", f" {off}=0 "))
    after.write_text(served(110, time_ns=3 * 10**9))
    asked = ["stat", "--target", "--diff", str(before), str(after)]
    assert main(asked) == ExitCode.DONE
    assert "Not all of this interval was counted" in " ".join(capsys.readouterr().out.split())
    assert main([*asked, "--json"]) == ExitCode.DONE
    told = json.loads(capsys.readouterr().out)
    assert told["counted"] is False and told["module"]["wanted"] is True


def since(text: str, ns: int) -> str:
    """The reading `text` of a module that tells since when it has counted without a break."""
    return text.replace(" untracked=0", f" untracked=0 counting_since_ns={ns}", 1)


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, dict[str, object]]:
    """Return what the verb says, and its JSON."""
    assert main(words) == ExitCode.DONE
    told = " ".join(capsys.readouterr().out.split())
    assert main([*words, "--json"]) == ExitCode.DONE
    return told, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("since_ns", "told", "counted_s"),
    [
        (2_750_000_000, "fabstat has counted without a break only in its last 0.25 s", 0.25),
        (1_000_000_000, "", 1.0),
        (2_000_000_000, "", 1.0),
    ],
)
@pytest.mark.parametrize("target", [False, True])
def test_a_break_between_two_readings_is_said(
    target: bool, since_ns: int, told: str, counted_s: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Switched off and on again between two readings, all of it passed for counted: rates too low, and not a word."""

    def make(reads: int, time_ns: int) -> str:
        return served(reads, time_ns=time_ns) if target else reading([1000] * reads, time_ns=time_ns)

    before, after = tmp_path / "a", tmp_path / "b"
    before.write_text(since(make(10, 2 * 10**9), 10**9))
    after.write_text(since(make(50, 3 * 10**9), since_ns))
    words = ["stat", *(["--target"] if target else []), "--diff", str(before), str(after)]
    shown, data = said(words, capsys)
    assert ("Not all of this interval was counted" in shown) is bool(told) and told in shown
    assert (data["counted"], data["counted_s"]) == (not told, counted_s)
    after.write_text(after.read_text().replace(f"since_ns={since_ns}", "since_ns=1x"))
    assert main(words) == ExitCode.USAGE and "take it again" in capsys.readouterr().err


def test_what_has_been_counted_since_load_is_all_of_it_or_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that was off, or had been, said `counted` of all the time since it was loaded."""
    hour = 3600 * 10**9
    monkeypatch.setattr(fabtune.cli.stat, "slowest", lambda: None)

    def now(text: str) -> tuple[str, dict[str, object]]:
        monkeypatch.setattr(fabtune.cli.stat, "snapshot", lambda: parse(text))
        monkeypatch.setattr(fabtune.cli.stat, "target_snapshot", lambda: parse_target(text))
        return said(["stat", "--target"] if text.startswith("# fabstat-target") else ["stat"], capsys)

    for text in (reading([1000], time_ns=hour), served(10, time_ns=hour)):
        shown, data = now(since(text, hour - 90 * 10**9))
        assert "Not all of this interval was counted" in shown and "only in its last 90 s" in shown
        assert (data["counted"], data["counted_s"]) == (False, 90)
        # It takes a moment to attach the probes.
        shown, data = now(since(text, 10**9))
        assert "Not all" not in shown and data["counted"] is True
        for off in (since(text, 0).replace("enabled=1", "enabled=0"), text.replace("enabled=1", "enabled=0")):
            shown, data = now(off)
            assert "Nothing is being counted" in shown and (data["counted"], data["counted_s"]) == (False, 0)
        # Older modules do not tell.
        shown, data = now(text)
        assert "Not all" not in shown and (data["counted"], data["counted_s"]) == (True, None)


def test_a_disk_of_which_requests_were_lost_sight_of_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only thing that had happened to it was that, so that it was left out."""
    before, after = tmp_path / "a", tmp_path / "b"
    before.write_text(reading([1000]))
    after.write_text(reading([1000], time_ns=3 * 10**9).replace("forgotten=0", "forgotten=7"))
    shown, data = said(["stat", "--diff", str(before), str(after)], capsys)
    assert "no requests seen" not in shown and " sda " in shown and "no memory to count it: sda 7" in shown
    assert data["devices"][0]["forgotten"] == 7  # type: ignore[index]


def test_looks_take_nothing_from_an_interval_with_a_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both readings had been taken while it counted, and the block layer had the rest."""
    first, last = since(reading([1000] * 5), 10**9), since(reading([1000] * 9, time_ns=12 * 10**9), 11 * 10**9)
    assert not counted_between(parse(first), parse(last))
    assert counted_between(parse(first), parse(last.replace(str(11 * 10**9), str(10**9))))
    times = request_times.RequestTimes(0)
    readings = iter((first, last))
    monkeypatch.setattr(request_times, "snapshot", lambda: parse(next(readings)))
    times.sample(["sda"], 0)
    with pytest.raises(CannotTellError, match="switched off for a while"):
        times.sample(["sda"], 1)


@pytest.mark.parametrize("gone", ["enabled", "wanted", "target"])
def test_what_was_served_before_it_ended_is_not_contradicted(
    gone: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "LIO is not loaded: nothing is being served" stood above rows, and not that only a part had been counted."""
    before, after = tmp_path / "a", tmp_path / "b"
    before.write_text(served(10))
    after.write_text(served(110, time_ns=3 * 10**9).replace(f" {gone}=1 ", f" {gone}=0 "))
    shown, data = said(["stat", "--target", "--diff", str(before), str(after)], capsys)
    assert "nothing is being served" not in shown and " read 100 " in shown
    assert "Not all of this interval was counted: the figures are of what was counted before." in shown
    if gone == "target":
        assert "(LIO, target_core_mod) is not loaded, or its tracepoints could not be attached" in shown
    assert (data["counted"], data["counted_s"]) == (False, 0)
    # Where there is nothing below, nothing is said of it.
    after.write_text(after.read_text().split("nexus ")[0])
    before.write_text(before.read_text().split("nexus ")[0])
    shown, _ = said(["stat", "--target", "--diff", str(before), str(after)], capsys)
    assert "figures" not in shown and "no commands seen" in shown


def test_what_was_counted_before_it_was_switched_off_is_not_contradicted_and_lacks_no_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "Nothing is being counted" was all that was said above rows: not what they lack, nor what had vanished."""
    before, after = tmp_path / "a", tmp_path / "b"
    text = reading([1000])
    lost = text[text.index("device id=") :].replace("id=4", "id=9").replace("disk=sda", "disk=sdz")
    before.write_text(text + lost)
    off = reading([1000] * 5, time_ns=3 * 10**9).replace("enabled=1", "enabled=0").replace("scsi=1", "scsi=0")
    after.write_text(off.replace("memory_refused=0", "memory_refused=7"))
    shown, _ = said(["stat", "--diff", str(before), str(after)], capsys)
    assert "Nothing is being counted" in shown and "the figures are of what was counted before." in shown
    assert "1 disks of the first reading have gone" in shown and "got no memory 7 times" in shown
    assert "refusals of SCSI devices are not seen" not in shown

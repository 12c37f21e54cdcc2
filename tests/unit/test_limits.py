# SPDX-License-Identifier: GPL-2.0-or-later
"""What limited a load goes with its run record, and stands first in its pages."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from run_records import make_record

from fabtune.errors import FabtuneError, InputError
from fabtune.measure import load_look
from fabtune.measure.load_look import LoadLook
from fabtune.measure.measured import Span
from fabtune.model import runrecord, typed
from fabtune.model.observation import Observation
from fabtune.model.runrecord import PathTold, RunRecord
from fabtune.report import answers, demo, reasons, runs, suite
from fabtune.why.summing_up import limits_of

_KEPT: dict[str, object] = json.loads(
    gzip.decompress((Path(__file__).parent / "data/observations.json.gz").read_bytes())
)


def _seen(name: str) -> Observation:
    seen = typed.STRICT.read(Observation, _KEPT[name], name)
    return attrs.evolve(seen, rate_bytes_per_s=200e6 / 8, rate_by="--rate")


def _record(name: str, label: str, pair: int = 0) -> RunRecord:
    taken = make_record(12.0, label, pair)
    return attrs.evolve(taken, steps=(attrs.evolve(taken.steps[0], limits=tuple(limits_of(_seen(name)))),), file=label)


def test_a_record_has_the_verdict_the_shares_and_what_shows_them_and_reads_them_back() -> None:
    taken = _record("untouched-read", "default")
    (found,) = taken.steps[0].limits
    assert "by the initiator's locked receive window (100 %" in found.verdict
    assert found.shares[0].limiter == "receive-window" and found.shares[0].evidence
    assert sum(share.share for share in found.shares) == pytest.approx(1, abs=0.01)
    raw = json.loads(json.dumps(runrecord.as_json(taken)))
    assert runrecord.read(raw, "here").steps[0].limits == (found,)
    assert runs.as_json(taken)["steps"] != runs.as_json(make_record(12.0))["steps"]


def test_a_record_without_a_look_has_no_key_for_it_and_reads_as_ever() -> None:
    raw = runrecord.as_json(make_record(12.0))
    assert "limits" not in str(raw)
    assert runrecord.read(raw, "here").steps[0].limits == ()


def test_what_cannot_be_told_apart_is_kept_as_such() -> None:
    (found,) = limits_of(attrs.evolve(_seen("maxrate-read"), target=None))
    assert "pacing" in found.shares[0].among and not found.both_ends
    taken = make_record(1.0)
    taken = attrs.evolve(taken, steps=(attrs.evolve(taken.steps[0], limits=(found,)),))
    assert reasons.sentences(taken) == [found.verdict] and "cannot tell" in found.verdict


def test_the_first_screen_says_what_limits_before_and_after_in_a_sentence_each() -> None:
    records = [_record("untouched-read", "default"), _record("wan-read", "wan"), _record("wan-read", "wan", 1)]
    (answer,) = reasons.of_limiters(records, "xdd")
    before, after = answer.text.split("\n")
    assert before.startswith("default: Reads of sda are limited to")
    assert after.startswith("wan: Reads of sda fill the line") and after.endswith("so in 2 of 2 looks.")
    page = suite.render(records, [], [], ["fabtune", "report"])
    assert page.index("Did it help?") < page.index("What limits?")
    assert "What limited each load" in page and "rwnd_limited 100 % of the time" in page


def test_the_first_screen_names_what_limits_another_disk_another_step_and_the_fewer_looks() -> None:
    def looked(name: str, device: str, step: str) -> RunRecord:
        taken = _record(name, "wan")
        limits = tuple(limits_of(attrs.evolve(_seen(name), device=device)))
        return attrs.evolve(taken, steps=(attrs.evolve(taken.steps[0], name=step, limits=limits),))

    def said(*records: RunRecord) -> list[str]:
        (answer,) = reasons.of_limiters(records, "xdd")
        return answer.text.split("\n")

    by_disk = said(looked("untouched-read", "sda", "run"), looked("loss-read", "sdb", "run"))
    assert by_disk[0].startswith("wan: Reads of sda are limited") and by_disk[0].endswith("so in 1 of 2 looks (sda).")
    assert by_disk[1].startswith("wan: Reads of sdb are limited") and by_disk[1].endswith("so in 1 of 2 looks (sdb).")
    by_step = said(looked("untouched-read", "sda", "4k"), looked("untouched-read", "sda", "64k"))
    assert len(by_step) == 1 and by_step[0].startswith("wan: 64k: Reads of sda")
    assert by_step[0].endswith("so in 2 of 2 looks (4k, 64k).")
    fewer = said(*(looked(name, "sda", "run") for name in ("untouched-read", "loss-read", "untouched-read")))
    assert [one.partition("; so in ")[2] for one in fewer] == ["2 of 3 looks.", "1 of 3 looks."]
    assert "lost on the path" in fewer[1]


def test_the_first_screen_says_at_which_point_a_load_was_limited_to_what() -> None:
    """Three looks at 20 ms and 12.8 MB/s and three at 100 ms and 2.5 were "12.8 MB/s; so in 6 of 6 looks"."""

    def looked(rtt_ms: float, rate: float, seed: int) -> RunRecord:
        taken = attrs.evolve(_record("untouched-read", "untouched"), path=PathTold(rtt_ms / 1e3, 1.25e8))
        (limits,) = taken.steps[0].limits
        verdict = limits.verdict.replace(f"{limits.bytes_per_s / 1e6:.1f} MB/s", f"{rate:.1f} MB/s")
        limits = attrs.evolve(limits, bytes_per_s=rate * 1e6, verdict=verdict)
        settings: Any = {"settings": {"profile": "untouched", "rtt_ms": rtt_ms, "seed": seed}}
        return attrs.evolve(taken, environment=settings, steps=(attrs.evolve(taken.steps[0], limits=(limits,)),))

    records = [looked(*point, seed) for point in ((20.0, 12.8), (100.0, 2.5)) for seed in (1, 2, 3)]
    (answer,) = reasons.of_limiters(records, "xdd")
    assert answer.text.startswith("untouched, 20 ms: Reads of sda are limited to 12.8 MB/s by the initiator's")
    assert answer.text.endswith("; so in 3 of 3 looks; by the same at 100 ms, 2.5 MB/s, in 3 of 3 looks.")
    assert "6 looks" not in answer.text
    many = [looked(10.0 * step, 100.0 / step, 1) for step in range(1, 13)]
    (answer,) = reasons.of_limiters(many, "xdd")
    assert answer.text.endswith("; and at 7 more points.") and answer.text.count("by the same") == 1


def _looked_at(rate: float, own: float) -> RunRecord:
    """A load of `own` MB/s, of which a look saw a part that was faster or slower."""
    taken = attrs.evolve(make_record(own, "untouched", 0))
    (limits,) = limits_of(_seen("untouched-read"))
    verdict = limits.verdict.replace(f"{limits.bytes_per_s / 1e6:.1f} MB/s", f"{rate:.1f} MB/s")
    limits = attrs.evolve(limits, bytes_per_s=rate * 1e6, verdict=verdict)
    return attrs.evolve(taken, steps=(attrs.evolve(taken.steps[0], limits=(limits,)),))


def test_the_rate_in_a_verdict_is_that_of_the_table_beside_it() -> None:
    """ "Limited to 81.0 MB/s" stood below a table with 80.6."""
    record = _looked_at(81.0, 80.6)
    (said,) = reasons.sentences(record)
    assert said.startswith("Reads of sda are limited to 80.6 MB/s by the initiator's")
    (answer,) = reasons.of_limiters([record, _looked_at(81.2, 80.5)], "xdd")
    assert "limited to 80.6 MB/s" in answer.text
    # Of a file in the page cache the load's rate is not the disk's.
    (said,) = reasons.sentences(_looked_at(81.0, 400.0))
    assert "limited to 81.0 MB/s" in said


def test_the_rate_is_the_load_s_own_where_one_of_two_disks_was_looked_at_alone() -> None:
    record = _looked_at(81.0, 80.6)
    (limits,) = record.steps[0].limits
    two = attrs.evolve(record.steps[0], limits=(limits, attrs.evolve(limits, device="sdb")))
    assert all("81.0 MB/s" in one for one in reasons.sentences(attrs.evolve(record, steps=(two,))))


def test_the_first_screen_says_how_many_runs_nobody_looked_at() -> None:
    """One look of three runs was "in 1 of 1 looks"."""
    unseen = [make_record(12.0, "default", pair) for pair in (1, 2)]
    (answer,) = reasons.of_limiters([_record("untouched-read", "default"), *unseen], "xdd")
    assert answer.text.endswith("; so in 1 of 1 looks, 2 more runs were not looked at.")

    def at(rtt_ms: float, record: RunRecord) -> RunRecord:
        return attrs.evolve(record, path=PathTold(rtt_ms / 1e3, 1.25e8))

    looked = [at(rtt_ms, _record("untouched-read", "default")) for rtt_ms in (20.0, 100.0)]
    (answer,) = reasons.of_limiters([*looked, at(100.0, unseen[0])], "xdd")
    assert "; so in 1 of 1 looks; by the same at 100 ms" in answer.text
    assert answer.text.endswith("in 1 of 1 looks, 1 more run was not looked at.")


def test_records_without_a_look_say_nothing_of_limits() -> None:
    page = suite.render([make_record(12.0)], [], [], ["fabtune", "report"])
    assert "What limited" not in page


def _first_screen(page: str) -> str:
    return page.partition("<h2")[0]


def test_the_verdict_stands_before_what_limits_and_of_many_labels_a_few_lines_are_shown() -> None:
    """Six labels' limits stood before the verdict: 2210 pixels of them on a screen of 390."""
    labels = ("wan", "fasterdata", "bpftune", "network-throughput", "sandia")
    records = [
        _record(name, label, pair)
        for pair in range(2)
        for label in (*labels, "untouched")
        for name in ("wan-read", "untouched-read", "loss-read")
    ]
    page = suite.render(records, [], [], ["fabtune", "report"])
    first = _first_screen(page)
    assert first.index("Did it help?") < first.index("What limits?")
    limits = first.partition("What limits?")[2].partition("</div>")[0]
    lines = limits.split("<dd>")[1:]
    assert [one.partition(":")[0] for one in lines] == ["untouched", *labels[:3], "And 14 more"]
    assert '<a href="#what-limited">What limited</a>' in lines[-1] and 'id="what-limited"' in page


def test_the_demo_of_several_profiles_shows_the_verdict_first_and_links_to_why(tmp_path: Path) -> None:
    names = ("untouched", "wan", "fasterdata", "bpftune", "network-throughput", "sandia")
    points: Any = [
        {
            "profile": profile, "rtt_ms": rtt_ms, "op": op, "mb_per_s": 10.0, "bound_mb_per_s": 100.0,
            "fraction_of_bound": 0.1, "limits": f"{op}s are limited",
        }
        for profile in names for rtt_ms in (20, 100) for op in ("read", "write")
    ]  # fmt: skip
    first = _first_screen(demo.write(points, {}, [], tmp_path).read_text())
    asked = ("Which is best supported?", "Did it help?", "By how much?", "How sure?", "What limits now?")
    places = [first.index(question) for question in (*asked, "Why was it slow?", "What limits after?")]
    assert places == sorted(places)
    told = {one.question: one for one in demo.answers(points)}
    assert told["Why was it slow?"].text.count("\n") + told["What limits after?"].text.count("\n") + 2 == 4
    assert first.count('<a href="#why-it-was-slow">Why it was slow</a></dd>') == 2 and "And 8 more: <a" in first
    assert answers.as_lines(demo.answers(points))[-1] == "And 8 more: Why it was slow, on the page."


def test_the_demo_says_that_it_is_fast_before_why_it_was_slow(tmp_path: Path) -> None:
    told = {"untouched": "Reads of sda are limited by a window", "wan": "Reads of sda fill the line"}
    points: Any = [
        {
            "profile": profile, "rtt_ms": rtt_ms, "op": "read", "mb_per_s": 10.0, "bound_mb_per_s": 100.0,
            "fraction_of_bound": 0.1, "limits": f"{sentence} at {rtt_ms}",
        }
        for profile, sentence in told.items() for rtt_ms in (20, 100)
    ]  # fmt: skip
    text = demo.write(points, {}, [], tmp_path).read_text()
    assert text.index("Did it help?") < text.index("Why was it slow?") < text.index("What limits after?")
    assert text.rindex("limited by a window at 20") > text.index("How this was made") - 4000
    assert "Why it was slow" in text


class _Look:
    """A look that says what it was asked, and fails where it is told to."""

    disks = 1

    def __init__(self, names: Sequence[str], target_netns: str | None) -> None:
        self.asked: list[str] = []

    def begin(self) -> None:
        self.asked.append("begin")

    def sample(self) -> None:
        self.asked.append("sample")

    def prepare(self) -> None:
        self.asked.append("prepare")

    def stop(self) -> None:
        self.asked.append("stop")

    def give_up(self) -> None:
        self.asked.append("give up")

    def end(self, first: object, last: object) -> list[Observation]:
        self.asked.append("end")
        return [_seen("untouched-read")]


def _looking(monkeypatch: pytest.MonkeyPatch, seconds: Sequence[float]) -> tuple[LoadLook, _Look]:
    clock = iter(seconds)
    monkeypatch.setattr("fabtune.measure.load_look.time.monotonic", lambda: next(clock))
    made: list[_Look] = []

    def make(names: Sequence[str], target_netns: str | None) -> _Look:
        made.append(_Look(names, target_netns))
        return made[0]

    monkeypatch.setattr(load_look, "Look", make)
    return LoadLook("sda", "target", 3.0, 0.25), made[0]


def test_the_ramp_is_not_looked_at_and_the_end_is_read_before_the_load_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    # The measured part is 12 to 15; the look ends with the sample at 14.7.
    looking, look = _looking(monkeypatch, [11, 12.1, 13, 14.7, 14.9, 15.5])
    looking.start(12.0)
    for _ in range(5):
        looking.sample()
    assert look.asked == ["prepare", "begin", "sample", "sample", "sample", "stop"]
    (found,) = looking.limits(25e6, None)
    assert "receive window" in found.verdict
    assert look.asked.count("end") == 1


def test_a_load_that_ends_early_is_judged_by_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    looking, look = _looking(monkeypatch, [12.1, 12.5])
    looking.start(12.0)
    looking.sample()
    assert looking.limits(25e6, None)
    assert look.asked == ["prepare", "begin", "sample", "sample", "stop", "end"]


def test_a_load_that_makes_its_files_first_is_looked_at_when_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    looking, look = _looking(monkeypatch, [11, 13, 15, 22.1, 24.7, 25.5])
    for _ in range(3):
        looking.start(None)
        looking.sample()
    assert looking.waits and look.asked == ["prepare"]
    looking.start(22.0)
    looking.sample()
    looking.sample()
    assert not looking.waits and look.asked == ["prepare", "begin", "sample", "sample", "stop"]
    assert looking.limits(25e6, None, Span(22.0, 25.0))


def test_of_a_load_that_was_looked_at_while_it_made_its_files_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    looking, look = _looking(monkeypatch, [12.1, 13, 14.9, 24])
    looking.start(12.0)
    for _ in range(3):
        looking.sample()
    # It was to be measured from 12 to 15, and made its files until then.
    assert looking.limits(25e6, None, Span(20.0, 23.0)) == ()
    assert look.asked[-1] == "give up"
    looking, _ = _looking(monkeypatch, [12.1, 13, 14.9, 24])
    looking.start(12.0)
    for _ in range(3):
        looking.sample()
    # A program that took its time to start is no such load.
    assert looking.limits(25e6, None, Span(12.4, 15.4))


def test_a_load_on_a_disk_of_no_session_is_measured_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(names: Sequence[str], target_netns: str | None) -> _Look:
        raise InputError("no iSCSI session is logged in on this host")

    monkeypatch.setattr(load_look, "Look", none)
    looking = LoadLook("nullb0", None, 3.0, 0.25)
    # Then fio need not be asked since when it measures.
    assert not looking.waits
    looking.start(12.0)
    looking.sample()
    assert looking.limits(None, None) == ()


@pytest.mark.parametrize("seconds", [[17.5, 17.6], [16.7, 17.5, 18.1]])
def test_of_a_look_that_has_seen_little_of_the_measured_part_nothing_is_said(
    seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy host the first sample came when the look was to end: nothing moved in no time, a blocked session."""
    looking, look = _looking(monkeypatch, seconds)
    looking.start(12.0)
    for _ in seconds[1:]:
        looking.sample()
    assert looking.limits(25e6, None, Span(12.0, 18.0)) == ()
    assert look.asked[-1] == "give up"


def test_a_look_that_begins_late_in_a_short_part_is_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where fio waited for a lost packet before it said when it measures: 0.88 of 2 s, in the virtual lab."""
    looking, _ = _looking(monkeypatch, [15.13, 15.5, 16.01])
    looking.start(14.33)
    for _ in range(2):
        looking.sample()
    assert looking.limits(25e6, None, Span(14.33, 16.33))


def test_a_look_that_fails_fails_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    looking, look = _looking(monkeypatch, [12.1, 12.5])

    def fail() -> None:
        raise FabtuneError("inet_diag: gone")

    monkeypatch.setattr(look, "begin", fail)
    looking.start(12.0)
    looking.sample()
    looking.sample()
    assert looking.limits(None, None) == ()


def test_a_look_that_is_given_up_lets_go_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    looking, look = _looking(monkeypatch, [12.1, 12.5])
    looking.start(12.0)
    looking.sample()
    looking.give_up()
    assert look.asked == ["prepare", "begin", "sample", "give up"]
    assert looking.limits(25e6, None) == ()

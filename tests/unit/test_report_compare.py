# SPDX-License-Identifier: GPL-2.0-or-later
"""Records against records: pairing, invalid runs, what differed, exit codes, and the order of runs."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from run_records import EMULATED, make_record, with_fio, with_latency, with_step

from fabtune.cli.main import main
from fabtune.errors import ExitCode, InputError
from fabtune.measure import interleave, recordfile
from fabtune.model.judgement import Verdict
from fabtune.model.offered import Replayed
from fabtune.model.outputs import FioOutput
from fabtune.model.runrecord import RunRecord
from fabtune.report import compare, suite, verdict_table


def sides(ratio: Any, pairs: Any = 8) -> Any:
    drift = [1 + 0.01 * (pair % 3) for pair in range(pairs)]
    a = [make_record(100 * factor, "default", pair) for pair, factor in enumerate(drift)]
    b = [make_record(100 * ratio * (factor + 0.002), "wan", pair) for pair, factor in enumerate(drift)]
    return a, b


def verdicts(outcome: compare.Comparison) -> list[Verdict]:
    return [row.judgement.verdict for row in outcome.rows]


def test_interleaved_runs_are_paired() -> None:
    outcome = compare.compare(*sides(1.10))
    throughput = outcome.rows[0]
    assert throughput.primary and throughput.sides.paired
    assert throughput.judgement.ratio == pytest.approx(1.102, abs=0.001)
    assert (outcome.a, outcome.b) == ("default", "wan")
    assert verdicts(outcome) == [Verdict.BETTER] * 3
    assert [row.metric.key for row in outcome.rows] == ["read_mb_per_s", "read_p50_ms", "read_p99_ms"]
    assert outcome.exit_code == ExitCode.DONE


def test_a_regression_has_its_exit_code() -> None:
    assert compare.compare(*sides(0.90)).exit_code == ExitCode.DRIFT
    assert compare.compare(*sides(1.0)).exit_code == ExitCode.DONE
    assert compare.compare(*sides(0.90, pairs=2)).exit_code == ExitCode.CANNOT_TELL


def test_runs_without_a_session_are_not_paired_and_it_is_said() -> None:
    a = [make_record(100 + n) for n in range(8)]
    b = [make_record(150 + n, "wan") for n in range(8)]
    outcome = compare.compare(a, b)
    assert not outcome.rows[0].sides.paired
    assert "not interleaved" in verdict_table.notes(outcome)[0]


def test_an_invalid_run_takes_its_pair_along_and_is_named() -> None:
    a, b = sides(1.10)
    a[2] = make_record(500, "default", 2, complete=False, start=77.0)
    outcome = compare.compare(a, b)
    assert outcome.rows[0].judgement.n == 7
    assert outcome.invalid == (("xdd started at 77", "incomplete: fio ended"),)


def test_a_run_that_breaks_a_law_is_not_used() -> None:
    a, b = sides(1.10)
    # One that says something new is; one with a stream that did nothing cannot be right.
    b[1] = with_latency(b[1], 2)
    (busy,) = b[0].steps[0].document.jobs
    b[0] = with_step(b[0], fio=FioOutput((busy, attrs.evolve(busy, read=busy.write))))
    outcome = compare.compare(a, b)
    assert outcome.rows[0].judgement.n == 7
    assert "every stream of the load" in outcome.invalid[0][1]


def around_their_bound(**changes: Any) -> tuple[list[RunRecord], list[RunRecord]]:
    """Runs of a load that its path bounds to 19.67 MB/s, as that is told; wan is 1 % faster, and in part beyond."""
    path = {"rtt_ms": 0.2, "rate_bytes_per_s": 1.25e9}
    told: dict[str, Any] = {"parameters": {"block_bytes": 4000}, "path": path, **changes}
    a, b = (
        [make_record(factor * 19.6 * (1 + spread * (number - 9.5) / 10), label, **told) for number in range(20)]
        for label, factor, spread in (("untouched", 1.0, 0.004), ("wan", 1.01, 0.08))
    )
    return a, b


def test_what_is_faster_than_a_told_path_allows_is_judged_like_the_others() -> None:
    """Told a round trip 1 % too long, the faster half of the faster side was left out: "worse", with exit 3."""
    a, b = around_their_bound()
    outcome = compare.compare(a, b)
    (throughput,) = outcome.primary
    assert not outcome.invalid and throughput.judgement.n == 20 and throughput.judgement.verdict is Verdict.CANNOT_TELL
    assert throughput.judgement.ratio and throughput.judgement.ratio > 1
    page = re.sub(r"<[^>]+>", "", suite.render([*a, *b], [], [], ["fabtune"])).replace("\xa0", " ")
    assert "nothing of the path as it was told, which allows less: read at 0.2 ms (10" in page.replace("&#39;", "'")
    assert "by the path as it was told" in page and "0 of these left out" in page


def test_what_is_left_of_a_side_is_no_fair_sample_of_it() -> None:
    """Runs that cannot be right are left out by what they say: the others were judged as if they were all."""
    a, b = around_their_bound(environment=EMULATED)
    outcome = compare.compare(a, b)
    left = len(outcome.invalid)
    assert 0 < left < 20 and {row.judgement.verdict for row in outcome.rows} == {Verdict.CANNOT_TELL}
    said = f"{left} of 20 runs of wan are left out, since their own figures cannot be right"
    assert outcome.primary[0].judgement.why == f"{said}; the others are no fair sample"
    assert compare.compare(a, b[-left:]).primary[0].judgement.why == said.replace("20", str(left))


def test_what_differed_is_listed() -> None:
    a, b = sides(1.10)
    a = [attrs.evolve(one, environment={"net.ipv4.tcp_rmem": "4096"}) for one in a]
    b = [attrs.evolve(one, environment={"net.ipv4.tcp_rmem": "16384"}) for one in b]
    assert compare.compare(a, b).differences == (("environment.net.ipv4.tcp_rmem", "4096", "16384"),)


def test_what_the_lab_s_line_counted_is_a_result_and_no_difference_of_the_set_up() -> None:
    a, b = sides(1.10)
    for side, packets in ((a, 1000), (b, 2000)):
        side[:] = [attrs.evolve(one, environment={"qdiscs_before": {"w0": {"packets": packets}}}) for one in side]
    assert compare.compare(a, b).differences == ()


def test_what_tune_saw_beside_the_load_before_is_no_difference_of_the_set_up() -> None:
    a, b = sides(1.10)
    for side, took_s in ((a, 20.5), (b, 21.5)):
        side[:] = [attrs.evolve(one, environment={"fabtune_tune": {"took_s": took_s, "steps": []}}) for one in side]
    assert compare.compare(a, b).differences == ()


def test_different_workloads_are_refused() -> None:
    with pytest.raises(InputError, match="different workloads: oltp, xdd"):
        compare.compare([make_record(1)], [make_record(1, workload="oltp")])


def test_compare_verb_reads_directories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, records in zip("ab", sides(0.9), strict=True):
        for number, one in enumerate(records):
            recordfile.write(one, tmp_path / side / f"{number}.run.json.gz")
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == ExitCode.DRIFT
    found = json.loads(capsys.readouterr().out)
    assert found["rows"][0]["verdict"] == "worse" and found["rows"][0]["n"] == 8
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == ExitCode.DRIFT
    assert "-9.8%" in capsys.readouterr().out


def test_copies_of_a_run_are_not_so_many_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run a side, there three times, was "better, p<0.001, n=3" with an interval of no width."""
    for side, rate in (("a", 26.5), ("b", 35.2)):
        for name in ("1", "2", "3"):
            recordfile.write(make_record(rate, label=side), tmp_path / side / f"{name}.run.json.gz")
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "2.run.json.gz: a copy of " in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.count("which counts once") == 4
    page = (tmp_path / "report.html").read_text()
    assert "1 run a side a point" in page and "too few for an interval" in page
    # The same run on either side is two sides that are alike, and said so.
    assert main(["compare", str(tmp_path / "a/1.run.json.gz"), str(tmp_path / "a/2.run.json.gz")]) == 5


def test_no_name_in_a_record_steers_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cells were cleaned, and captions and headings, which have labels in them, were not."""
    bad = "\x1b[31mred\x07\nnew\nline"
    for label, rate in ((f"a{bad}", 100), (f"b{bad}", 150)):
        for number in range(3):
            one = with_step(make_record(rate + number, label, start=float(rate + number)), name=f"read{bad}")
            one = attrs.evolve(one, host=attrs.evolve(one.host, name=f"{label[0]}{bad}"))
            recordfile.write(one, tmp_path / label[0] / f"{number}.run.json.gz")
    failed = make_record(100, f"a{bad}", complete=False, start=9.0)
    recordfile.write(attrs.evolve(failed, problem=bad), tmp_path / "a" / "9.run.json.gz")
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == ExitCode.DONE
    assert main(["report", str(tmp_path)]) == ExitCode.DONE
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert "\x1b" not in text and "\x07" not in text
    assert r"b\x1b[31mred\x07 new line (B) against a\x1b[31mred\x07 new line (A): " in said.out
    (headings,) = (line for line in said.out.splitlines() if line.startswith("differs"))
    assert r"a\x1b[31mred\x07 new line" in headings and r"b\x1b[31mred\x07 new line" in headings


def test_two_sets_of_one_name_have_their_side_behind_it_once() -> None:
    """It read "untouched (B) (B) against untouched (A) (A)"."""
    captions = {}
    for label in ("untouched", "wan"):
        records = [[make_record(rate, label=one) for rate in (1.0, 1.1, 1.2)] for one in ("untouched", label)]
        captions[label] = verdict_table.verdict_tables(compare.compare(*records))[0].caption
    assert captions["untouched"].startswith("untouched (B) against untouched (A): ")
    assert captions["wan"].startswith("wan (B) against untouched (A): ")


def test_single_records_show_their_figures_and_the_reason_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, rate in (("a", 100), ("b", 125)):
        one = make_record(rate, name)
        one = attrs.evolve(one, target=attrs.evolve(one.target, kind="directory", size_bytes=rate))
        recordfile.write(one, tmp_path / f"{name}.run.json.gz")
    paths = [str(tmp_path / f"{name}.run.json.gz") for name in "ab"]
    assert main(["compare", *paths]) == ExitCode.CANNOT_TELL
    said = capsys.readouterr().out
    assert "+25.0%" in said and "-20.0%" in said and said.count("1 runs of a side; at least 3 are needed") == 1
    assert "size_bytes" not in said
    assert main(["compare", *paths, "--json"]) == ExitCode.CANNOT_TELL
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert (row["a_median"], row["b_median"], row["verdict"]) == (100, 125, "cannot tell")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"no gzip", "not a gzip file"),
        (gzip.compress(b'{"schema": "fabtune-run/1", "steps": [', mtime=0), "damaged or cut short"),
        (gzip.compress(b"x" * 1000, mtime=0)[:40], "damaged or cut short"),
        (
            gzip.compress(b'{"schema": "fabtune-run/99"}', mtime=0),
            "a run record of another version of fabtune: key 'schema': found 'fabtune-run/99' (text), allowed: fab",
        ),
        (
            gzip.compress(b'{"schema": null}', mtime=0),
            "not a run record: key 'schema': found None (null), allowed: fabtune-run/1",
        ),
        (gzip.compress(b"null", mtime=0), "not a run record: found None (null), allowed: a table"),
        (gzip.compress(b"[]", mtime=0), "not a run record: found [] (array), allowed: a table"),
    ],
)
@pytest.mark.parametrize("directory", [False, True])
def test_records_that_cannot_be_read_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any, says: Any, directory: Any
) -> None:
    recordfile.write(make_record(100), tmp_path / "a" / "0.run.json.gz")
    (tmp_path / "b").mkdir()
    bad = tmp_path / "b" / "0.run.json.gz"
    bad.write_bytes(content)
    assert main(["compare", str(tmp_path / "a"), str(bad.parent if directory else bad)]) == ExitCode.USAGE
    errors = capsys.readouterr().err
    assert f"{bad}: " in errors and says in errors


def test_order_is_in_abba_blocks() -> None:
    turns = list(interleave.order(10, seed=3))
    assert len(turns) == 20
    blocks = ["".join(turn.side for turn in turns[at : at + 4]) for at in range(0, 20, 4)]
    assert set(blocks) == {"ABBA", "BAAB"}
    for pair in range(10):
        at = [index for index, turn in enumerate(turns) if turn.pair == pair]
        assert at == [2 * pair, 2 * pair + 1]
        assert {turns[index].side for index in at} == {"A", "B"}
    assert turns == list(interleave.order(10, seed=3)) != list(interleave.order(10, seed=4))


def test_blocks_of_many_settings_have_an_order_of_their_own_each_time() -> None:
    runs = [(repetition, cell) for repetition in range(3) for cell in range(12)]
    drawn = interleave.in_random_blocks(runs, lambda run: run[0])
    assert [repetition for repetition, _ in drawn] == [repetition for repetition, _ in runs]
    assert sorted(drawn) == runs != drawn != interleave.in_random_blocks(runs, lambda run: run[0])


def test_another_load_under_the_same_name_is_said() -> None:
    """A workload of one's own, edited between the runs, was the same load: "What else differed" did not name it."""
    a, b = sides(1.10)
    b = [with_step(one, job=one.steps[0].job.replace("direct=1", "direct=0\nrwmixread=70")) for one in b]
    assert compare.compare(a, b).differences == (("load of read", "direct=1", "direct=0, rwmixread=70"),)
    # Where the load goes, and for how long, is told beside it.
    b = [with_step(one, job=one.steps[0].job.replace("/dev/sdb", "/dev/sdc")) for one in a]
    assert not compare.compare(a, b).differences


def test_replays_of_different_traces_are_no_runs_of_one_load() -> None:
    """Two traces of one file name were one load, and the verdict was theirs."""
    one, other = (Replayed("trace.0", digest * 64, "sdb", 1000, 0, 0, 0) for digest in "ab")
    a, b = sides(1.10)
    a, b = ([with_step(record, replayed=trace) for record in side] for side, trace in ((a, one), (b, other)))
    apart = compare.compare(a, b)
    assert {row.step for row in apart.primary} == {f"read, SHA-256 {digest * 12}" for digest in "ab"}
    assert set(verdicts(apart)) == {Verdict.CANNOT_TELL}
    same = compare.compare(a, [with_step(record, replayed=one) for record in b])
    assert {row.step for row in same.rows} == {"read"} and set(verdicts(same)) == {Verdict.BETTER}


def few_and_slow(label: str, rate: float) -> RunRecord:
    """13 requests of 2.3 s in a part of 1.5 s."""

    def bins(job: Any) -> None:
        job["read"]["clat_ns"]["bins"] = {str(round(2.3e9) + number): 1 for number in range(13)}

    record = with_fio(make_record(rate, label), bins)
    return with_step(record, job=record.steps[0].job + "time_based=1\nruntime=1500ms\n")


def test_latencies_that_a_short_run_cuts_off_are_no_verdict(tmp_path: Path) -> None:
    """The demo's page called a p99 of 13 requests, which is the slowest of those that ended, better; p<0.001."""
    a = [few_and_slow("untouched", 1 + number / 100) for number in range(3)]
    b = [make_record(100 + number, "wan") for number in range(3)]
    outcome = compare.compare(a, b)
    found = {row.metric.key: row.judgement for row in outcome.rows}
    assert found["read_mb_per_s"].verdict is Verdict.BETTER
    assert {found[key].verdict for key in ("read_p50_ms", "read_p99_ms")} == {Verdict.CANNOT_TELL}
    assert "no run of untouched tells it: requests of 2.3 s in a part of 1.5 s" in found["read_p50_ms"].why
    page = suite.render([*a, *b], [], [], ["fabtune", "report", "x"])
    assert found["read_p50_ms"].why in page.replace("\N{NO-BREAK SPACE}", " ")


def test_a_latency_that_no_side_tells_is_named_with_the_reason() -> None:
    sides = [[few_and_slow(label, rate + number) for number in range(3)] for label, rate in (("a", 1), ("b", 2))]
    outcome = compare.compare(sides[0], sides[1])
    untold = {row.metric.key: row for row in outcome.rows if row.metric.key != "read_mb_per_s"}
    assert set(untold) == {"read_p50_ms", "read_p99_ms"}
    assert all(row.judgement.verdict is Verdict.CANNOT_TELL and row.judgement.why for row in untold.values())
    assert json.loads(verdict_table.as_json(outcome))["rows"][1]["a_median"] is None

# SPDX-License-Identifier: GPL-2.0-or-later
"""The page of a directory of runs: quick, small, complete, and the same bytes for the same runs."""

import base64
import csv
import io
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from length import FULL
from run_records import EMULATED, make_record, said, with_latency, with_step

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.measure import checks, recordfile
from fabtune.model.judgement import rules_with_looks
from fabtune.model.outputs import Iperf3Output, Qdisc
from fabtune.model.runrecord import Edge, JudgedClaim, RunRecord, SessionTurn, StepResult, Value, WorkloadUsed
from fabtune.report import cells, compare, fabric, latency, overtime, paired, suite, throughput
from fabtune.report import page as pages
from fabtune.report.chart import THEORY
from fabtune.report.looks import looks

RUNS = 200


def write_all(records: Any, directory: Any) -> None:
    for number, one in enumerate(records):
        recordfile.write(one, directory / f"{number:03d}.run.json.gz")


def many(runs: Any = RUNS, seconds: Any = 60) -> Any:
    """A session of interleaved runs over RTT and request size."""
    made = []
    for number in range(runs):
        label = ("default", "wan")[number % 2]
        rtt_ms = (0, 10, 50, 100)[number // 2 % 4]
        size = (4096, 65536, 262144)[number // 8 % 3]
        bound_mb_per_s = min(110, size / (rtt_ms * 1e3)) if rtt_ms else 110
        rate = bound_mb_per_s * (0.9 if label == "wan" else 0.4) * (1 + number % 5 / 100)
        path = {"rtt_ms": rtt_ms, "rate_bytes_per_s": 1.25e11, "mtu": 1500}
        made.append(
            make_record(rate, label, parameters={"block_bytes": size}, path=path, seconds=seconds, start=number)
        )
    return made


def page(directory: Any, name: Any = "report.html") -> Any:
    out = directory.parent / name
    code = main(["report", str(directory), "--out", str(out)])
    return code, out.read_text()


def tables(html: Any) -> Iterator[Any]:
    for encoded in re.findall(r"data:text/csv;base64,([^\"]+)", html):
        yield list(csv.DictReader(io.StringIO(base64.b64decode(encoded).decode())))


def test_a_page_of_two_hundred_runs_has_three_megabytes_and_its_time_grows_with_the_runs(tmp_path: Path) -> None:
    taken_s = {}
    for runs in (RUNS // 4, RUNS):
        write_all(many(runs), tmp_path / f"{runs}/runs")
        started = time.process_time()
        code, html = page(tmp_path / f"{runs}/runs")
        taken_s[runs] = time.process_time() - started
        print(f"{runs} runs of a minute: {taken_s[runs]:.1f} s of CPU, {len(html.encode()) / 1e6:.2f} MB")
    # Four times the runs: whatever compared each run with each would take sixteen times as long.
    assert taken_s[RUNS] < 8 * taken_s[RUNS // 4]
    assert len(html.encode()) <= 3_000_000
    assert code == ExitCode.DONE
    assert html.count('<details class="run">') == RUNS


def test_each_section_has_an_id_of_its_own() -> None:
    """Two labels that are not ASCII had one id: a link led to the other's verdict, and their CSV had one name."""
    labels = ("untouched", "настройка", "проба", "wan+", "wan-", "wan- 2")
    records = [make_record(100 + number, label, start=float(number)) for label in labels for number in range(3)]
    html = suite.render(records, [], [], ["fabtune", "report", "out"])
    ids = re.findall(r' id="([^"]*)"', html)
    assert len(ids) == len(set(ids)) > len(labels)
    assert re.findall(r'<li><a href="#([^"]*)"', html) == re.findall(r'<h2 id="([^"]*)"', html)
    names = re.findall(r'download="([^"]*)"', html)
    assert len(names) == len(set(names)) and all(name.isascii() for name in names)


def test_same_runs_give_same_bytes(tmp_path: Path) -> None:
    write_all(many(8), tmp_path / "runs")
    assert page(tmp_path / "runs", "a.html") == page(tmp_path / "runs", "b.html")


def test_nothing_is_fetched(tmp_path: Path) -> None:
    write_all(many(8), tmp_path / "runs")
    _, html = page(tmp_path / "runs")
    assert "default-src 'none'" in html
    assert not re.search(r"(?:src|href)=\"(?!#|data:text/csv)", html)


def test_licence_of_the_drawing_library_is_kept(tmp_path: Path) -> None:
    write_all(many(2), tmp_path / "runs")
    _, html = page(tmp_path / "runs")
    assert "Copyright (c) 2022 Leon Sorokin" in html and "MIT" in html


def test_medians_over_rtt_and_size_are_in_the_table(tmp_path: Path) -> None:
    write_all(many(48), tmp_path / "runs")
    _, html = page(tmp_path / "runs")
    rows = next(rows for rows in tables(html) if rows and "rtt_ms" in rows[0])
    found = [row for row in rows if row["rtt_ms"] == "10.0" and row["label"] == "wan" and row["block_bytes"] == "65536"]
    assert [row["runs"] for row in found] == ["2"]
    assert 0.9 <= float(found[0]["fraction_of_bound"]) <= 0.94
    for words in (
        "throughput over request size",
        "throughput over round-trip time",
        "latency distribution",
        "over time",
    ):
        assert f"xdd: {words}" in html


def test_a_bound_far_above_what_was_measured_is_told_and_not_drawn(tmp_path: Path) -> None:
    """At a round trip of none it is the line's rate, a thousand times a disk's: all marks lay on the ground."""
    write_all(many(48), tmp_path / "runs")
    _, html = page(tmp_path / "runs")
    drawn = re.findall(r"<svg class=\"chart\".*?</figcaption>", html, re.DOTALL)
    far = [one for one in drawn if "lies far above the drawing" in one]
    assert not any('class="bound"' in one for one in far) and any('class="bound"' in one for one in drawn)
    assert far and all("The bound, up to " in one for one in far)
    assert any("over request size, rtt_ms 0. " in one for one in far)
    assert not any("rtt_ms 10." in one or "rtt_ms 100." in one for one in far)


def test_interleaved_session_shows_verdicts_pairs_and_ratios(tmp_path: Path) -> None:
    pairs = [make_record(rate, label, n) for n in range(8) for label, rate in (("default", 100 + n), ("wan", 110 + n))]
    write_all(pairs, tmp_path / "runs")
    _, html = page(tmp_path / "runs")
    assert "wan against default, session s" in html
    verdicts, _, ratios, by_pair = list(tables(html))[:4]
    assert verdicts[0]["verdict"] == "better" and verdicts[0]["significance"].endswith("n=8")
    assert 1.09 < float(ratios[0]["ratio"]) < 1.1
    assert [float(row["b"]) for row in by_pair] == [110 + n for n in range(8)]
    assert html.count('class="unity"') == 1


def test_broken_law_incomplete_and_unreadable_runs_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = many(6, seconds=2)
    records[1] = with_latency(records[1], 3)
    records[2] = attrs.evolve(records[2], complete=False, problem="sdb has vanished")
    write_all(records, tmp_path / "runs")
    (tmp_path / "runs" / "x.run.json.gz").write_bytes(b"\x1f\x8b\x08rest")
    code, html = page(tmp_path / "runs")
    assert code == ExitCode.FAILED
    assert "x.run.json.gz" in capsys.readouterr().err
    assert "1 incomplete, 1 that break a law" in html
    broken = next(rows for rows in tables(html) if rows and "found" in rows[0])
    assert {row["run"] for row in broken} == {"001.run.json.gz", "002.run.json.gz"}
    assert "sdb has vanished" in html and "damaged or cut short" in html


def raw_tcp(*rates: tuple[str, float], rtt_ms: float = 10.2) -> RunRecord:
    """A run of the network alone, with the MB/s of each direction."""
    steps = tuple(
        StepResult(
            op, {"op": op}, iperf3=said(Iperf3Output, {"end": {"sum_received": {"bits_per_second": rate * 8e6}}})
        )
        for op, rate in rates
    )
    net = make_record(1, "wan", workload="net")
    return attrs.evolve(net, steps=steps, round_trips_ms=(rtt_ms - 0.2, rtt_ms, 99.0), path_mtu_bytes=1500)


def test_network_bound_and_block_stand_in_one_line(tmp_path: Path) -> None:
    net = raw_tcp(("send", 110), ("receive", 90), ("send", 115))
    path = {"rtt_ms": 10, "rate_bytes_per_s": 1.25e8, "mtu": 1500}
    block = make_record(50, "wan", op="write", parameters={"block_bytes": 10**6}, path=path)
    write_all([net, block], tmp_path / "runs")
    _, html = page(tmp_path / "runs")
    read, write = next(rows for rows in tables(html) if rows and "block_of_tcp" in rows[0])
    assert (float(read["tcp_mb_per_s"]), read["block_mb_per_s"]) == (90, "")
    assert (float(write["tcp_mb_per_s"]), float(write["block_mb_per_s"])) == (115, 50)
    assert float(write["block_of_tcp"]) == pytest.approx(50 / 115)
    assert float(write["rtt_ms"]) == 10.2 and write["workload"] == "xdd"


def first_screen(records: list[RunRecord]) -> str:
    page = suite.render(records, [], [], ["fabtune"]).split("<h2")[0]
    return re.sub(r"<[^>]+>", " ", page).replace("\xa0", " ")


def test_runs_of_the_network_are_judged_as_those_of_a_disk_are() -> None:
    """`compare` said better, 9.2 times, and the first screen of `report` had no answer at all."""
    nets = [
        attrs.evolve(raw_tcp(("receive", rate + number)), label=label, started_unix_s=float(number))
        for label, rate in (("untouched", 10.0), ("wan", 100.0))
        for number in range(3)
    ]
    assert "Yes. net, wan against untouched: better at" in first_screen(nets)
    html = suite.render(nets, [], [], ["fabtune"])
    assert "net: wan against untouched" in html and "net: throughput" not in html
    assert "net: cannot tell: untouched alone was measured" in first_screen(nets[:3])
    # Beside a disk's runs it is no question of its own, and stands behind theirs.
    assert "net: cannot tell" not in first_screen([*nets[:1], make_record(50, "untouched")])
    disks = [make_record(rate + n, label) for label, rate in (("untouched", 10), ("wan", 50)) for n in range(3)]
    both = first_screen([*nets, *disks])
    assert 0 < both.index("xdd, wan against untouched: better") < both.index("net, wan against untouched: better")


def block_beside(net: list[RunRecord], block: list[RunRecord]) -> list[Any]:
    """The MB/s of the block result that stands beside the reads of each network run."""
    found = fabric.section([*net, *block])
    assert found is not None
    keys = [column.key for column in found.tables[0].columns]
    return [row[keys.index("block_mb_per_s")] for row in found.tables[0].rows if row[keys.index("op")] == "read"]


def test_raw_tcp_stands_beside_block_results_of_its_own_path_alone() -> None:
    """A block run at 0.1 ms had 2200 % of what TCP carried over 20 ms."""
    far, near = raw_tcp(("receive", 5), rtt_ms=20.2), raw_tcp(("receive", 110), rtt_ms=0.3)
    quick, slow = (make_record(rate, "wan", path={"rtt_ms": rtt_ms}) for rate, rtt_ms in ((110, 0), (4, 20)))
    untold = make_record(3, "wan")
    assert block_beside([far], [quick]) == [None]
    assert block_beside([far, near], [quick, slow]) == [4, 110]
    # Without a word the one path that is known is meant.
    assert block_beside([far], [untold]) == [3]
    assert block_beside([far, near], [untold]) == [None, None]
    other = attrs.evolve(slow, host=attrs.evolve(slow.host, name="other"))
    assert block_beside([far], [other, untold]) == [3]


def test_a_run_that_cannot_be_right_is_no_fastest_block_result() -> None:
    # One request of 1 kB at a time over 20 ms is 0.05 MB/s at most.
    path = {"rtt_ms": 20, "rate_bytes_per_s": 1.25e8, "mtu": 1500}
    void, sound = (make_record(rate, "wan", path=path, environment=EMULATED) for rate in (500, 0.04))
    assert checks.voiding(void) and block_beside([raw_tcp(("receive", 110), rtt_ms=20.2)], [void, sound]) == [0.04]


def balance(stream: int, written: float, read: float, **path: float) -> RunRecord:
    """A run of eight writers, asked for so many bytes a second each, and as many readers, at such MB/s in all."""
    parameters: dict[str, Value] = {"block_bytes": 10**5, "stream_bytes_per_s": stream, "streams": 8}
    both, reads = (
        make_record(rate, "wan", workload="daq", op=op, parameters=parameters, path=path)
        for op, rate in (("write", written), ("read", read))
    )
    return attrs.evolve(both, steps=both.steps + reads.steps)


def test_highest_balanced_rate_is_named(tmp_path: Path) -> None:
    # At 3 MB/s a stream the readers fall behind.
    rates = ((10**6, 8.0, 7.95), (2 * 10**6, 16.0, 15.8), (3 * 10**6, 24.0, 20.0))
    write_all([balance(*one) for one in rates], tmp_path / "runs")
    _, html = page(tmp_path / "runs")
    assert "Highest rate that readers and writers both held, wan: 16.0\xa0MB/s each way." in html


def test_a_balanced_rate_is_that_of_one_path() -> None:
    """Readers that fell behind over 100 ms were held to keep up, or not, by whether the run at 0 ms came after."""
    far, near = balance(10**6, 8.0, 1.0, rtt_ms=100), balance(10**6, 8.0, 8.0, rtt_ms=0)
    said = "Highest rate that readers and writers both held, wan, rtt_ms"
    for records in ([far, near], [near, far]):
        told = throughput.balanced(cells.cells(records))
        assert told == [f"{said} 0: 8.0 MB/s each way.", f"{said} 100: none of those asked for."]


def test_a_window_shows_as_the_same_product_at_every_rtt(tmp_path: Path) -> None:
    window = 65536
    paths = [{"rtt_ms": rtt, "rate_bytes_per_s": 1.25e8, "mtu": 1500} for rtt in (10, 20, 50)]
    parameters = {"block_bytes": 10**6}
    made = [make_record(window / one["rtt_ms"] / 1e3, path=one, parameters=parameters, seconds=100) for one in paths]
    write_all(made, tmp_path / "runs")
    _, html = page(tmp_path / "runs")
    rows = next(rows for rows in tables(html) if rows and "implied_window_kib" in rows[0])
    assert [float(row["implied_window_kib"]) for row in rows] == pytest.approx([64] * 3, rel=0.03)


def test_findings_from_the_wire_are_shown(tmp_path: Path) -> None:
    finding = {"claim": "ImmediateData", "configured": "Yes", "seen": "No: none", "verdict": "not as configured"}
    write_all([attrs.evolve(make_record(100), proof=(JudgedClaim(**finding),))], tmp_path / "runs")
    _, html = page(tmp_path / "runs")
    rows = next(rows for rows in tables(html) if rows and "claim" in rows[0])
    assert rows == [{"run": "000.run.json.gz"} | finding]


def test_what_was_read_around_a_step_is_shown(tmp_path: Path) -> None:
    one = make_record(100, op="write", seconds=8)

    def edge(commands: Any, r2ts: Any, drops: Any, cwnd: Any) -> Any:
        carried = dict.fromkeys(("rx_bytes", "rx_packets", "tx_bytes", "tx_packets"), 1)
        nic = carried | {"rx_dropped": drops, "tx_dropped": 0}
        qdisc = {"kind": "fq", "dev": "eth0", "handle": "1:", "root": True, "drops": 2 * drops}
        socket: dict[str, Value] = {
            "cwnd_segments": cwnd,
            "rtt_ms": 10.5,
            "send_buffer_bytes": 1,
            "receive_buffer_bytes": 2,
        }
        other: dict[str, Value] = {"cwnd_segments": 1, "congestion_control": "bbr"}
        sockets = (socket | {"congestion_control": "cubic"}, socket | other)
        counters = {"1": {"scsicmd_pdus": commands, "r2t_pdus": r2ts}}
        return Edge(iscsi=counters, nics={"eth0": nic}, qdiscs=(said(Qdisc, qdisc),), sockets=sockets)

    one = with_step(one, before=edge(10, 5, 1, 20), after=edge(210, 305, 4, 900))
    # Reads among the commands wait for no R2T.
    for second, sample in enumerate(one.steps[0].samples):
        sample["disk.dev.write"] = 100 * second / 8
    write_all([one], tmp_path / "runs")
    _, html = page(tmp_path / "runs")
    (row,) = next(rows for rows in tables(html) if rows and "r2ts_per_write" in rows[0])
    found = {key: row[key] for key in ("r2ts_per_write", "nic_drops", "qdisc_drops", "retransmitted_segments")}
    assert found == {"r2ts_per_write": "3.0", "nic_drops": "3", "qdisc_drops": "6", "retransmitted_segments": "1"}
    assert (row["cwnd_segments"], row["congestion_control"]) == ("900", "cubic")


def test_cpu_is_split_into_user_sys_and_softirq(tmp_path: Path) -> None:
    write_all([make_record(100, seconds=10)], tmp_path / "runs")
    _, html = page(tmp_path / "runs")
    (row,) = next(rows for rows in tables(html) if rows and "user_s_per_gb" in rows[0])
    # The made-up sampler: 100 ms user, 300 sys, 200 softirq a second at 0.1 GB/s.
    shares = [float(row[f"{name}_s_per_gb"]) for name in ("user", "sys", "softirq", "cpu")]
    assert shares == pytest.approx([1, 3, 2, 6])


def test_text_from_records_is_escaped(tmp_path: Path) -> None:
    write_all([make_record(100, "<script>alert(1)</script>")], tmp_path / "runs")
    _, html = page(tmp_path / "runs")
    assert "<script>alert" not in html


@pytest.mark.parametrize("content", [b"", b"no gzip", None])
def test_directory_without_a_readable_record(tmp_path: Path, content: Any, capsys: pytest.CaptureFixture[str]) -> None:
    if content is not None:
        (tmp_path / "a.run.json.gz").write_bytes(content)
    assert main(["report", str(tmp_path)]) == ExitCode.USAGE
    assert str(tmp_path) in capsys.readouterr().err


def test_record_of_another_version_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = attrs.evolve(make_record(1), schema="fabtune-run/99")
    recordfile.write(made, tmp_path / "a.run.json.gz")
    assert main(["report", str(tmp_path)]) == ExitCode.USAGE
    assert "fabtune-run/99" in capsys.readouterr().err


def test_a_record_is_never_overwritten(tmp_path: Path) -> None:
    path = recordfile.write(make_record(1), tmp_path / "a.run.json.gz")
    before = path.read_bytes()
    with pytest.raises(Exception, match="never overwritten"):
        recordfile.write(make_record(2), path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["a.run.json.gz"]
    assert suite.load(tmp_path)[0][0].label == "default"


@pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed here")
@pytest.mark.parametrize("width", [390, 1280, 2560] if FULL else [1280])
def test_the_page_opens_without_a_word_on_the_console(tmp_path: Path, width: Any) -> None:
    write_all(many(8), tmp_path / "runs")
    _, html = page(tmp_path / "runs")
    # Opening the folds makes their drawings zoomable.
    script = "for (const x of document.querySelectorAll('details')) x.open = true;"
    script += "setTimeout(() => console.log('spoken'), 500)"
    (tmp_path / "opened.html").write_text(html.replace("</body>", f"<script>{script}</script></body>"))
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
        f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1600", "--virtual-time-budget=3000",
        f"--screenshot={tmp_path / 'page.png'}", f"file://{tmp_path / 'opened.html'}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert len(said) == 1 and '"spoken"' in said[0], said
    assert (tmp_path / "page.png").stat().st_size > 50_000


def test_every_plotted_number_is_in_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the drawing functions are given is held against the tables of the same page."""
    plotted: list[float] = []
    kept: list[Any] = []

    def spy(module: Any, name: Any, numbers: Any) -> None:
        drawing = getattr(module, name)

        def told(*args: Any, **keywords: Any) -> Any:
            plotted.extend(numbers(*args))
            return drawing(*args, **keywords)

        monkeypatch.setattr(module, name, told)

    def points(series: Any) -> list[float]:
        # A bound is computed, not measured.
        return [v for one in series if one.style not in THEORY for point in one.points for v in point]

    for module in (throughput, latency, paired):
        spy(module, "line_chart", lambda title, series, *axes: points(series))
    spy(overtime, "panels", lambda title, x, parts, marks: [value for part in parts for value in points(part.series)])
    spy(paired, "forest_plot", lambda title, rows, *rest: [v for one in rows for v in (one.ratio, one.low, one.high)])
    render = pages.render

    def rendered(title: str, lead: Any, found: Any, *rest: Any, **keywords: Any) -> str:
        kept.extend(found)
        return render(title, lead, found, *rest, **keywords)

    monkeypatch.setattr(pages, "render", rendered)
    pairs = [make_record(rate, label, n) for n in range(8) for label, rate in (("default", 100 + n), ("wan", 110 + n))]
    pairs = [attrs.evolve(one, workload=WorkloadUsed("oltp")) for one in pairs]
    write_all([*many(24, 20), *pairs], tmp_path / "runs")
    code, _ = page(tmp_path / "runs")
    assert code == ExitCode.DONE
    tables = [table for section in kept for table in (*section.tables, *(fold.table for fold in section.details))]
    written = {float(cell) for table in tables for row in table.rows for cell in row if isinstance(cell, int | float)}
    assert len(plotted) > 3000
    assert {value for value in plotted if float(value) not in written} == set()


def test_the_cost_of_a_gain_is_that_of_the_same_point() -> None:
    def costly(rate: float, label: str, spent: float) -> RunRecord:
        record = make_record(rate, label, path={"rtt_ms": 20.0}, seconds=10)
        for sample in record.steps[0].samples:
            busy = {key for key in sample if key.startswith("kernel.all.cpu.") and key != "kernel.all.cpu.idle"}
            idle = sum(sample[key] for key in busy) * (1 - spent)
            for key in busy:
                sample[key] *= spent
            sample["kernel.all.cpu.idle"] += idle
        return record

    runs = [costly(rate + 0.1 * n, label, spent) for n in range(3)
            for rate, label, spent in ((10, "untouched", 0.1), (20, "wan", 0.5))]  # fmt: skip
    html = suite.render(runs, [], [], ["fabtune", "report", "out"]).replace("\u00a0", " ")
    assert "At what cost?" in html
    assert re.search(r"wan against untouched: CPU time for each GB: more at read, up to 2\.5\d× \[", html)


def test_points_of_one_step_are_told_apart_by_their_size() -> None:
    """Three sizes read "read at 0 ms" each: one of them at its bound, another not, and three rows of one name."""
    sizes = {4096: 26.5, 8192: 34.3, 32768: 118.0}
    path = {"rtt_ms": 0.0, "rate_bytes_per_s": 1.25e8, "mtu": 1500}
    records = [
        make_record(rate, label="untouched", parameters={"block_bytes": size}, path=path)
        for size, rate in sizes.items()
    ]
    html = suite.render(records, [], [], ["fabtune", "report", "out"]).replace("\u00a0", " ")
    assert "the link: read at 0 ms, block_bytes 32 KiB (98.7 % of the bound)" in html
    assert "read at 0 ms, block_bytes 4 KiB and 0 ms, block_bytes 8 KiB (22.2 % to 28.7 % of the bound)" in html
    for said_size in ("4 KiB", "8 KiB", "32 KiB"):
        assert f"read at 0 ms, block_bytes {said_size}: all requests." in html
    # A step whose name says it all has no more than its name.
    alone = suite.render(records[:1], [], [], ["fabtune", "report", "out"]).replace("\u00a0", " ")
    assert "read at 0 ms: all requests." in alone


def test_points_are_told_by_what_they_have_in_common(tmp_path: Path) -> None:
    """It was "read, RTT 20 ms, write, RTT 20 ms, read, RTT 50 ms": nobody sees where one point ends."""
    for rtt_ms in (20, 50):
        for op in ("read", "write"):
            for label, rate in (("untouched", 10.0), ("wan", 20.0)):
                for number in range(3):
                    one = make_record(rate + number / 10, label, op=op, path={"rtt_ms": rtt_ms})
                    recordfile.write(one, tmp_path / f"{rtt_ms}-{op}-{label}-{number}.run.json.gz")
    for number in range(3):
        for label in ("untouched", "wan"):
            one = make_record(30 + number, label, op="read", path={"rtt_ms": 0})
            recordfile.write(one, tmp_path / f"0-{label}-{number}.run.json.gz")
    page = suite.render(*suite.load(tmp_path), ["fabtune"])
    page = re.sub(r"<[^>]+>", "", page).replace("\xa0", " ").replace("&nbsp;", " ")
    assert "better at 4 of 5 points (read, write at 20, 50 ms)" in page


def test_no_label_is_left_out_without_a_word() -> None:
    """Of eight labels two had neither a curve nor a row of percentiles, and nothing said so."""
    records = [make_record(100 + number, f"p{number}", path={"rtt_ms": rtt}) for number in range(8) for rtt in (0, 20)]
    group = cells.cells(records)
    look = looks(one.label for one in records)
    shown = latency.section(group, "xdd", look)
    assert shown is not None
    assert {row[1] for row in shown.tables[0].rows} == {row[1] for row in shown.tables[1].rows} == set(look)
    assert all("6 of 8 labels are drawn" in one.caption for one in shown.figures)
    for section in throughput.sections(group, "xdd", look):
        assert section.figures and all("6 of 8 labels are drawn" in one.caption for one in section.figures)


def test_a_point_some_of_whose_runs_do_not_tell_a_figure_does_not_have_that_of_the_others() -> None:
    kept = [make_record(100 + number, "wan", seconds=8) for number in range(4)]
    lost = with_step(kept[0], samples=())
    for records, known in ((kept, True), ([lost, *kept[1:]], False)):
        (cell,) = cells.cells(records)
        assert (cell.median("cpu_s_per_gb") is not None) == known == (cell.spread("cpu_s_per_gb") is not None)
        assert cell.median("mb_per_s") is not None


@pytest.mark.parametrize(
    ("figure", "kinds"),
    [
        ("user_s_per_gb", ["user"]),
        ("sys_s_per_gb", ["sys"]),
        ("softirq_s_per_gb", ["irq.soft"]),
        ("sys_percent_per_mb_per_s", ["sys", "irq.soft"]),
    ],
)
def test_a_part_of_the_cpu_time_that_some_runs_do_not_tell_is_not_that_of_the_others(
    figure: str, kinds: list[str]
) -> None:
    """One run of five had more than ten ticks of softirq, and its 1 s/GB stood beside the CPU time of all five."""

    def spent(number: int, ms_per_s: float) -> RunRecord:
        one = make_record(100, "wan", seconds=10, start=float(number))
        for second, sample in enumerate(one.steps[0].samples):
            for kind in kinds:
                sample["kernel.all.cpu.idle"] += sample[f"kernel.all.cpu.{kind}"] - ms_per_s * second
                sample[f"kernel.all.cpu.{kind}"] = ms_per_s * second
        return one

    # 40 ms in all, and twice that, are below ten ticks.
    for least, known in ((20, True), (4, False)):
        (cell,) = cells.cells([spent(number, least if number else 100) for number in range(5)])
        assert (cell.median(figure) is not None) == known == (cell.spread(figure) is not None)
        assert cell.median("cpu_s_per_gb") is not None


def test_several_steps_of_one_run_are_no_runs() -> None:
    """Three steps of one name were "3 runs" with an interval, where `compare` had one."""
    made = [make_record(rate, "untouched") for rate in (100, 101, 102)]
    record = attrs.evolve(made[0], steps=tuple(one.steps[0] for one in made))
    (cell,) = cells.cells([record])
    assert (len(cell.runs), cell.median("mb_per_s"), cell.spread("mb_per_s")) == (1, 102.0, None)
    # It is the one that `compare` has.
    (row,) = compare.compare([record], [record]).primary
    assert row.medians == (102.0, 102.0)


def test_two_sessions_of_one_contest_are_told_apart_on_the_first_screen() -> None:
    """It said "Yes, better" and "No, it harmed" of wan against untouched, and not which session said what."""
    records = [
        attrs.evolve(
            make_record(rate + pair / 10, label, start=float(pair)),
            session=SessionTurn(f"{name}-pairs", pair, side, rules_with_looks(24)),
        )
        for name, gain in (("first", 1.2), ("second", 0.9))
        for pair in range(8)
        for side, label, rate in (("A", "untouched", 100.0), ("B", "wan", 100.0 * gain))
    ]
    page = re.sub(r"<[^>]+>", "", suite.render(records, [], [], ["fabtune"])).replace("\xa0", " ")
    assert "Yes. xdd, wan, session first against untouched: better at read." in page
    assert "No, it harmed. xdd, wan, session second against untouched: worse at read." in page
    # Each of several looks is judged at a level of its own.
    assert "8 pairs a point, 98.5 % intervals" in page


def test_a_bound_that_is_the_disk_s_is_called_that_of_records_too() -> None:
    record = make_record(10, "untouched", path={"rtt_ms": 0.0, "rate_bytes_per_s": 1.25e8})
    record = attrs.evolve(record, target=attrs.evolve(record.target, limit_bytes_per_s=1.01e7))
    html = suite.render([record], [], [], ["fabtune", "report", "out"])
    assert "the target&#39;s disk: read" in html and "queue depth" not in html

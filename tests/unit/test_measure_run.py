# SPDX-License-Identifier: GPL-2.0-or-later
"""Real fio runs on a directory: records, figures, failures and interruption."""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from processes import runs

from fabtune import progress
from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.host import tree
from fabtune.measure import checks, measured, metrics, pcp, recordfile, target, workload, workload_run
from fabtune.measure.watch import Watch

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def disk_dir(tmp_path_factory: Any) -> Iterator[Any]:
    """A directory that O_DIRECT works on: pytest's own may be a tmpfs."""
    path = Path("/var/tmp") / f"fabtune-test-{os.getpid()}"
    path.mkdir()
    yield path
    shutil.rmtree(path)


def measure(disk_dir: Path, *words: Any) -> Any:
    return main(["measure", *words, "--on", str(disk_dir), "--out", str(disk_dir / "runs")])


def records(disk_dir: Path) -> Any:
    return [recordfile.read(path) for path in recordfile.find(disk_dir / "runs")]


def test_one_run_is_one_record_with_all_steps(disk_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(disk_dir, "xdd", "--set", "total_bytes=16m", "--label", "lan", "--json") == ExitCode.DONE
    shown = json.loads(capsys.readouterr().out)
    (kept,) = records(disk_dir)
    assert kept.complete and kept.label == "lan"
    assert [step.name for step in kept.steps] == ["read", "write"]
    for op, step in zip(("read", "write"), kept.steps, strict=True):
        assert step.fio.moved_bytes() == step.fio.moved_bytes(op) == 16 * 2**20
        assert measured.latencies(step, op).total == 64
    assert shown["steps"][0]["read_mb_per_s"] > 0
    assert not list(disk_dir.glob("fabtune-*"))


def test_the_load_begins_at_the_instant_asked_for_or_not_at_all(
    disk_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = time.time() + 4
    words = ("xdd", "--set", "total_bytes=16m", "--at", f"{begin:.3f}")
    assert measure(disk_dir, *words) == ExitCode.DONE
    begun = records(disk_dir)[0].steps[0].begun_unix_s
    assert begin - 0.001 <= begun < begin + 1
    assert measure(disk_dir, *words) == ExitCode.FAILED
    assert "s after the instant to begin at" in capsys.readouterr().err
    assert [one.complete for one in records(disk_dir)] == [True, False]


@pytest.mark.parametrize("missing", ["iperf3", "ping"])
def test_the_network_is_not_begun_to_be_measured_without_what_measures_it(
    missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without ping an incomplete record was kept, where measuring.md has "nothing is started"."""
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **at: None if name == missing else which(name, **at) or name)
    out = tmp_path / "runs"
    assert main(["measure", "net", "--peer", "127.0.0.1", "--runtime", "1s", "--out", str(out)]) == ExitCode.FAILED
    assert f"{missing} not found" in capsys.readouterr().err and not list(out.glob("*"))


def test_bins_and_percentiles_agree_with_fio(disk_dir: Path) -> None:
    assert measure(disk_dir, "oltp", "--set", "total_bytes=16m", "--runtime", "1s", "--ramp", "0s") == ExitCode.DONE
    step = records(disk_dir)[0].steps[0]
    for op in ("read", "write"):
        theirs = getattr(step.fio.jobs[0], op).clat_ns.rest.keys["percentile"]["90.000000"]
        ours = measured.latencies(whole_of(step), op)
        # Of few requests, as a loaded machine has them, the next one may be far from the one that it is.
        low_ns, high_ns = (ours.quantile_ns(0.9 + ranks / max(20, ours.total)) for ranks in (-1, 1))
        assert low_ns is None or high_ns is None or 0.98 * low_ns <= theirs <= 1.02 * high_ns
    # Asked at the end of its part, fio had not yet waited for the 16 requests that were outstanding.
    early, late = (sum(measured.requests(one, op) for op in ("read", "write")) for one in (step, whole_of(step)))
    assert step.before_drain is None or 0 < early < late
    asked = step.fio.moved_bytes() / 4096
    assert step.fio.requests("read") / asked == pytest.approx(0.7, abs=4 * (0.7 * 0.3 / asked) ** 0.5)


def whole_of(step: Any) -> Any:
    """Return the step with what fio counted to its very end."""
    return attrs.evolve(step, before_drain=None)


def test_flipped_byte_is_found_and_put_back(disk_dir: Path) -> None:
    assert measure(disk_dir, "ioverify", "--set", "total_bytes=4m", "--keep-files") == ExitCode.DONE
    (kept,) = records(disk_dir)
    assert "offset 65536" in kept.steps[1].failed_as_expected
    found = [check for check in checks.of_record(kept) if check.law == "a flipped byte is found"]
    assert [check.verdict for check in found] == [checks.PASS]
    # Put back: the same check passes now.
    job = disk_dir / "again.fio"
    job.write_text(kept.steps[1].job)
    assert subprocess.run(["fio", str(job)], capture_output=True, cwd=disk_dir, check=False).returncode == 0


def test_an_unnoticed_flipped_byte_fails(disk_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (TOP / "userspace/fabtune/measure/workloads/ioverify.toml").read_text()
    blind = disk_dir / "blind.toml"
    blind.write_text(text.replace("{ verify_only = 1 }", '{ rw = "read", verify = "null" }'))
    assert measure(disk_dir, str(blind), "--set", "total_bytes=4m") == ExitCode.FAILED
    assert "found nothing wrong" in capsys.readouterr().err
    assert not records(disk_dir)[0].complete


def test_a_byte_to_flip_beyond_the_end_is_said(disk_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(disk_dir, "ioverify", "--set", "total_bytes=32k", "--set", "block_bytes=4k") == ExitCode.FAILED
    assert "no byte 65600" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interruption_ends_the_load_and_keeps_the_record(disk_dir: Path, number: Any) -> None:
    # Whoever runs the tests may ignore a hang-up, and so would what they start.
    command = [
        "env", "--default-signal=INT,TERM,HUP", sys.executable, "-m", "fabtune", "measure", "xdd",
        "--on", str(disk_dir), "--out", str(disk_dir / "runs"),
        "--set", "total_bytes=16m", "--runtime", "60s", "--ramp", "0s",
    ]  # fmt: skip
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(TOP / "userspace")}, stderr=subprocess.PIPE)
    load = wait_for(lambda: moving(process.pid))
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == ExitCode.INTERRUPTED
    assert b"Traceback" not in errors
    assert not runs(load)
    (kept,) = records(disk_dir)
    assert not kept.complete and kept.problem == "interrupted by the user"
    assert kept.steps[0].fio.moved_bytes() > 0
    assert not list(disk_dir.glob("fabtune-*"))


@pytest.mark.parametrize("trouble", [KeyboardInterrupt(), OSError(errno.ENODEV, "No such device")])
def test_trouble_during_the_first_sample_keeps_what_was_measured(
    disk_dir: Path, monkeypatch: pytest.MonkeyPatch, trouble: Any
) -> None:
    def first(watch: Any, *, edge: Any = False) -> None:
        monkeypatch.undo()
        wait_for(lambda: moving(os.getpid()))
        raise trouble

    # The host is looked at before the load too.
    monkeypatch.setattr(workload_run, "_idle", lambda *words: ())
    monkeypatch.setattr(Watch, "sample", first)
    load = workload.load("xdd").with_parameters(["op=read", "total_bytes=16m"])
    with pytest.raises(workload_run.IncompleteError) as caught:
        workload_run.measure(load, target.find(str(disk_dir)), runtime_s=60, ramp_s=0)
    fio = caught.value.record.steps[0].fio
    assert fio is not None and fio.moved_bytes() > 0


def test_a_sample_says_that_a_session_is_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "SYS", tmp_path)
    on = attrs.evolve(target.find(str(tmp_path)), sessions=(1, 2))
    states = [tmp_path / f"class/iscsi_session/session{sid}/state" for sid in on.sessions]
    for state in states:
        state.parent.mkdir(parents=True)
        state.write_text("LOGGED_IN\n")
    watch = Watch(on, None)
    assert "iscsi.sessions_out" not in watch.sample(edge=True)
    states[0].write_text("FAILED\n")
    assert watch.sample(edge=True)["iscsi.sessions_out"] == 1
    # One that was logged out is out as well.
    states[1].unlink()
    assert watch.sample(edge=True)["iscsi.sessions_out"] == 2


def test_the_load_dies_with_its_starter(disk_dir: Path) -> None:
    command = [
        sys.executable, "-m", "fabtune", "measure", "xdd", "--on", str(disk_dir), "--out", str(disk_dir / "runs"),
        "--set", "total_bytes=16m", "--runtime", "60s", "--ramp", "0s",
    ]  # fmt: skip
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(TOP / "userspace")}, stderr=subprocess.PIPE)
    load = wait_for(lambda: moving(process.pid))
    process.kill()
    process.communicate()
    wait_for(lambda: not runs(load))


def moving(parent: Any) -> Any:
    """The pid of the fio below `parent`, once it has moved data."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text().partition("(")[2].partition(") ")
            if name == "fio" and int(rest.split()[1]) == parent:
                moved = dict(line.split(": ") for line in (path.parent / "io").read_text().splitlines())
                # More than fio's own pages come to: before its first request it ends without a word.
                if int(moved["read_bytes"]) > 2**26:
                    return int(path.parent.name)
    return None


def wait_for(found: Any, timeout_s: Any = 120) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (value := found()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)
    return value


def test_fio_failing_is_said_in_its_own_words(disk_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = disk_dir / "bad.toml"
    text = (TOP / "userspace/fabtune/measure/workloads/oltp.toml").read_text()
    bad.write_text(text.replace('rw = "randrw"', 'rw = "sideways"'))
    assert measure(disk_dir, str(bad), "--runtime", "1s") == ExitCode.FAILED
    errors = capsys.readouterr().err
    assert "fio ended with status 1" in errors and "sideways" in errors
    assert records(disk_dir)[0].problem


def test_missing_fio_is_said(
    disk_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(disk_dir))
    monkeypatch.setattr("fabtune.host.run.shutil.which", lambda *_, **__: None)
    assert measure(disk_dir, "xdd") == ExitCode.FAILED
    assert "apt-get install fio" in capsys.readouterr().err


def test_no_room_is_said_before_anything_runs(disk_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(disk_dir, "lmdd", "--set", "job_bytes=900000g") == ExitCode.FAILED
    assert "make it smaller with --set" in capsys.readouterr().err
    assert not (disk_dir / "runs").exists()


def test_a_record_that_cannot_be_kept_where_asked_is_kept_elsewhere(
    disk_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    # Where pmcd runs its archive has nowhere to go either.
    monkeypatch.setattr(pcp, "is_there", lambda: True)
    (disk_dir / "runs").write_text("no directory")
    assert measure(disk_dir, "xdd", "--set", "total_bytes=4m") == ExitCode.FAILED
    errors = capsys.readouterr().err
    assert "no PCP archive" in errors
    (kept,) = recordfile.find(tmp_path)
    assert f"kept: {kept}" in errors and "File exists" in errors
    assert recordfile.read(kept).complete


def test_every_thread_of_pileup_reads(disk_dir: Path) -> None:
    words = ["--set", "files=4", "--set", "file_bytes=2m", "--set", "threads=8", "--runtime", "300ms", "--ramp", "0s"]
    assert measure(disk_dir, "pileup", *words) == ExitCode.DONE
    (step,) = records(disk_dir)[0].steps
    assert len(step.fio.jobs) == 8 and all(job.read.total_ios for job in step.fio.jobs)


def test_daq_names_the_highest_rate_that_both_sides_held(disk_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--set", "stream_bytes_per_s=100000,200000000000", "--set", "file_bytes=2m", "--set", "block_bytes=10k"]
    assert measure(disk_dir, "daq", *words, "--runtime", "2s", "--ramp", "1s") == ExitCode.DONE
    said = capsys.readouterr().out
    # A loaded machine holds not even the lower one.
    asked_mb_per_s, (first, *_) = 0.8, records(disk_dir)[0].steps
    reached = [one.value for one in metrics.of_step(first) if one.key in ("read_mb_per_s", "write_mb_per_s")]
    held = len(reached) == 2 and min(reached) >= 0.98 * asked_mb_per_s
    assert f"readers and writers both held: {'0.8 MB/s each way' if held else 'none of those asked for'}" in said


@pytest.mark.parametrize("name", ["metabench", "ioverify"])
def test_what_ends_with_its_data_has_no_run_time(disk_dir: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    # fio would open files that are there already, and call that creating them; the next phase would miss some.
    assert measure(disk_dir, name, "--runtime", "1s") == ExitCode.USAGE
    assert f"workload '{name}' ends when its data is done: --runtime and --ramp cannot" in capsys.readouterr().err
    assert not (disk_dir / "runs").exists()


def test_metabench_counts_files_and_each_phase_has_its_own_curve(
    disk_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measure(disk_dir, "metabench", "--set", "files=300", "--set", "processes=1,2", "--json") == ExitCode.DONE
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert len(steps) == 12
    assert all(step["files_per_s"] > 100 and not any("mb_per_s" in key for key in step) for step in steps)
    assert main(["report", str(disk_dir / "runs")]) == ExitCode.DONE
    html = (disk_dir / "runs/report.html").read_text()
    for phase in ("create, own directories", "stat, own directories", "delete, one directory"):
        assert f"metabench {phase} over clients" in html
    assert "files/s" in html


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["xdd", "--on", "/nowhere"], "expected a block device or a directory"),
        (["xdd", "--on", "/etc/hostname"], "neither a block device nor a directory"),
        (["latency", "--on", "/var/tmp", "--set", "nope=1"], "has the parameters"),
    ],
)
def test_bad_targets_are_refused(words: Any, says: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", *words]) == ExitCode.USAGE
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--runtime", "5"], ["--rtt", "-5ms"], ["--rate", "fast"]])
def test_bad_quantities_are_refused(words: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "xdd", "--on", "/var/tmp", *words]) == ExitCode.USAGE
    assert words[0] in capsys.readouterr().err


def test_ab_switches_before_every_run_and_back_at_the_end(disk_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    switch = disk_dir / "switch"
    switch.write_text(f'#!/bin/sh\necho "$1" >> {disk_dir}/log\n')
    switch.chmod(0o755)
    words = ["ab", "untouched", "wan", "xdd", "--on", str(disk_dir), "--out", str(disk_dir / "runs"), "--settle", "0s"]
    words += ["--set", "total_bytes=4m", "--set", "op=read", "--pairs", "2", "--calibrate", "2"]
    assert main([*words, "--switch", str(switch), "--json"]) == ExitCode.CANNOT_TELL
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["a"], outcome["b"]) == ("untouched", "wan")
    assert outcome["rows"][0]["figure"] == "read_mb_per_s" and outcome["rows"][0]["n"] == 2
    assert "at least 3 are needed" in outcome["rows"][0]["why"]
    assert any(note.startswith("A against A, read: ") for note in outcome["notes"])
    log = (disk_dir / "log").read_text().split()
    assert log[:4] == ["untouched"] * 4 and sorted(log[4:8]) == ["untouched", "untouched", "wan", "wan"]
    assert log[8:] == ["untouched"]
    sides = [(one.session.side, one.label) for one in records(disk_dir) if "pairs" in one.session.id]
    assert sorted(sides) == [("A", "untouched"), ("A", "untouched"), ("B", "wan"), ("B", "wan")]
    # The whole session is one report.
    assert main(["report", str(disk_dir / "runs")]) == ExitCode.DONE
    html = (disk_dir / "runs/report.html").read_text()
    assert "xdd: wan against untouched, session" in html


def test_a_switch_that_fails_ends_the_session(disk_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["ab", "untouched", "wan", "xdd", "--on", str(disk_dir), "--switch", "/bin/false", "--calibrate", "0"]
    assert main(words) == ExitCode.FAILED
    assert "switching to 'untouched' failed: /bin/false untouched" in capsys.readouterr().err
    assert not (disk_dir / "runs").exists()


@pytest.mark.parametrize("more", [[], ["--switch", "/bin/true"]])
@pytest.mark.parametrize("sides", [("default", "wan"), ("wan", "default")])
def test_ab_tells_the_new_word_for_nothing_applied(
    disk_dir: Path, capsys: pytest.CaptureFixture[str], sides: Any, more: Any
) -> None:
    assert main(["ab", *sides, "xdd", "--on", str(disk_dir), *more]) == ExitCode.USAGE
    assert "ab default: 'default' is a profile" in (said := capsys.readouterr().err)
    assert "nothing applied is 'untouched' now" in said


@pytest.mark.parametrize("command", ["/no/such/program", "'", ""])
def test_a_switch_that_cannot_be_run_is_refused(
    disk_dir: Path, capsys: pytest.CaptureFixture[str], command: Any
) -> None:
    code = main(["ab", "a", "b", "xdd", "--on", str(disk_dir), "--switch", command or " "])
    assert code == ExitCode.USAGE
    assert f"--switch {command or ' '}: " in capsys.readouterr().err


@pytest.mark.parametrize(("term", "bar"), [("xterm", True), ("dumb", False), ("unknown", False)])
def test_a_terminal_that_cannot_redraw_gets_lines(monkeypatch: pytest.MonkeyPatch, term: Any, bar: Any) -> None:
    monkeypatch.setattr("sys.stderr", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setenv("TERM", term)
    assert isinstance(progress.for_stderr(), progress.TerminalProgress) is bar


def test_odd_numbers_of_pairs_are_refused(disk_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ab", "a", "b", "xdd", "--on", str(disk_dir), "--pairs", "7"]) == ExitCode.USAGE
    assert "even number of pairs" in capsys.readouterr().err


@pytest.mark.skipif(Path("/sys/module/fabstat").exists(), reason="fabstat is loaded here")
def test_what_cannot_begin_leaves_no_record(disk_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(disk_dir, "stress128", "--set", "total_bytes=4m") == ExitCode.FAILED
    assert "load fabstat.ko first" in capsys.readouterr().err
    assert main(["measure", "net", "--peer", "no-such-host.invalid", "--out", str(disk_dir / "runs")]) == ExitCode.USAGE
    assert "--peer no-such-host.invalid: " in capsys.readouterr().err
    assert not (disk_dir / "runs").exists()


@pytest.mark.skipif(not pcp.is_there(), reason="no pmcd is running here")
def test_archive_where_pmcd_runs_has_the_samplers_metrics(disk_dir: Path) -> None:
    assert measure(disk_dir, "oltp", "--set", "total_bytes=16m", "--runtime", "4s", "--ramp", "0s") == ExitCode.DONE
    (kept,) = records(disk_dir)
    archive = disk_dir / "runs" / kept.pcp_archive / "run"
    names = [name for name in kept.steps[0].samples[0] if not name.startswith(("time.", "fabstat.", "exact."))]
    found = subprocess.run(["pmprobe", "-a", str(archive), *names], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in found.stdout.splitlines() if int(line.split()[1]) >= 0] == names


def test_a_broken_pmlogger_costs_the_archive_alone(
    disk_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = disk_dir / "bin"
    fake.mkdir()
    (fake / "pmlogger").write_text("#!/bin/sh\nexit 1\n")
    (fake / "pmlogger").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    monkeypatch.setattr(pcp, "PMCD_SOCKET", fake)
    assert measure(disk_dir, "xdd", "--set", "total_bytes=4m") == ExitCode.DONE
    assert "no PCP archive" in capsys.readouterr().err
    assert records(disk_dir)[0].complete and not list((disk_dir / "runs").glob("*.pcp"))

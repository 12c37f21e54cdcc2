# SPDX-License-Identifier: GPL-2.0-or-later
"""Results that are stale, mixed, cut short, edited, of another schema or kernel: each is refused, or it is said."""

import gzip
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from run_records import make_record

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.experiment import batch, definition, inventory, present, results
from fabtune.measure import keptrun, recordfile
from fabtune.model.results import Point
from fabtune.model.runrecord import LAB_GUEST
from fabtune.report import cells, suite

TOP = Path(__file__).resolve().parents[2]
TEXT = """summary = "s"
seeds = 2
[factors]
profile = ["untouched", "wan"]
[fixed]
rtt = "50ms"
depth = 32
"""
RECORD = f"read{recordfile.SUFFIX}"
WAN_1, WAN_2, UNTOUCHED_1 = "profile=wan/run-1", "profile=wan/run-2", "profile=untouched/run-1"


@pytest.fixture(autouse=True)
def _lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lab with an image, whatever this machine has."""
    known = present.origin_now
    as_built = {"packages": "p" * 64, "kernel": "6.12.1"}
    monkeypatch.setattr(batch, "origin_now", lambda *asked: attrs.evolve(known(*asked), **as_built))


def make_tree(directory: Path) -> Path:
    (directory / "exp.toml").write_text(TEXT)
    out = directory / "exp"
    wanted = definition.load(str(directory / "exp.toml"))
    runs = batch.runs_of(wanted, wanted.combinations(), out)
    for number, run in enumerate(runs):
        recordfile.write(make_record(100.0 + number, label=run.settings.profile), run.directory / RECORD)
        run.keep([Point({"profile": run.settings.profile, "op": "read", "mb_per_s": 100.0 + number})])
    results.write(results.of_experiment(wanted, runs, out, []), out)
    return out


def said(tree: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """What `run --resume` and `report` say of the tree, and the exit code of the latter."""
    assert main(["run", str(tree.parent / "exp.toml"), "--out", str(tree), "--resume", "--dry-run"]) == 0
    code = main(["report", str(tree)])
    return code, capsys.readouterr().err


def json_of(path: Path) -> Any:
    return json.loads(path.read_text())


def put(path: Path, content: Any) -> Path:
    path.chmod(0o644)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def cut(path: Path) -> None:
    put(path, path.read_bytes()[: path.stat().st_size // 2])


def resealed(run: Path, **changes: Any) -> None:
    """Let the note of a run say something else of where it came from, with a digest that fits."""
    kept = keptrun.read_note(run)
    keptrun.seal(run, attrs.evolve(kept.origin, **changes))


def set_key(path: Path, value: Any, *keys: Any) -> None:
    whole = json_of(path)
    inner = whole
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    put(path, whole)


def edited_record(path: Path) -> None:
    record = json.loads(gzip.decompress(path.read_bytes()))
    record["label"] = "wan"
    put(path, gzip.compress(json.dumps(record).encode(), mtime=0))


def of_kernel(tree: Path, place: str, kernel: str) -> None:
    path = tree / place / RECORD
    record = json.loads(gzip.decompress(path.read_bytes()))
    record["host"]["kernel"] = kernel
    put(path, gzip.compress(json.dumps(record).encode(), mtime=0))
    resealed(path.parent, kernel=kernel)


def swap(tree: Path, *names: str) -> None:
    for name in names:
        first, second = (tree / place / name for place in (WAN_1, UNTOUCHED_1))
        ours, theirs = first.read_bytes(), second.read_bytes()
        put(first, theirs)
        put(second, ours)


def redefine(tree: Path, old: str, new: str) -> None:
    path = tree.parent / "exp.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def settings_in_force(tree: Path, **changes: Any) -> None:
    """Let a run have been measured with other settings than its place says."""
    kept, _ = keptrun.read(tree / WAN_1)
    resealed(tree / WAN_1, settings=kept.origin.settings | changes)


def edit_index(tree: Path, change: Callable[[Any], object]) -> None:
    index = json_of(tree / "index.json")
    change(index)
    put(tree / "index.json", index)


def of_wan(index: Any) -> Any:
    """What an index says of the combination with wan."""
    return index["combinations"][1]


def stray(tree: Path, place: str) -> None:
    recordfile.write(make_record(50.0, label="wan", start=9.0), tree / place / RECORD)


def move_and_link(tree: Path, place: str) -> None:
    there = tree.parent / "elsewhere" / Path(place).name
    there.parent.mkdir()
    shutil.move(tree / place, there)
    (tree / place).symlink_to(there)


def drop_with_entry(tree: Path) -> None:
    edit_index(tree, lambda i: of_wan(i)["runs"].pop())
    shutil.rmtree(tree / WAN_2)


def link_to_another(tree: Path) -> None:
    shutil.rmtree(tree / WAN_2)
    (tree / WAN_2).symlink_to("run-1")


def swap_directories(tree: Path) -> None:
    for old, new in ((WAN_1, "profile=wan/x"), (WAN_2, WAN_1), ("profile=wan/x", WAN_2)):
        (tree / old).rename(tree / new)


def lose_note(tree: Path) -> None:
    for name in ("run.json", "points.json"):
        (tree / WAN_1 / name).unlink()


Break = Callable[[Path], object]
INDEXED = ("combinations", 1, "runs", 0)
CASES: dict[str, tuple[Break, str]] = {
    # Stale: the definition, the lab or the code has moved on.
    "stale rate": (lambda t: redefine(t, "[fixed]", '[fixed]\nrate = "10mbit"'), "bit_per_s was 1e.09, is 1e.07"),
    "stale depth": (lambda t: redefine(t, "depth = 32", "depth = 1"), "queue_depth was 32, is 1"),
    "stale round trip": (lambda t: redefine(t, "50ms", "20ms"), "rtt_ms was 50, is 20"),
    "stale size": (lambda t: redefine(t, "[fixed]", '[fixed]\nsize = "4KiB"'), "size_bytes was 262144, is 4096"),
    "stale run time": (lambda t: redefine(t, "[fixed]", '[fixed]\nruntime = "9s"'), "runtime_s was 3, is 9"),
    "stale workload": (lambda t: redefine(t, "[fixed]", '[fixed]\nworkload = "oltp"'), "workload was xdd, is oltp"),
    "stale seed": (lambda t: redefine(t, "[fixed]", "[fixed]\nseed = 7"), "seed was 1, is 7"),
    "stale clock": (lambda t: redefine(t, 'summary = "s"', 'clock = "real"'), "clock was virtual, is real"),
    "stale kernel": (lambda t: resealed(t / WAN_1, kernel="6.12.0"), "kernel was 6.12.0, is 6.12.1"),
    "stale image": (lambda t: resealed(t / WAN_1, image="trixie 0"), "image recipe was trixie 0, is trixie"),
    "stale packages": (lambda t: resealed(t / WAN_1, packages="q"), "packages of the image changed"),
    "stale module": (lambda t: resealed(t / WAN_1, module="0"), "fabstat.ko changed"),
    "stale code": (lambda t: resealed(t / WAN_1, code="0"), "code of fabtune changed"),
    "a fleet's": (lambda t: resealed(t / WAN_1, hosts=("a",)), "the host was a, is the lab"),
    # Mixed: one tree, several origins.
    "two kernels": (lambda t: of_kernel(t, WAN_2, "6.1.0"), "2 kinds of kernel together: 6.1.*6.1"),
    "two images": (lambda t: resealed(t / WAN_2, image="sid 1"), "2 kinds of image recipe together"),
    "two modules": (lambda t: resealed(t / WAN_2, module="1"), "2 kinds of fabstat.ko together"),
    "two codes": (lambda t: resealed(t / WAN_2, code="1"), "2 kinds of code of fabtune together"),
    "two clocks": (lambda t: resealed(t / WAN_2, clock="real"), "2 kinds of clock together: .*real"),
    "swapped records": (lambda t: swap(t, RECORD), f"{WAN_1}/{RECORD}: not what the run left"),
    "swapped points": (lambda t: swap(t, "points.json"), f"{WAN_1}/points.json: not what the run left"),
    "swapped runs": (lambda t: swap(t, RECORD, "points.json", "run.json"), "figures in index.json"),
    "another's record": (lambda t: shutil.copy(t / WAN_2 / RECORD, t / WAN_1 / f"write{recordfile.SUFFIX}"),
                         "write.run.json.gz: not of this run"),
    "a run of no definition": (lambda t: shutil.copytree(t / WAN_1, t / "profile=lan/run-1"),
                               "profile=lan/run-1: not of this experiment"),
    "other settings in force": (lambda t: settings_in_force(t, loss=0.1), "loss was 0.1, is 0"),
    # Cut short.
    "points cut": (lambda t: cut(t / WAN_1 / "points.json"), "points.json: not what the run left: cut short"),
    "points empty": (lambda t: put(t / WAN_1 / "points.json", b""), "points.json: not what the run left: cut short"),
    "points gone": (lambda t: (t / WAN_1 / "points.json").unlink(), "points.json: missing; the run left it"),
    "record cut": (lambda t: cut(t / WAN_1 / RECORD), "read.run.json.gz: not what the run left"),
    "record gone": (lambda t: (t / WAN_1 / RECORD).unlink(), "read.run.json.gz: missing; the run left it"),
    "record empty": (lambda t: put(t / WAN_1 / RECORD, b""), "read.run.json.gz: not what the run left"),
    "note cut": (lambda t: cut(t / WAN_1 / "run.json"), "run.json: damaged or cut short"),
    "note gone": (lambda t: (t / WAN_1 / "run.json").unlink(), "missing: nothing says which|runs? without run.json"),
    "index cut": (lambda t: cut(t / "index.json"), "index.json: damaged or cut short"),
    "a run gone": (lambda t: shutil.rmtree(t / WAN_1), f"{WAN_1}: missing"),
    # Edited.
    "points edited": (lambda t: set_key(t / WAN_1 / "points.json", 999.0, 0, "mb_per_s"), "changed, or another run's"),
    "record edited": (lambda t: edited_record(t / UNTOUCHED_1 / RECORD), "read.run.json.gz: not what the run left"),
    "index edited": (lambda t: set_key(t / "index.json", 999.0, *INDEXED, "points", 0, "mb_per_s"), "figures in index"),
    "settings in index edited": (lambda t: set_key(t / "index.json", 64, *INDEXED, "settings", "queue_depth"),
                                 "queue_depth was 32, is 64"),
    "factors in index edited": (lambda t: set_key(t / "index.json", "lan", *INDEXED[:2], "factors", "profile"),
                                "index.json calls the profile 'lan', the run was made with wan"),
    "a factor in index renamed": (lambda t: set_key(t / "index.json", {"nope": "wan"}, *INDEXED[:2], "factors"),
                                  "index.json has a factor 'nope'"),
    "a factor in index that is none": (lambda t: set_key(t / "index.json", {"rtt": "far"}, *INDEXED[:2], "factors"),
                                       "index.json: rtt 'far': expected"),
    "origin in index edited": (lambda t: set_key(t / "index.json", "7.2", *INDEXED, "origin", "kernel"),
                               "the kernel was 6.12.1, is 7.2"),
    "clock in index edited": (lambda t: set_key(t / "index.json", "real", "clock"), "the clock was virtual, is real"),
    "note's settings edited": (lambda t: set_key(t / WAN_1 / "run.json", 64, "origin", "settings", "queue_depth"),
                               "run.json: changed since the run ended"),
    "note's files dropped": (lambda t: set_key(t / WAN_1 / "run.json", {}, "files"), "run.json: changed since the run"),
    # Of another version, or of none.
    "schema of a note": (lambda t: set_key(t / WAN_1 / "run.json", "fabtune-kept-run/9", "schema"),
                         "schema is 'fabtune-kept-run/9', expected 'fabtune-kept-run/1'"),
    "schema of the index": (lambda t: set_key(t / "index.json", "fabtune-experiment-index/9", "schema"),
                            "schema is 'fabtune-experiment-index/9'"),
    "no note at all": (lambda t: put(t / WAN_1 / "run.json", []), "schema is None, expected"),
    "a key of the note gone": (lambda t: put(t / WAN_1 / "run.json", {"schema": "fabtune-kept-run/1"}),
                               "run.json: key 'origin' is missing"),
    "figures that are none": (lambda t: resealed(put(t / WAN_1 / "points.json", b'[{"mb_per_s": NaN}]').parent),
                              "points.json: key .*found nan .*finite"),
    # What no run says: the index holds it twice, and against itself.
    "name in index edited": (lambda t: set_key(t / "index.json", "wan-rtt", "name"), "testrun.xml: does not say of"),
    "source in index edited": (lambda t: set_key(t / "index.json", "nobody", "source"), "not say of the source"),
    "command in index edited": (lambda t: set_key(t / "index.json", ["x"], "commands"), "not say of the command"),
    "files in index edited": (lambda t: set_key(t / "index.json", [], *INDEXED, "files"),
                              "not say of the combination 'profile=wan'"),
    "XML edited": (lambda t: put(t / "testrun.xml", (t / "testrun.xml").read_bytes().replace(b"103.0", b"999.0")),
                   "testrun.xml: does not say of the combination 'profile=wan'"),
    "XML cut": (lambda t: cut(t / "testrun.xml"), "testrun.xml: damaged or cut short"),
    "fixed in index edited": (lambda t: set_key(t / "index.json", "20ms", "fixed", "rtt"),
                              "calls the rtt '20ms', the run was made with 50"),
    "seeds in index edited": (lambda t: set_key(t / "index.json", 30, "seeds"), "of 30 runs of .*; and 1 more are"),
    "a list in index edited": (lambda t: edit_index(t, lambda i: i["factors"]["profile"].append("lan")),
                                      "lists 2 of the 3 combinations that its factors ask for"),
    "a combination's name edited": (lambda t: edit_index(t, lambda i: of_wan(i).update(name="profile=lan")),
                                    "calls it run 1 of profile=lan, in profile=wan/run-1; it is one of profile=wan"),
    "a run's number edited": (lambda t: set_key(t / "index.json", 77, *INDEXED, "number"), "calls it run 77"),
    "a run twice": (lambda t: edit_index(t, lambda i: of_wan(i)["runs"].append(of_wan(i)["runs"][0])),
                    "of 2 runs of profile=wan it lists 1, 1, 2"),
    "a combination twice": (lambda t: edit_index(t, lambda i: i["combinations"].append(of_wan(i))),
                            "lists profile=wan 2 times"),
    "a run and its entry gone": (drop_with_entry, "of 2 runs of profile=wan it lists 1"),
    "a run not listed": (lambda t: edit_index(t, lambda i: of_wan(i)["runs"].pop()), f"{WAN_2}: not of this experim"),
    "a combination not listed": (lambda t: edit_index(t, lambda i: i["combinations"].pop()), f"{WAN_1}: not of this"),
    "a run said to have failed": (lambda t: set_key(t / "index.json", "failed", *INDEXED, "status"),
                                  f"{WAN_1}: index.json says 'failed', but it has been measured"),
    "index gone": (lambda t: (t / "index.json").unlink(), "exp: no index.json: nothing says which runs there should"),
    "another's summary": (lambda t: (t / "summary.json").write_text('[{"mb_per_s": 9.0}]'), "summary.json: not what"),
    # In the place of others, or among them.
    "run directories swapped": (swap_directories, f"{WAN_1}: the figures in index.json"),
    "note and points gone": (lose_note, f"{WAN_1}: missing: index.json calls it measured, and there is no run.json"),
    "a record of no run": (lambda t: stray(t, "profile=wan/run-9"), "run-9/read.run.json.gz: of no run of this exp"),
    "a record beside the runs": (lambda t: stray(t, "profile=wan"), "wan/read.run.json.gz: of no run of this exp"),
    "a combination that is a link": (lambda t: move_and_link(t, "profile=wan"), f"{WAN_1}: profile=wan is a link to"),
    "a run that is a link": (lambda t: move_and_link(t, WAN_1), f"{WAN_1}: run-1 is a link to .*elsewhere/run-1"),
    "a run that is a link to another": (link_to_another, f"{WAN_2}: run-2 is a link to .*run-1"),
}  # fmt: skip
# Of these `compare` of the two combinations says the same as `report` of the tree, and neither uses them.
OF_BOTH = (
    "swapped runs", "a run gone", "factors in index edited", "a combination's name edited", "a run's number edited",
    "a run not listed", "a combination not listed", "run directories swapped", "note and points gone",
    "a record of no run", "a record beside the runs", "a combination that is a link", "a run that is a link",
    "a run that is a link to another",
)  # fmt: skip


def test_there_are_forty_of_them() -> None:
    assert len(CASES) >= 40


def test_of_a_sound_tree_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(make_tree(tmp_path), capsys)
    assert (code, text) == (0, "0 runs, about 0 minutes on this machine (virtual clock)\n")


@pytest.mark.parametrize("case", CASES)
def test_a_broken_tree_is_refused_or_it_is_said(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = make_tree(tmp_path)
    breaks, words = CASES[case]
    breaks(tree)
    _, text = said(tree, capsys)
    assert re.search(words, text), text


@pytest.mark.parametrize("place", ["", "/run-1", f"/run-1/{RECORD}"])
@pytest.mark.parametrize("case", OF_BOTH)
def test_compare_and_report_have_one_outcome(
    case: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`compare` looked at nothing above a combination: "better, 32 times", of what `report` refused."""
    tree = make_tree(tmp_path)
    breaks, words = CASES[case]
    breaks(tree)
    code, text = said(tree, capsys)
    assert code == ExitCode.FAILED and re.search(words, text), text
    if place and (f"{WAN_1}: " not in text or WAN_2 in words or not (tree / f"profile=wan{place}").exists()):
        pytest.skip("the run that is named is another one")
    # From within, too, where the names on the command line have nothing above them.
    monkeypatch.chdir(tree if place else tmp_path)
    sides = [str((tree / f"profile={name}{place}").relative_to(Path.cwd())) for name in ("untouched", "wan")]
    assert main(["compare", *sides]) == ExitCode.USAGE
    assert re.search(words, capsys.readouterr().err)


def test_a_link_that_nobody_follows_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("runs/a", "elsewhere"):
        recordfile.write(make_record(100.0, label=place), tmp_path / place / RECORD)
    (tmp_path / "runs/b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "runs/a/loop").symlink_to(tmp_path)
    assert main(["report", str(tmp_path / "runs")]) == ExitCode.DONE
    told = capsys.readouterr().err
    assert f"runs/b: a link to a directory, which is not looked into: name {tmp_path}/elsewhere itself" in told
    assert "loop" not in told


def test_a_copy_that_is_packed_otherwise_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = recordfile.write(make_record(100.0), tmp_path / f"a{recordfile.SUFFIX}")
    document = json.loads(gzip.decompress(first.read_bytes()))
    again = json.dumps(dict(reversed(document.items())), indent=1).encode()
    (tmp_path / f"b{recordfile.SUFFIX}").write_bytes(gzip.compress(again, 1))
    assert main(["report", str(tmp_path), "--json"]) == ExitCode.FAILED
    told = capsys.readouterr()
    assert len(json.loads(told.out)) == 1 and "b.run.json.gz: a copy of" in told.err


def test_what_is_larger_than_memory_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """6 GB of nothing, named as a record or as a guest's console, were read whole before anybody looked how many."""
    tree = make_tree(tmp_path)
    for place in (WAN_1, UNTOUCHED_1):
        (tree / place / "console.log").touch()
        resealed(tree / place)
    os.truncate(tree / WAN_1 / "console.log", 64 << 20)
    (tmp_path / f"huge{recordfile.SUFFIX}").touch()
    os.truncate(tmp_path / f"huge{recordfile.SUFFIX}", 6 << 30)

    def read_whole(path: Path) -> bytes:
        if path.stat().st_size > 32 << 20:
            raise MemoryError
        with path.open("rb") as file:
            return file.read()

    monkeypatch.setattr(Path, "read_bytes", read_whole)
    assert main(["report", str(tmp_path)]) == ExitCode.FAILED
    told = capsys.readouterr().err
    assert "huge.run.json.gz: 6442450944 bytes; at most 67108864 are allowed" in told
    assert f"{WAN_1}/console.log: not what the run left" in told


def test_what_is_refused_takes_no_part_in_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = make_tree(tmp_path)
    edited_record(tree / WAN_1 / RECORD)
    assert main(["report", str(tree), "--json"]) == 1
    shown = [one["file"] for one in json.loads(capsys.readouterr().out)]
    assert f"{WAN_1}/{RECORD}" not in shown and len(shown) == 3


def test_compare_refuses_what_report_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = make_tree(tmp_path)
    sides = str(tree), str(tree / "profile=wan")
    assert main(["compare", *sides]) == ExitCode.CANNOT_TELL
    edited_record(tree / WAN_1 / RECORD)
    capsys.readouterr()
    assert main(["compare", *sides]) == 2
    assert re.search(f"{WAN_1}/{RECORD}: not what the run left", capsys.readouterr().err)


def test_one_record_is_refused_where_its_run_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run's directory was refused, the edited record in it was compared when named itself."""
    tree = make_tree(tmp_path)
    sides = [str(tree / place / RECORD) for place in (UNTOUCHED_1, WAN_1)]
    assert main(["compare", *sides]) == ExitCode.CANNOT_TELL
    edited_record(tree / WAN_1 / RECORD)
    capsys.readouterr()
    assert main(["compare", *sides]) == ExitCode.USAGE
    assert f"{WAN_1}/{RECORD}: not what the run left" in capsys.readouterr().err


def test_a_stale_run_is_no_result_of_the_definition(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    redefine(tree, "[fixed]", '[fixed]\nrate = "10mbit"')
    wanted = definition.load(str(tmp_path / "exp.toml"))
    runs = batch.runs_of(wanted, wanted.combinations(), tree)
    index = results.of_experiment(wanted, runs, tree, [])
    assert {run.status for cell in index.combinations for run in cell.runs} == {"refused"}
    assert batch.summary_of(runs) == []


@pytest.mark.parametrize("options", [[], ["--resume"]])
def test_an_interrupted_experiment_does_not_show_the_figures_of_the_last_one(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page of an experiment none of whose runs was measured led to those of 1 Gb/s, and so did summary.json."""
    tree = make_tree(tmp_path)
    views = [tree / name for name in ("summary.json", "figures.html", "report.html")]
    for view in views:
        view.write_text("119.5 MB/s")
    redefine(tree, "[fixed]", '[fixed]\nrate = "10mbit"')

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "build_image", interrupted)
    run = ["run", str(tmp_path / "exp.toml"), "--out", str(tree), *options]
    assert main(run) == ExitCode.INTERRUPTED
    assert "0 of 4 runs are kept" in capsys.readouterr().err
    assert not [view.name for view in views if view.exists()]
    page = (tree / "index.html").read_text()
    assert not [view.name for view in views if view.name in page]


def test_what_is_wrong_with_a_neighbour_does_not_end_an_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another experiment's damaged index hid how to go on, and ended a whole run with exit 2."""
    tree = tmp_path / "out"
    tree.mkdir()
    shutil.move(make_tree(tmp_path), tree / "exp")
    neighbour = tree / "other/index.json"
    neighbour.parent.mkdir()
    neighbour.write_text("{")

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "run_all", interrupted)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "exp.toml", "--resume"]) == ExitCode.INTERRUPTED
    told = capsys.readouterr().err
    assert "4 of 4 runs are kept; go on with `fabtune run exp.toml --resume`" in told
    assert "out/other/index.json: damaged or cut short" in told
    assert "exp" in (tree / "index.html").read_text() and (tree / "exp/index.html").exists()
    assert main(["report", "--tree", "out"]) == ExitCode.FAILED
    assert "not used: out/other/index.json: damaged or cut short" in capsys.readouterr().err
    assert "exp" in (tree / "index.html").read_text()


def test_runs_by_different_clocks_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`compare` held one second of a virtual clock against one of a real one, and `report` of both trees mixed them."""
    first, second = (tmp_path / name for name in ("first", "second"))
    for place, clock in ((first, "virtual"), (second, "real")):
        place.mkdir()
        tree = make_tree(place)
        for run in tree.glob("*/run-*"):
            record = recordfile.read(run / RECORD)
            (run / RECORD).chmod(0o644)
            (run / RECORD).unlink()
            recordfile.write(attrs.evolve(record, file="", started_unix_s=float(clock == "real")), run / RECORD)
            resealed(run, clock=clock)
        index = json_of(tree / "index.json")
        for entry in (one for cell in index["combinations"] for one in cell["runs"]):
            entry["origin"]["clock"] = clock
        put(tree / "index.json", index | {"clock": clock})
    a, b = (str(place / "exp/profile=wan") for place in (first, second))
    assert main(["compare", f"{first}/exp/profile=untouched", a]) == ExitCode.CANNOT_TELL
    capsys.readouterr()
    assert main(["compare", a, b]) == ExitCode.USAGE
    assert f"{a} was measured by the virtual clock, {b} by the real one" in capsys.readouterr().err
    main(["report", str(tmp_path)])
    assert f"{tmp_path}: runs of 2 kinds of clock together: virtual, real" in capsys.readouterr().err


def loose(place: Path, like: Path, host: str) -> str:
    """A directory of the records in a tree as anybody has them who has them from `host`: without a note."""
    for number, path in enumerate(sorted(like.rglob(f"*{recordfile.SUFFIX}"))):
        record = recordfile.read(path)
        host_used = attrs.evolve(record.host, name=host)
        mine = attrs.evolve(record, file="", host=host_used, label="mine", started_unix_s=1.0 + number)
        recordfile.write(mine, place / f"{number}{recordfile.SUFFIX}")
    return str(place)


def test_loose_records_are_not_compared_with_those_of_a_virtual_clock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records of `measure` have no note, and so a host's were judged against those of a virtual clock."""
    tree = make_tree(tmp_path)
    virtual = str(tree / "profile=wan")
    real, unknown = (loose(tmp_path / host, tree, host) for host in ("initiator", LAB_GUEST))
    for a, b, said in (
        (virtual, real, f"{virtual} was measured by the virtual clock, {real} by the real one: times of one say noth"),
        (unknown, virtual, f"{unknown} was measured by a clock that nothing names, {virtual} by the virtual one: t"),
        (unknown, real, f"{unknown} was measured by a clock that nothing names, {real} by the real one: times of one"),
    ):
        assert main(["compare", a, b]) == ExitCode.USAGE
        assert said in capsys.readouterr().err
    others = loose(tmp_path / "others", Path(real), "other-host")
    assert main(["compare", real, others]) == ExitCode.CANNOT_TELL
    # The lab's guests tell no clock by their records alone.
    assert LAB_GUEST in (TOP / "userspace/fabtune/lab/guestfs/job-init").read_text()


def test_a_report_judges_no_run_by_another_clock_than_the_other_side_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lab").mkdir()
    tree = make_tree(tmp_path / "lab")
    loose(tmp_path / "mine", tree, "initiator")
    assert main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "cannot tell: runs by the real clock and by the virtual clock" in page
    records, _, _ = suite.load(tmp_path)
    assert {(one.label, one.clock) for one in records} == {
        ("untouched", "virtual"), ("wan", "virtual"), ("mine", "real")
    }  # fmt: skip
    # Neither do runs of one label count together that are by two clocks.
    alike = [attrs.evolve(one, label="wan", host=records[0].host) for one in records]
    assert [len(cell.runs) for cell in cells.cells(alike)] == [4, 4]


def test_runs_of_a_fleet_are_by_the_real_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hosts' runs were sealed "virtual", the definition's default, and judged against the lab's."""
    (tmp_path / "exp.toml").write_text(TEXT)
    wanted = definition.load(str(tmp_path / "exp.toml"))
    one = inventory.Inventory(tmp_path / "hosts.ini", ("one",), ("t",))
    for name, hosts in (("fleet", one), ("lab", None)):
        out = tmp_path / name
        runs = batch.runs_of(wanted, wanted.combinations(), out, hosts)
        for number, run in enumerate(runs):
            record = make_record(100.0 + number, run.settings.profile, start=float(len(run.hosts)))
            recordfile.write(record, run.directory.joinpath(*run.hosts) / RECORD)
            run.keep([Point({"profile": run.settings.profile, "op": "read", "mb_per_s": 100.0})])
        results.write(results.of_experiment(wanted, runs, out, []), out)
    assert json_of(tmp_path / "fleet/index.json")["clock"] == json_of(tmp_path / "fleet" / WAN_1 / "run.json")[
        "origin"
    ]["clock"] == "real"  # fmt: skip
    for sealed in ("real", "virtual"):
        # Of older trees the note says virtual: nothing else is different, and nothing is measured again for that.
        for place in (tmp_path / "fleet").glob("*/run-*"):
            resealed(place, clock=sealed)
        assert {run.state().status for run in batch.runs_of(wanted, wanted.combinations(), tmp_path / "fleet", one)
                } == {"measured"}  # fmt: skip
        capsys.readouterr()
        assert main(["compare", str(tmp_path / "fleet"), str(tmp_path / "lab")]) == ExitCode.USAGE
        assert "fleet was measured by the real clock, " in capsys.readouterr().err

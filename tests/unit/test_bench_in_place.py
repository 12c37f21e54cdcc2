# SPDX-License-Identifier: GPL-2.0-or-later
"""How `make bench-in-place` keeps and judges what its guests tell, without one: each bar can be missed."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS / "bench"), str(_TESTS / "vm")]

import fsync_writer  # noqa: E402
import in_place as bench  # noqa: E402
import in_place_truth as truth  # noqa: E402

_OLD = {truth.BURST: "16776192", "iscsi.time2wait": "2"}
_NEW = {truth.BURST: "131072", "iscsi.time2wait": "0"}
_CASE: dict[str, Any] = {
    "rtt_ms": 10.0, "op": "read", "filesystem": "ext4", "of_relogin": 1.0, "pause_s": 1.5, "foretold_pause_s": 1.4,
    "errors": 0, "bytes_wrong": 0, "records_read": 100, "reconnected": 1,
}  # fmt: skip
_BEGUN: dict[str, Any] = {"seed": 1, "number": 0, "fault": "cut"}
_HELD: dict[str, Any] = {**_BEGUN, "lost": False, "why": []}


def _kept(tmp_path: Path, digest: str = "the code", suite: str = "trixie") -> bench.Kept:
    return bench.Kept(tmp_path / "in-place.json", suite, digest)


def _on_disk(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "in-place.json").read_text())
    return found


def _missed(found: dict[str, Any], faults: int = 0) -> list[str]:
    return bench.missed(found, (10,), ("ext4",), faults)


def test_what_other_code_measured_is_not_judged_but_measured_again(tmp_path: Path) -> None:
    first = _kept(tmp_path)
    first.take("CASE", _CASE)
    first.take("FAULT", _HELD)
    assert not _kept(tmp_path).stale and _kept(tmp_path).found["faults"] == 1
    for other in (_kept(tmp_path, digest="other code"), _kept(tmp_path, suite="bookworm")):
        assert "1 cases and 1 faults" in other.stale and "measured again" in other.stale
        assert not other.found["cases"] and not other.found["faults"]
        assert len(_missed(other.found, faults=1)) == 3


def test_the_result_of_before_there_was_a_digest_is_stale(tmp_path: Path) -> None:
    (tmp_path / "in-place.json").write_text(json.dumps({"suite": "trixie", "cases": [_CASE], "faults": 100}))
    assert _kept(tmp_path).stale and not _kept(tmp_path).found["cases"]


def test_the_digest_is_that_of_all_that_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = bench.code()
    changed = tmp_path / "fsync_writer.py"
    changed.write_text("another writer")
    monkeypatch.setattr(bench, "_GUEST", (*bench._GUEST[:-1], str(changed)))
    assert bench.code() != before
    monkeypatch.undo()
    assert bench.code() == before
    monkeypatch.setattr(bench, "code_digest", lambda: "fabtune was changed")
    assert bench.code() != before


def test_a_fault_that_has_begun_is_lost_until_its_end_is_told(tmp_path: Path) -> None:
    kept = _kept(tmp_path)
    kept.take("BEGUN", _BEGUN)
    found = _on_disk(tmp_path)
    assert found["faults"] == found["faults_lost"] == 1
    assert any(bench.NEVER_ENDED in one for one in _missed(found))
    # Of whatever guest comes next, too.
    assert _kept(tmp_path).found["faults_lost"] == 1
    kept.take("FAULT", _HELD)
    assert (_on_disk(tmp_path)["faults"], _on_disk(tmp_path)["faults_lost"]) == (1, 0)


def test_a_fault_that_did_not_strike_is_not_counted(tmp_path: Path) -> None:
    kept = _kept(tmp_path)
    kept.take("BEGUN", _BEGUN)
    kept.take("MISSED", {**_HELD, "missed": "apply had ended with 0"})
    found = _on_disk(tmp_path)
    assert (found["faults"], found["faults_lost"], found["faults_missed"]) == (0, 0, 1)
    assert "0 faults, 1 demanded" in _missed(found, faults=1)


def test_an_interrupted_run_leaves_no_fault_that_never_ends(tmp_path: Path) -> None:
    kept = _kept(tmp_path)
    kept.take("FAULT", _HELD)
    kept.take("BEGUN", {**_BEGUN, "number": 1})
    kept.drop_begun()
    assert (_on_disk(tmp_path)["faults"], _on_disk(tmp_path)["faults_lost"]) == (1, 0)


def test_guests_share_the_faults_and_no_seed_comes_twice(tmp_path: Path) -> None:
    kept = _kept(tmp_path)
    most = bench.FAULTS_A_GUEST
    claims = [kept.claim(2 * most + 5) for _ in range(4)]
    assert [count for count, _ in claims] == [most, most, 5, 0]
    assert len({seed for _, seed in claims[:3]}) == 3
    kept.settle(most)
    assert kept.claim(2 * most + 5)[0] == most


def test_the_summary_says_where_faults_struck_and_what_proves_it() -> None:
    some = [{"fault": "target", "step": "kept", "status": 1, "unanswered": count, "lost": False} for count in (0, 3)]
    assert bench.summary([*some, {"fault": "cut", "lost": True}]) == [
        "cut: 1, 1 lost; at None 1; apply ended with None (1)",
        "target: 2, 0 lost; at kept 2; apply ended with 1 (2); unanswered in 1 of 2",
    ]


class _Guest:
    """A guest that prints `lines` and ends with `returncode`."""

    def __init__(self, lines: list[str], returncode: int) -> None:
        self.stdout, self.returncode, self.ended = lines, returncode, False

    def __enter__(self) -> "_Guest":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_what_a_guest_told_before_it_failed_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = {**_BEGUN, "number": 1}
    lines = [f"BEGUN {json.dumps(_BEGUN)}\n", f"FAULT {json.dumps(_HELD)}\n", f"BEGUN {json.dumps(second)}\n"]
    monkeypatch.setattr(bench, "lab_started", lambda *_, **__: _Guest([*lines, "not after 200 s\n"], 1))
    kept = _kept(tmp_path)
    assert bench.listen(kept, "trixie", 1, "faults", "10", "1") == 1
    assert (_on_disk(tmp_path)["faults"], _on_disk(tmp_path)["faults_lost"]) == (2, 1)


def test_a_stopped_run_ends_its_guests_and_starts_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, guest = _kept(tmp_path), _Guest([], 1)
    monkeypatch.setattr(guest, "terminate", lambda: setattr(guest, "ended", True), raising=False)
    monkeypatch.setattr(bench, "lab_started", lambda *_, **__: guest)
    bench.listen(kept, "trixie", 1, "faults", "10", "1")
    kept.stop()
    assert guest.ended and kept.claim(10)[0] == 0
    assert bench.measure_faults(kept, "trixie", 10) == 0


def test_a_guest_that_brings_no_fault_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "lab_started", lambda *_, **__: _Guest([], 1))
    with pytest.raises(SystemExit, match="no fault"):
        bench.measure_faults(_kept(tmp_path), "trixie", 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"of_relogin": 0.9}, {"pause_s": 2.1, "foretold_pause_s": 2.1}, {"foretold_pause_s": 1.1}, {"errors": 1},
        {"bytes_wrong": 1}, {"records_read": 0}, {"reconnected": 0},
    ],
)  # fmt: skip
def test_each_bar_of_a_case_can_be_missed(changes: dict[str, Any]) -> None:
    rest: dict[str, Any] = {"faults": 0, "faults_lost": 0, "each_fault": []}
    write = {**_CASE, "op": "write"}
    assert not _missed({"cases": [_CASE, write], **rest})
    assert len(_missed({"cases": [_CASE | changes, write], **rest})) == 1


_PENDING = {"tunable": "session", "due": True, "note": "does not run with all that was written"}


def _state(record: dict[str, str] = _OLD, burst: int = 262144, **of: Any) -> truth.State:
    usual: dict[str, Any] = {"read_since": True, "verify_status": 0, "verify": {"drift": [], "remarks": []}}
    usual |= {"history": [], "most_burst": 262144}
    return truth.State(record, burst, **(usual | of))


def _history(state: str, *, restored: bool = False, names: Any = tuple(_NEW)) -> list[dict[str, Any]]:
    return [{"state": state, "steps": [{"tunable": one, "wrote": _NEW[one], "restored": restored} for one in names]}]


_APPLIED = _state(_NEW, 131072, history=_history("in force"))
_TAKEN_BACK = _state(history=_history("taken back", restored=True))
_DUE: dict[str, Any] = {"verify": {"drift": [], "remarks": [_PENDING]}, "verify_status": 4}


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (0, _APPLIED), (1, _TAKEN_BACK), (-9, _APPLIED), (-9, _state()), (130, _TAKEN_BACK),
        (4, _state(_NEW, history=_history("in force"), read_since=False, **_DUE)),
        (-9, _state(_NEW, history=_history("interrupted"), read_since=False, **_DUE)),
        (-9, _state(_OLD | {truth.BURST: "131072"}, 131072, history=_history("interrupted", names=[truth.BURST]))),
    ],
)  # fmt: skip
def test_what_is_so_is_no_untruth(status: int, state: truth.State) -> None:
    assert not truth.untrue_of_apply(status, "", state, _OLD, _NEW) + truth.untrue_of_state(state, _OLD)


@pytest.mark.parametrize(
    ("status", "said", "state"),
    [
        (0, "", _TAKEN_BACK), (0, "", _state(_NEW, history=_history("in force"))), (0, "", _state(_NEW, 131072)),
        (0, "", _state(_NEW, 131072, history=_history("in force"), **_DUE)), (4, "", _state(history=[])),
        (1, "", _state(_NEW, 131072)), (1, "everything written was taken back", _APPLIED),
        (1, "all sessions are back with their old values", _state(burst=131072)), (-9, "Traceback (most", _state()),
    ],
)  # fmt: skip
def test_an_exit_status_or_a_word_that_is_not_so_is_noticed(status: int, said: str, state: truth.State) -> None:
    assert truth.untrue_of_apply(status, said, state, _OLD, _NEW)


def _drift(found: str, expected: str = "131072") -> dict[str, Any]:
    one = {"tunable": truth.BURST, "found": found, "expected": expected, "due": False, "note": "?"}
    return {"verify": {"drift": [one], "remarks": []}, "verify_status": 3}


@pytest.mark.parametrize(
    "state",
    [
        # Verify is silent where something differs, or waits.
        _state(_OLD, history=_history("in force")), _state(_NEW, 262144, history=_history("in force")),
        # It speaks where nothing does.
        _state(**_DUE), _state(_NEW, 131072, history=_history("in force"), **_drift("131072")),
        _state(_OLD, history=_history("interrupted"), **_drift("77")),
        # Its status says otherwise than its words.
        _state(verify_status=4), _state(**dict(_DUE, verify_status=0, read_since=False)),
        # History, and plan.
        _state(_NEW, 131072, history=_history("taken back", restored=True)), _state(plan_now={truth.BURST: "1"}),
    ],
)  # fmt: skip
def test_what_verify_history_or_plan_say_that_is_not_so_is_noticed(state: truth.State) -> None:
    assert truth.untrue_of_state(state, _OLD)


def test_a_revert_must_give_all_back_and_say_so() -> None:
    assert not truth.wrong_after_revert(0, "", _TAKEN_BACK, _OLD)
    for status, state in [(4, _TAKEN_BACK), (0, _APPLIED), (0, _state(burst=131072)), (0, _state(**_DUE))]:
        assert truth.wrong_after_revert(status, "", state, _OLD)


def _ring(path: Path, writer: int = 7) -> fsync_writer.Ring:
    return fsync_writer.Ring(str(path), writer)


def _supports_direct(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def test_the_writer_reads_each_record_before_another_takes_its_place(tmp_path: Path) -> None:
    file = tmp_path / "file"
    if not _supports_direct(file):
        pytest.skip("this file system has no O_DIRECT")
    ring, rounds = _ring(file), 2 * fsync_writer.RECORDS
    for number in range(rounds):
        if number == fsync_writer.RECORDS + 5:
            # Of a record that the next one is about to take the place of.
            with file.open("r+b") as there:
                there.seek(5 * fsync_writer.RECORD_BYTES + 1000)
                there.write(b"\0\0")
                os.fsync(there.fileno())
        ring.write(number)
    assert ring.bytes_wrong in (1, 2) and ring.wrong == [{"record": 5, "sector": 1, "found": "damaged"}]
    assert ring.check() == {"records": fsync_writer.RECORDS, "bytes_wrong": 0}
    assert ring.records_read == fsync_writer.RECORDS + fsync_writer.RECORDS and not ring.errors


def test_the_writer_tells_an_old_record_from_the_one_that_was_acknowledged(tmp_path: Path) -> None:
    file = tmp_path / "file"
    if not _supports_direct(file):
        pytest.skip("this file system has no O_DIRECT")
    ring = _ring(file)
    ring.write(0)
    older = fsync_writer.record(6, 0)
    with file.open("r+b") as there:
        there.write(older)
        os.fsync(there.fileno())
    assert ring.check()["bytes_wrong"] > 0
    assert ring.wrong[0] == {"record": 0, "sector": 0, "found": "writer 6, record 0, sector 0"}
    sectors = [older[at : at + 512] for at in range(0, len(older), 512)]
    assert len(set(sectors)) == len(sectors)

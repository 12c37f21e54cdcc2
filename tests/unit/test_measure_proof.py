# SPDX-License-Identifier: GPL-2.0-or-later
"""What a capture is taken to show: hand-made PDUs of known exchanges, right claims and wrong ones."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_records import make_record

from fabtune.errors import FabtuneError, InputError
from fabtune.host import run
from fabtune.measure import capture, measurement, proof, workload
from fabtune.measure.proof import AS_CONFIGURED, CANNOT_TELL, NOT_AS_CONFIGURED
from fabtune.measure.target import Target
from fabtune.measure.wire import COMMAND, DATA_IN, DATA_OUT, R2T, RESPONSE, UNSOLICITED, Pdu
from fabtune.model.runrecord import PathTold, RunRecord
from fabtune.progress import Progress


def write_of(
    task: Any,
    *,
    size: Any = 256,
    immediate: Any = 64,
    unsolicited: Any = 0,
    bursts: Any = (64, 64, 64),
    at_once: Any = 1,
    window: Any = (10, 41),
) -> Any:
    """The PDUs of one write, in KiB: R2Ts are handed out `at_once`, each answered by two Data-Outs."""
    expected, highest = window
    numbers = {"exp_cmd_sn": expected, "max_cmd_sn": highest}
    found = [Pdu(COMMAND, task, immediate * 1024, expected_bytes=size * 1024)]
    found += [Pdu(DATA_OUT, task, unsolicited * 1024, transfer_tag=UNSOLICITED)] if unsolicited else []
    for first in range(0, len(bursts), at_once):
        group = list(enumerate(bursts))[first : first + at_once]
        found += [Pdu(R2T, task, 0, transfer_tag=n, desired_bytes=burst * 1024, **numbers) for n, burst in group]
        found += [Pdu(DATA_OUT, task, burst * 512, transfer_tag=n) for n, burst in group for _ in range(2)]
    return [*found, Pdu(RESPONSE, task, 0, **numbers)]


def read_of(task: Any) -> Any:
    return [Pdu(COMMAND, task, 0, expected_bytes=4096), Pdu(DATA_IN, task, 4096, status=True)]


def verdict(claim: Any, value: Any, pdus: Any, **others: Any) -> Any:
    (finding,) = [one for one in proof.judge({**others, claim: value}, proof.observe(pdus)) if one.claim == claim]
    return finding.verdict


def test_what_is_seen() -> None:
    seen = proof.observe([*write_of(1), *read_of(2), *write_of(3, at_once=3)])
    assert len(seen.writes) == 2
    assert [task.r2ts for task in seen.writes] == [[65536] * 3] * 2
    assert [task.most_open_r2ts for task in seen.writes] == [1, 3]
    assert (seen.window, seen.closures, seen.most_tasks) == (32, 0, 1)


@pytest.mark.parametrize(
    ("claim", "right", "wrong"),
    [
        ("ImmediateData", "Yes", "No"),
        ("FirstBurstLength", "65536", "32768"),
        ("MaxBurstLength", "65536", "262144"),
        ("MaxBurstLength", "65536", "32768"),
        ("R2TsPerWrite", "3", "4"),
        ("CommandWindow", "32", "64"),
        ("WindowClosed", "No", "Yes"),
    ],
)
def test_right_claims_hold_and_wrong_ones_do_not(claim: Any, right: Any, wrong: Any) -> None:
    assert verdict(claim, right, write_of(1)) == AS_CONFIGURED
    assert verdict(claim, wrong, write_of(1)) == NOT_AS_CONFIGURED


def test_unsolicited_data_shows_initial_r2t_off() -> None:
    pdus = write_of(1, immediate=8, unsolicited=56)
    assert verdict("InitialR2T", "No", pdus) == AS_CONFIGURED
    assert verdict("InitialR2T", "Yes", pdus) == NOT_AS_CONFIGURED
    assert verdict("FirstBurstLength", "131072", pdus) == NOT_AS_CONFIGURED


def test_a_write_that_waits_shows_initial_r2t_on() -> None:
    pdus = write_of(1, immediate=8, bursts=(248,))
    assert verdict("InitialR2T", "Yes", pdus, FirstBurstLength="65536") == AS_CONFIGURED
    assert verdict("InitialR2T", "No", pdus, FirstBurstLength="65536") == NOT_AS_CONFIGURED
    assert verdict("FirstBurstLength", "65536", pdus) == CANNOT_TELL


def test_what_cannot_be_told() -> None:
    full = write_of(1, immediate=64, bursts=(192,))
    assert verdict("InitialR2T", "No", full, FirstBurstLength="65536") == CANNOT_TELL
    assert verdict("MaxOutstandingR2T", "4", full) == CANNOT_TELL
    assert verdict("ImmediateData", "Yes", read_of(1)) == CANNOT_TELL
    assert verdict("MaxBurstLength", "65536", read_of(1)) == CANNOT_TELL


def test_outstanding_r2ts() -> None:
    assert verdict("MaxOutstandingR2T", "3", write_of(1, at_once=3)) == AS_CONFIGURED
    assert verdict("MaxOutstandingR2T", "1", write_of(1, at_once=3)) == NOT_AS_CONFIGURED


def test_a_window_that_closes_and_wraps() -> None:
    pdus = [*write_of(1, window=(2**32 - 1, 30)), *write_of(2, window=(31, 30))]
    seen = proof.observe(pdus)
    assert seen.window == 32
    assert seen.closures == 4
    assert verdict("WindowClosed", "Yes", pdus) == AS_CONFIGURED


def test_unknown_claims_are_refused() -> None:
    assert capture.claims(["CommandWindow=64"]) == {"CommandWindow": "64"}
    for word in ("CommandWindow", "Window=3"):
        with pytest.raises(InputError, match="expected NAME=VALUE with NAME one of"):
            capture.claims([word])


@pytest.mark.parametrize("missing", ["dumpcap", "tshark"])
def test_what_a_capture_needs_is_asked_for_before_the_load(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was "no proof from the wire: dumpcap not found", after the whole load."""
    ran = []

    def measure(*_: object) -> RunRecord:
        ran.append("the load")
        return make_record(100)

    monkeypatch.setattr(run, "where_is", lambda program: None if program == missing else f"/usr/bin/{program}")
    monkeypatch.setattr(capture, "live_sessions", lambda: [SimpleNamespace(sid=1)])
    monkeypatch.setattr(measurement, "tunables_now", dict)
    monkeypatch.setattr(measurement.Measurement, "measure", measure)
    place = Target(Path("/dev/sdz"), "device", 1 << 30, "sdz", "", "", 512, (1,))
    asked = measurement.Measurement(workload.load("xdd"), place, PathTold())
    with pytest.raises(FabtuneError, match=f"^{missing} not found; install it with"):
        measurement.measure_whole(asked, "", tmp_path, {}, None, Progress(quiet=True), print)
    assert not ran

# SPDX-License-Identifier: GPL-2.0-or-later
"""What `report` tells of the latencies of several clients at once is what `run` told of the same load."""

from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from run_records import make_record, said
from test_clients import QUEUE, SECOND, two_disks

from fabtune.experiment import clients
from fabtune.measure import fio, measured, metrics, recordfile, target
from fabtune.model import typed
from fabtune.model.factors import Settings
from fabtune.model.outputs import FioOutput
from fabtune.model.runrecord import Draft, RunRecord, TargetUsed
from fabtune.report import suite

_SLOW_NS = 5 * SECOND
_BEGUN_S = 1000.0


def _fio(bins: dict[int, int]) -> FioOutput:
    """What fio says of two readers, a job each."""
    document: Any = typed.STRICT.write(make_record(100).steps[0].fio)
    document["jobs"][0]["read"]["clat_ns"]["bins"] = {str(ns): count for ns, count in bins.items()}
    return said(FioOutput, {"jobs": document["jobs"] * 2})


@pytest.fixture
def measured_clients(monkeypatch: pytest.MonkeyPatch) -> tuple[RunRecord, list[clients.Client]]:
    """Two clients that read for 30 s; fio had counted the quickest requests when it last answered."""
    slow = [(at, two_disks(done, done, round((at - 900) * SECOND), _SLOW_NS)) for at, done in
            ((_BEGUN_S + 5, 100), (_BEGUN_S + 34, 700), (_BEGUN_S + 60, 9000))]  # fmt: skip

    def load(_: object, __: object, ___: object, ____: object, _____: object, draft: Draft) -> list[tuple[float, str]]:
        draft.note(begun_unix_s=_BEGUN_S, fio=_fio({SECOND: 40, _SLOW_NS: 4}), before_drain=_fio({SECOND: 40}))
        return slow

    monkeypatch.setattr(clients, "check_judge", lambda _: None)
    monkeypatch.setattr(fio, "find", lambda: ("fio", "fio-3.39"))
    used = TargetUsed("/dev/sda", "device", size_bytes=1 << 30, disk="sda")
    monkeypatch.setattr(target, "find", lambda _: SimpleNamespace(as_record=lambda: used))
    monkeypatch.setattr(clients, "_load", load)
    settings = Settings(clients=2, op="read", size_bytes=QUEUE, queue_depth=1, ramp_s=4.0, runtime_s=30.0)
    return clients.measure(["sda", "sdb"], "read", settings)


def _told(record: RunRecord) -> dict[str, float]:
    return {one.key: one.value for one in metrics.of_step(record.steps[0])}


def test_the_record_has_the_latencies_that_run_tells(
    measured_clients: tuple[RunRecord, list[clients.Client]], tmp_path: Any
) -> None:
    """A kept p99 was 5234 ms, and the longest that fio knew of when it last answered 4329 ms."""
    record, seen = measured_clients
    figures = clients.figures(record, "read", seen)
    assert figures["p50_ms"] == pytest.approx(_SLOW_NS / 1e6, rel=0.1)
    path = tmp_path / f"read{recordfile.SUFFIX}"
    recordfile.write(record, path)
    told = _told(recordfile.read(path))
    for name in ("p50_ms", "p99_ms"):
        assert told[f"read_{name}"] == pytest.approx(figures[name], abs=1e-3)
    # What fio had counted is looked at for the longest wait as well; of no single disk anything is told.
    assert figures["oldest_s"] == pytest.approx(_SLOW_NS / 1e9, rel=0.1)
    assert measured.seen(record.steps[0]) is None


def test_a_record_without_what_fabstat_saw_says_so(
    measured_clients: tuple[RunRecord, list[clients.Client]],
) -> None:
    """An older one has what fio had counted alone: the quickest requests."""
    record, _ = measured_clients
    old = attrs.evolve(record, steps=(attrs.evolve(record.steps[0], fabstat=None),))
    assert not [key for key in _told(old) if key.endswith("_ms")] and "read_mb_per_s" in _told(old)
    whys = {one.why for one in metrics.told_and_untold(old.steps[0]) if isinstance(one, metrics.Untold)}
    assert whys == {"the record does not have what fabstat counted of each disk"}
    # A page of such records has what they tell.
    for one in (record, old):
        assert "read by 2" in suite.render([attrs.evolve(one, file="read.run.json.gz")], [], [], ["fabtune", "report"])

# SPDX-License-Identifier: GPL-2.0-or-later
"""The CPU time of several clients at once: the whole host's for each GB of all of them, untold where one's would be."""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from run_records import make_record, said
from test_clients import SECOND, two_disks

from fabtune.experiment import clients
from fabtune.experiment.untold import untold_of
from fabtune.measure import counters, fio, metrics, recordfile, target
from fabtune.model import typed
from fabtune.model.factors import Settings
from fabtune.model.outputs import FioOutput
from fabtune.model.runrecord import RunRecord, Sample, TargetUsed

RAMP_S, RUNTIME_S = 2.0, 10.0
# Of the made-up load: requests of 4 KiB a second on sda and on sdb.
RATES = (60, 20)
# What the host does anyway, ms of its two CPUs a second.
ANYWAY_MS = 50


class Host:
    """A host of two CPUs with a clock of its own; under load it is busy for `busy_ms` a second more."""

    def __init__(self, busy_ms: float) -> None:
        self.now, self.began, self.watched = 1000.0, 2000.0, 0
        self._busy_ms = busy_ms

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def sample(self, _: str | None) -> Sample:
        since, loaded = self.now - 900, max(0.0, self.now - self.began)
        busy_ms = ANYWAY_MS * since + self._busy_ms * loaded
        kinds = {"user": 0.0, "nice": 0.0, "sys": busy_ms, "idle": 2000 * since - busy_ms, "wait.total": 0.0,
                 "irq.hard": 0.0, "irq.soft": 0.0, "steal": 0.0}  # fmt: skip
        return {"time.unix": self.now, "time.monotonic": since} | {f"kernel.all.cpu.{k}": v for k, v in kinds.items()}

    def read_file(self, _: str) -> str:
        self.watched += 1
        done = [round(rate * max(0.0, self.now - self.began)) for rate in RATES]
        return two_disks(max(1, done[0]), max(1, done[1]), round((self.now - 900) * SECOND))

    @contextlib.contextmanager
    def load(self, *_: object) -> Iterator[SimpleNamespace]:
        """fio, whose two jobs begin when they are let, and whose requests the disks do."""

        def wait(look: Callable[[], None], every_s: float, _: float) -> None:
            self.began = self.now
            while self.now < self.began + RAMP_S + RUNTIME_S + every_s:
                look()
                self.sleep(every_s)

        document: Any = typed.STRICT.write(make_record(160, seconds=round(RUNTIME_S)).steps[0].fio)
        answered = said(FioOutput, {"jobs": document["jobs"] * 2})
        yield SimpleNamespace(wait=wait, document=lambda: answered, before_drain=lambda: answered)


def of_clients(monkeypatch: pytest.MonkeyPatch, busy_ms: float) -> tuple[RunRecord, dict[str, Any]]:
    """What is told of two clients, with the record as it is read back."""
    host = Host(busy_ms)
    used = TargetUsed("/dev/sda", "device", size_bytes=1 << 30, disk="sda")
    monkeypatch.setattr(clients, "check_judge", lambda _: None)
    monkeypatch.setattr(clients, "until", lambda *_: None)
    monkeypatch.setattr(clients, "read_file", host.read_file)
    monkeypatch.setattr(clients, "stuck", lambda: SimpleNamespace(requests=()))
    monkeypatch.setattr(clients, "time", SimpleNamespace(time=lambda: host.now, sleep=host.sleep))
    monkeypatch.setattr(counters, "sample", host.sample)
    monkeypatch.setattr(fio, "find", lambda: ("fio", "fio-3.39"))
    monkeypatch.setattr(fio, "load", host.load)
    monkeypatch.setattr(target, "find", lambda _: SimpleNamespace(as_record=lambda: used))
    settings = Settings(clients=2, op="read", size_bytes=4096, queue_depth=1, ramp_s=RAMP_S, runtime_s=RUNTIME_S)
    record, seen = clients.measure(["sda", "sdb"], "read", settings)
    return record, clients.figures(record, "read", seen) | untold_of(record.steps[0], "read")


def test_it_is_the_whole_host_s_for_each_gb_of_all_clients_less_what_it_does_anyway(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """The study's Figure 5 is the CPU of 1, 2 and 4 hosts, and a point of several clients had none."""
    record, point = of_clients(monkeypatch, busy_ms=400)
    assert point["mb_per_s"] == pytest.approx(sum(RATES) * 4096 / 1e6, rel=0.01)
    assert point["cpu_s_per_gb"] == pytest.approx(0.4 / (point["mb_per_s"] / 1e3), rel=0.01)
    assert "cpu_s_per_gb_untold" not in point
    # `report` tells of the record what `run` told.
    path = tmp_path / f"read{recordfile.SUFFIX}"
    recordfile.write(record, path)
    told = {one.key: one for one in metrics.of_step(recordfile.read(path).steps[0])}
    assert told["cpu_s_per_gb"].value == pytest.approx(point["cpu_s_per_gb"], abs=1e-3)
    assert told["cpu_s_per_gb"].error


@pytest.mark.parametrize(
    ("busy_ms", "why"),
    [(5, "it is less than ten of the kernel's ticks"), (30, "the host did more before the load than the load added")],
)
def test_of_too_little_nothing_is_told_and_the_point_says_why(
    busy_ms: float, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, point = of_clients(monkeypatch, busy_ms)
    assert point["cpu_s_per_gb"] is None and point["cpu_s_per_gb_untold"].startswith(why)
    assert point["mb_per_s"] and "p50_ms_untold" not in point


def test_before_the_load_the_host_is_watched_as_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    record, _ = of_clients(monkeypatch, busy_ms=400)
    (step,) = record.steps
    first, last = step.idle
    assert last["time.monotonic"] <= step.samples[0]["time.monotonic"]
    apart = [b["time.monotonic"] - a["time.monotonic"] for a, b in zip(step.samples, step.samples[1:], strict=False)]
    # Of a second as much as holds whole ones.
    every_s = pytest.approx(RUNTIME_S / 12)
    assert all(one == every_s for one in (*apart, last["time.monotonic"] - first["time.monotonic"]))

# SPDX-License-Identifier: GPL-2.0-or-later
"""Watches one disk while a load runs: a sample a second, fabstat's reading with it, and requests that hang.

While the load runs readings are only taken; they are parsed when it has ended, so that watching
costs little.
"""

from collections.abc import Collection
from pathlib import Path

from fabtune.errors import FabtuneError, InputError
from fabtune.host import tree
from fabtune.measure import counters
from fabtune.measure.target import Target
from fabtune.model.runrecord import HangingRequest, Readings, Sample, Stuck
from fabtune.stat import NOT_COUNTING, Snapshot, StuckRequest, diff, parse, snapshot, stuck
from fabtune.stat.coverage import coverage
from fabtune.stat.snapshot import read_file, words

# With hundreds of LUNs a reading is large; it is then taken at the ends of the step alone.
_LARGE_BYTES = 128 * 1024
LOADED = Path("/sys/module/fabstat")
# What a sample has of the target's sessions while some of them are not logged in: how many.
SESSIONS_OUT = "iscsi.sessions_out"


def check_judge(stuck_after_s: float | None) -> None:
    """Raise FabtuneError where requests that hang for `stuck_after_s` are to be found and fabstat cannot find them."""
    if stuck_after_s is None:
        return
    if not LOADED.exists():
        raise FabtuneError("this workload needs fabstat to find requests that hang: load fabstat.ko first")
    if not snapshot().counting:
        raise FabtuneError(f"this workload needs fabstat to find requests that hang, but {NOT_COUNTING}")
    listed_s = stuck().threshold_ns / 1e9
    if listed_s > stuck_after_s:
        raise FabtuneError(
            f"fabstat lists requests older than {listed_s:g} s, this workload judges at {stuck_after_s:g} s: "
            "lower the module's threshold for stuck requests"
        )


def as_record(request: StuckRequest) -> HangingRequest:
    """Return what a step's record keeps of a request that hangs."""
    return HangingRequest(request.op, request.sector, request.known_age_s, request.state)


class Watch:
    """Takes the samples of one step.  `check_judge` has passed."""

    def __init__(self, target: Target, stuck_after_s: float | None) -> None:
        self._target = target
        self._stuck_after_s = stuck_after_s
        self._readings: list[tuple[Sample, str]] = []
        self._oldest_s = 0.0
        self._stuck: dict[tuple[str, int], HangingRequest] = {}
        self._fabstat = target.disk is not None and LOADED.exists()

    def sample(self, *, edge: bool = False) -> Sample:
        """Return one sample; `edge` marks the first and last.  Raises FabtuneError when the disk has vanished."""
        disk = self._target.disk
        if disk and not Path(f"/sys/block/{disk}").exists() and not edge:
            raise FabtuneError(f"{disk} has vanished while the load was running")
        taken = counters.sample(disk)
        if self._target.meter is not None:
            taken |= self._target.meter()
        if out := self._sessions_out():
            taken[SESSIONS_OUT] = out
        if self._fabstat and (edge or not self._readings or len(self._readings[0][1]) <= _LARGE_BYTES):
            self._readings.append((taken, read_file("stats")))
        if self._stuck_after_s is not None:
            self._look_for_stuck(self._stuck_after_s)
        return taken

    def _sessions_out(self) -> int:
        """Return how many of the target's sessions are not logged in, those that are gone among them."""
        states = (tree.read_text(tree.SYS / f"class/iscsi_session/session{sid}/state") for sid in self._target.sessions)
        return sum(state != "LOGGED_IN" for state in states)

    def _look_for_stuck(self, after_s: float) -> None:
        for request in stuck().requests:
            if request.disk == self._target.disk:
                age_s = request.known_age_s
                self._oldest_s = max(self._oldest_s, age_s)
                if age_s > after_s:
                    self._stuck[request.op, request.sector] = as_record(request)

    def stuck(self) -> Stuck | None:
        """Return the oldest request seen and those that hung; None where nothing is judged by it."""
        if self._stuck_after_s is None:
            return None
        return Stuck(self._stuck_after_s, self._oldest_s, tuple(self._stuck.values()))

    def fabstat(self, edges: tuple[Sample, Sample] | None) -> Readings | None:
        """Add fabstat's figures to the samples; return its readings around the measured part (`edges`)."""
        if len(self._readings) < 2:
            return None
        disk = self._target.disk or ""
        texts = [only_disks(text, (disk,)) for _, text in self._readings]
        parsed = [parse(text) for text in texts]
        if not all(coverage(*pair).whole for pair in zip(parsed, parsed[1:], strict=False)):
            return None
        for (taken, _), before, after in zip(self._readings[1:], parsed, parsed[1:], strict=False):
            taken.update(_figures(before, after, disk))
        times = [taken["time.monotonic"] for taken, _ in self._readings]
        first = times.index(edges[0]["time.monotonic"]) if edges and edges[0]["time.monotonic"] in times else 0
        last = times.index(edges[1]["time.monotonic"]) if edges and edges[1]["time.monotonic"] in times else -1
        return Readings(texts[first], texts[last])


def _figures(before: Snapshot, after: Snapshot, disk: str) -> dict[str, float]:
    """Return what one disk did between two readings; nothing while fabstat has not seen it."""
    try:
        change = diff(before, after).device(disk)
    except InputError:
        return {}
    figures = {"fabstat.queue_full": float(change.queue_full)}
    if change.mean_depth is not None:
        figures["fabstat.mean_depth"] = change.mean_depth
    for name, percent in (("p50", 50), ("p99", 99)):
        found = change.percentile(percent)
        if found:
            figures[f"fabstat.{name}_ms"] = found.value_ms
    return figures


def only_disks(text: str, disks: Collection[str]) -> str:
    """Return a reading of fabstat with the lines of `disks` alone."""
    kept, keep = [], True
    for line in text.splitlines():
        if line.startswith("device "):
            keep = words(line).get("disk") in disks
        if keep:
            kept.append(line)
    return "\n".join(kept) + "\n"

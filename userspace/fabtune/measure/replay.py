# SPDX-License-Identifier: GPL-2.0-or-later
"""The replay of a user's trace: its requests, at its instants, on another device."""

from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from fabtune.errors import InputError
from fabtune.measure import blktrace, counters, workload_run
from fabtune.measure import target as targets
from fabtune.measure.arrivals import Arrival
from fabtune.measure.blktrace import Fitted, Trace
from fabtune.measure.target import Target
from fabtune.measure.workload import LoadStep, Place
from fabtune.model.offered import Replayed
from fabtune.model.runrecord import Draft, PathTold, RunRecord, WorkloadUsed, begin
from fabtune.progress import Progress

_SLOTS = 1024
_SUMMARY = "the requests of a trace, at its instants"


@attrs.frozen
class _Recorded:
    """The requests of a trace as what an open loop sends."""

    place: str
    requests: tuple[Arrival, ...]
    slots: int = _SLOTS

    def arrivals(self, *_: object) -> tuple[Arrival, ...]:
        """Return the requests: nothing is left to chance."""
        return self.requests


@attrs.frozen
class Replay:
    """One trace on one device; `path` is what the user said about the network between them."""

    trace: Trace
    place: Target
    path: PathTold
    fitted: Fitted

    name = "replay"

    @property
    def expected_s(self) -> float:
        """How long the trace lasts: up to the millisecond in which its last request leaves."""
        return self.trace.requests[-1].at_ns // 10**6 / 1e3 + 0.001

    def check(self, confirm: str | None, ask: Callable[[str, str], str] | None) -> None:
        """Raise InputError for a device that the trace may not write to; `ask` for its name where it was not given."""
        if any(one.write for one in self.trace.requests):
            targets.check_overwriting(self.place, confirm, ask)

    def measure(
        self,
        label: str,
        around: Mapping[str, str],
        begin_unix_s: float | None = None,
        show: Progress | None = None,
    ) -> RunRecord:
        """Return the record of one run, with `around` beside it.  Raises what workload_run.recording raises."""
        framing_bytes = counters.framing_bytes(self.place)
        draft = Draft(begin(
            workload=WorkloadUsed(self.name, _SUMMARY, f"blktrace of {self.trace.device}, {self.trace.name}", "p99_ms"),
            target=self.place.as_record(), host=workload_run.host_used(), runtime_s=self.expected_s, ramp_s=0.0,
            label=label, path=attrs.evolve(self.path, framing_bytes=framing_bytes), environment=around,
        ))  # fmt: skip
        where = Place(self.place.path, Path("/nonexistent"), self.place.size_bytes)
        with workload_run.recording(draft, self.name):
            workload_run.run_steps([self._step()], self.place, where, draft, "", None, begin_unix_s, show)
        return draft.record

    def _step(self) -> LoadStep:
        requests, millis = self.fitted.requests, round(self.expected_s * 1e3)
        writes = sum(one.write for one in requests)
        rw = {0: "randread", len(requests): "randwrite"}.get(writes, "randrw")
        # In fio's words, as far as they go, for whoever reads the record.
        job: dict[str, int | float | str] = {
            "ioengine": "libaio", "direct": 1, "filename": str(self.place.path), "rw": rw, "rate_process": "trace",
            "rate_iops": round(len(requests) / self.expected_s, 3), "time_based": 1, "runtime": f"{millis}ms",
        }  # fmt: skip
        return LoadStep(
            self.trace.name, "replay", {"trace": self.trace.name}, {"replay": job}, cache=None, flip_byte_at=None,
            must_fail=None, runtime_s=self.expected_s, open_loop=_Recorded(str(self.place.path), requests),
            replayed=Replayed(
                self.trace.name, self.trace.sha256, self.trace.device, len(requests), self.fitted.folded,
                self.fitted.aligned, self.trace.left_out,
            ),
        )  # fmt: skip


def of(trace: Path, on: str | None, path: PathTold) -> Replay:
    """Return the replay of the file `trace` on the device `on`.  Raises InputError."""
    if not on:
        raise InputError("measuring 'replay' needs --on with a block device")
    place = targets.find(on)
    if place.kind != "device":
        raise InputError(f"--on {on}: a directory; a trace is replayed on a block device")
    read = blktrace.load(trace)
    return Replay(read, place, path, blktrace.fit(read, place.size_bytes, place.logical_block_bytes))

# SPDX-License-Identifier: GPL-2.0-or-later
"""Open loops: what a job of Poisson arrivals asks for, and the instants at which its requests are to leave."""

import random
from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from fabtune.errors import InputError
from fabtune.measure.arrivals import Arrival
from fabtune.measure.fio_options import Options, Value
from fabtune.model.typed import describe

_OPS = {"randread": 1.0, "randwrite": 0.0, "randrw": None}
# What our own generator does of fio's options, and what it does in any case.
_UNDERSTOOD = {
    "filename", "size", "rw", "rwmixread", "bs", "rate_iops", "rate_process", "iodepth", "time_based", "runtime",
    "ramp_time",
}  # fmt: skip
_MUST_BE = {"ioengine": "libaio", "direct": 1, "norandommap": 1, "randrepeat": 0}


class Schedule(Protocol):
    """What an open loop sends where, of which `slots` may be outstanding at most."""

    @property
    def place(self) -> str: ...
    @property
    def slots(self) -> int: ...
    def arrivals(self, ramp_s: float, runtime_s: float, draw: random.Random) -> Sequence[Arrival]: ...


@attrs.frozen
class OpenLoop:
    """A job of random requests of one size that leave at a mean rate, whatever became of those before.

    `slots` may be outstanding at most; an arrival that finds none free waits, and its time runs.
    """

    place: str
    per_s: float
    block_bytes: int
    size_bytes: int
    read_share: float
    slots: int

    def arrivals(self, ramp_s: float, runtime_s: float, draw: random.Random) -> list[Arrival]:
        """Return the arrivals of a Poisson process; in the ramp, and in what follows it, as many as the mean says.

        Given their number, the instants of a Poisson process are independent and evenly distributed.
        """
        blocks = max(1, self.size_bytes // self.block_bytes)
        found = []
        for begin_s, length_s in ((0.0, ramp_s), (ramp_s, runtime_s)):
            for at_s in sorted(draw.uniform(begin_s, begin_s + length_s) for _ in range(round(self.per_s * length_s))):
                offset = draw.randrange(blocks) * self.block_bytes
                found.append(Arrival(int(at_s * 1e9), offset, self.block_bytes, draw.random() >= self.read_share))
        return found


def asked_by(jobs: Mapping[str, Options], where: str) -> OpenLoop | None:
    """Return the open loop that `jobs` ask for with fio's ``rate_process=poisson``, None for any other load.

    Raises InputError, which begins with `where`, for what our generator does not do.
    """
    if not any(job.get("rate_process") == "poisson" for job in jobs.values()):
        return None
    if len(jobs) != 1:
        raise InputError(f"{where}: found {len(jobs)} sections, allowed: one, where rate_process is 'poisson'")
    ((name, job),) = jobs.items()
    at = f"{where}: section '{name}'"
    for key in sorted(job.keys() - _UNDERSTOOD - _MUST_BE.keys()):
        raise InputError(
            f"{at}: key '{key}': found {describe(job[key])}, allowed: none where rate_process is 'poisson'"
        )
    for key, value in _MUST_BE.items():
        if job.get(key) != value:
            found = describe(job[key]) if key in job else "nothing"
            raise InputError(f"{at}: key '{key}': found {found}, allowed: {value} where rate_process is 'poisson'")
    op = str(job.get("rw"))
    if op not in _OPS:
        raise InputError(f"{at}: key 'rw': found {op!r}, allowed: {', '.join(_OPS)} where rate_process is 'poisson'")
    share = _OPS[op]
    if share is None:
        share = _number(job, "rwmixread", at, 50) / 100
    return OpenLoop(
        str(job.get("filename")), _number(job, "rate_iops", at), int(_number(job, "bs", at)),
        int(_number(job, "size", at)), share, int(_number(job, "iodepth", at, 1024)),
    )  # fmt: skip


def _number(job: Mapping[str, Value], key: str, at: str, default: Value | None = None) -> float:
    value = job.get(key, default)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = 0.0
    if number <= 0:
        found = "nothing" if value is None else describe(value)
        raise InputError(f"{at}: key '{key}': found {found}, allowed: a number above 0") from None
    return number

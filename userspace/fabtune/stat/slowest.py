# SPDX-License-Identifier: GPL-2.0-or-later
"""The slowest requests of each device while the parameter detail was on: the module's file ``slowest``."""

from dataclasses import dataclass
from pathlib import Path

from fabtune.stat.snapshot import DIRECTORY, name_of, parse_list, read_file

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """One request: first issued at `time_ns` (CLOCK_MONOTONIC_RAW), completed `total_ns` later.

    `device_ns` counts from its last issue, `wait_ns` up to its first (0 too where the kernel does not know it).
    `cpu` is that of its last issue, None: unknown.  `sent_back` is how often it was refused or sent back, `reasons`
    the events behind the first eight of these.  `error` is the event that it ended with, empty: it succeeded.
    """

    id: int
    disk: str
    op: str
    time_ns: int
    total_ns: int
    device_ns: int
    wait_ns: int
    sector: int
    bytes: int  # noqa: A003
    queue: int
    cpu: int | None
    error: str
    sent_back: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlowList:
    """The list as of `time_ns`: each device's requests, slowest first."""

    time_ns: int
    requests: tuple[SlowRequest, ...]

    def age_ns(self, request: SlowRequest) -> int:
        """Return how long before the list was read `request` was first issued."""
        return max(0, self.time_ns - request.time_ns)


def slowest(directory: Path = DIRECTORY) -> SlowList | None:
    """Read the list; None from a module that has none.  Raises FabtuneError, as fabtune.stat.snapshot does."""
    if (directory / "stats").exists() and not (directory / "slowest").exists():
        return None
    return parse_slowest(read_file("slowest", directory), str(directory / "slowest"))


def parse_slowest(text: str, source: str = "slowest") -> SlowList:
    """Return the list in `text`; `source` names it in errors.  Raises InputError."""
    return parse_list(text, source, f"# fabstat-slowest {FORMAT_VERSION}", _list)


def _list(head: dict[str, str], requests: list[dict[str, str]]) -> SlowList:
    return SlowList(int(head["time_ns"]), tuple(map(_request, requests)))


def _request(record: dict[str, str]) -> SlowRequest:
    numbers = {
        name: int(record[name])
        for name in (
            "id", "time_ns", "total_ns", "device_ns", "wait_ns", "sector", "bytes", "queue", "sent_back",
        )
    }  # fmt: skip
    return SlowRequest(
        **numbers,
        disk=name_of(record["disk"]),
        op=record["op"],
        cpu=None if record["cpu"] == "-" else int(record["cpu"]),
        error=record["error"].removeprefix("-"),
        reasons=() if record["reasons"] == "-" else tuple(record["reasons"].split(",")),
    )

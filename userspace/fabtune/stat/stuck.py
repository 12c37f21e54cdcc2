# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests that have been under way for too long: the module's file ``stuck``."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from fabtune.stat.snapshot import DIRECTORY, name_of, parse_list, read_file

FORMAT_VERSION = 1
# A request of unknown age is looked for again after this long: at the first look it may just have been ending.
_AGAIN_S = 0.1
# The states of requests of which the module has seen all.
_IN_BOOKS = ("in_flight", "sent_back")


@dataclass(frozen=True, slots=True)
class StuckRequest:
    """One request.  `age_ns` counts from its first issue or refusal, `issue_age_ns` from its last issue.

    `state` is ``in_flight``, ``sent_back`` while it waits to be issued again, ``before_load`` for one that the driver
    had before the module looked, or ``untracked`` for one that there was no memory for; `issue_age_ns` is None but for
    the first.  Of the last two `age_ns` counts from the moment when the request was made, None: the kernel does not
    know it.  `id` is the Device's, 0 for one that is not counted yet.  `sent_back` is how often it was refused or
    sent back, None of the last two, whose begin nobody saw.
    """

    id: int
    disk: str
    dev: str
    op: str
    sector: int
    bytes: int  # noqa: A003
    age_ns: int | None
    state: str
    issue_age_ns: int | None
    sent_back: int | None

    @property
    def known_age_s(self) -> float:
        """The age in s as far as it is known: at least so old is the request."""
        return (self.age_ns or 0) / 1e9


@dataclass(frozen=True, slots=True)
class StuckList:
    """The list as of `time_ns`, oldest request first."""

    time_ns: int
    threshold_ns: int
    requests: tuple[StuckRequest, ...]


def stuck(directory: Path = DIRECTORY) -> StuckList:
    """Read the list.  Raises FabtuneError when the module is not loaded or may not be read.

    Of a queue without I/O statistics the kernel does not know how old a request is, so each that is there at two looks
    is listed.
    """
    found = _read(directory)
    if all(one.age_ns is not None for one in found.requests):
        return found
    time.sleep(_AGAIN_S)
    still = {_whose(one) for one in _read(directory).requests}
    return replace(found, requests=tuple(o for o in found.requests if o.age_ns is not None or _whose(o) in still))


def _read(directory: Path) -> StuckList:
    return parse_stuck(read_file("stuck", directory), str(directory / "stuck"))


def _whose(one: StuckRequest) -> tuple[str, str, int, int]:
    return one.dev, one.op, one.sector, one.bytes


def parse_stuck(text: str, source: str = "stuck") -> StuckList:
    """Return the list in `text`; `source` names it in errors.  Raises InputError."""
    return parse_list(text, source, f"# fabstat-stuck {FORMAT_VERSION}", _list)


def _list(head: dict[str, str], requests: list[dict[str, str]]) -> StuckList:
    return StuckList(int(head["time_ns"]), int(head["threshold_ns"]), tuple(map(_request, requests)))


def _request(record: dict[str, str]) -> StuckRequest:
    state, in_books = record["state"], record["state"] in _IN_BOOKS
    known = record["age_ns"] != "0" or in_books
    return StuckRequest(
        id=int(record["id"]), disk=name_of(record["disk"]), dev=record["dev"], op=record["op"],
        sector=int(record["sector"]), bytes=int(record["bytes"]), age_ns=int(record["age_ns"]) if known else None,
        state=state, issue_age_ns=int(record["issue_age_ns"]) if state == "in_flight" else None,
        sent_back=int(record["sent_back"]) if in_books else None,
    )  # fmt: skip

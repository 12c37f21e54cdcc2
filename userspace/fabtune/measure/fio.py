# SPDX-License-Identifier: GPL-2.0-or-later
"""fio as a process: start it, wait for it with samples in between, read what it says."""

import json
import math
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fabtune.errors import FabtuneError
from fabtune.host.run import ended, launch, require, run

# How long fio may take to end its jobs after SIGINT.  Requests that never return keep it longer.
STOP_S = 10.0
KILL_S = 2.0


class FioError(FabtuneError):
    """fio ended with an error; `document` is what it wrote before, or None."""

    def __init__(self, message: str, document: dict[str, Any] | None) -> None:
        super().__init__(message)
        self.document = document


def find() -> tuple[str, str]:
    """Return the path and version of fio.  Raises FabtuneError when it is missing."""
    path = require("fio", "fio")
    return path, run([path, "--version"], what="asking fio for its version").strip()


class Load:
    """A running fio; leaving the ``with`` block ends it.

    The kernel ends fio when this process dies, so that a killed measurement leaves no load behind.
    """

    def __init__(self, fio: str, job_file: str, scratch: Path) -> None:
        self._job = scratch / "job.fio"
        self._output = scratch / "fio.json"
        self._job.write_text(job_file, encoding="utf-8")
        self._errors = (scratch / "fio.err").open("w+b")
        self.command = [fio, "--output-format=json+", "--eta=never", f"--output={self._output}", str(self._job)]
        self._process = launch(self.command, log=self._errors, cwd=scratch, dies_by="KILL")

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            # A process whose requests never return cannot end; the kernel reaps it when they do.
            ended(self._process, KILL_S)
        self._errors.close()

    def wait(self, tick: Callable[[], None], interval_s: float) -> None:
        """Call `tick` every `interval_s` until fio ends."""
        descriptor = os.pidfd_open(self._process.pid)
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            due = time.monotonic() + interval_s
            while not poll.poll(max(0.0, due - time.monotonic()) * 1000):
                tick()
                due = max(due + interval_s, time.monotonic())
        finally:
            os.close(descriptor)
        self._process.wait()

    def stop(self) -> bool:
        """Ask fio to end and print what it has; return False when requests held it up too long."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        return ended(self._process, STOP_S)

    def document(self) -> dict[str, Any]:
        """Return fio's JSON.  Raises FioError with fio's own words when it ended badly, or not at all."""
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")
        document, around = _split(self._output)
        status = self._process.returncode
        if status == 0 and document is not None:
            return document
        if status is None:
            raise FioError("fio has not ended", document)
        words = "; ".join(dict.fromkeys(_complaints(said + "\n" + around)))[:400] or "no message"
        raise FioError(f"fio ended with status {status}: {words}", document)


def _split(output: Path) -> tuple[dict[str, Any] | None, str]:
    """Return the JSON document in fio's output and the text around it (fio prints notes before it)."""
    try:
        text = output.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None, ""
    start = text.find("{\n")
    if start < 0:
        return None, text
    try:
        document, end = json.JSONDecoder().raw_decode(text, start)
    except json.JSONDecodeError:
        return None, text[:start]
    return document, text[:start] + text[end:]


def _complaints(text: str) -> Iterable[str]:
    """Yield the lines in which fio says what went wrong."""
    for line in text.splitlines():
        line = line.strip()
        if re.match(r"(fio|verify|pid=\d+|crc\w*)[:=, ]|.*\b(error|failed|No space|Permission)\b", line, re.IGNORECASE):
            yield re.sub(r"^fio: pid=\d+, ", "fio: ", line)


def directions(document: Mapping[str, Any]) -> list[str]:
    """Return which of ``read`` and ``write`` moved data."""
    return [op for op in ("read", "write") if any(job[op]["total_ios"] for job in document["jobs"])]


def total(document: Mapping[str, Any], op: str, key: str) -> float:
    """Return the sum over all jobs of one number of one direction."""
    return float(sum(job[op][key] for job in document["jobs"]))


def bins(document: Mapping[str, Any], op: str) -> dict[int, int]:
    """Return the completion-latency histogram of all jobs: nanoseconds -> requests."""
    merged: dict[int, int] = {}
    for job in document["jobs"]:
        for ns, count in job[op]["clat_ns"].get("bins", {}).items():
            merged[int(ns)] = merged.get(int(ns), 0) + count
    return merged


def percentile_ns(histogram: Mapping[int, int], fraction: float) -> int | None:
    """Return the latency that `fraction` of the requests did not exceed, or None without any."""
    count = sum(histogram.values())
    if not count:
        return None
    wanted = math.ceil(fraction * count)
    seen = 0
    for ns in sorted(histogram):
        seen += histogram[ns]
        if seen >= wanted:
            return ns
    return max(histogram)


def longest_ns(document: Mapping[str, Any], op: str) -> int:
    """Return the longest time from submission to completion over all jobs."""
    return max(int(job[op]["lat_ns"]["max"]) for job in document["jobs"])


def mean_latency_ns(document: Mapping[str, Any], op: str) -> float | None:
    """Return the mean time from submission to completion over all jobs."""
    totals = [job[op]["lat_ns"] for job in document["jobs"]]
    count = sum(int(one["N"]) for one in totals)
    return sum(float(one["mean"]) * int(one["N"]) for one in totals) / count if count else None

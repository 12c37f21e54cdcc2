# SPDX-License-Identifier: GPL-2.0-or-later
"""A load as a process, fio or our own: start it, wait for it with samples in between, read what it says."""

import ctypes
import json
import math
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from fabtune.errors import FabtuneError, InputError
from fabtune.host.run import Process, ended, launch, require, run
from fabtune.measure.beat import off_beat
from fabtune.model import typed
from fabtune.model.outputs import FioOutput

# How long fio may take to end its jobs after SIGINT.  Requests that never return keep it longer.
STOP_S = 10.0
KILL_S = 2.0
# How often fio is asked for its figures from the end of its run time on, which it may reach late.
_ASK_S = 0.5
# How long a sample waits for fio to say when it began; what comes later is read with the next one.
_ANSWER_S = 0.1
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class FioError(FabtuneError):
    """fio ended with an error; `document` is what it wrote before, or None."""

    def __init__(self, message: str, document: FioOutput | None) -> None:
        super().__init__(message)
        self.document = document


def find() -> tuple[str, str]:
    """Return the path and version of fio.  Raises FabtuneError when it is missing."""
    path = require("fio", "fio")
    return path, run([path, "--version"], what="asking fio for its version").strip()


def output_in(scratch: Path) -> Path:
    """Return where the figures of a load go that runs in `scratch`."""
    return scratch / "fio.json"


def load(program: str, job_file: str, scratch: Path) -> "Load":
    """Start fio, the `program`, with the job."""
    job = scratch / "job.fio"
    job.write_text(job_file, encoding="utf-8")
    output = f"--output={output_in(scratch)}"
    return Load([program, "--output-format=json+", "--eta=never", output, str(job)], scratch)


class Load:
    """A running `command`, which writes fio's JSON to `output_in` of `scratch`; leaving the ``with`` block ends it.

    The kernel ends it when this process dies, so that a killed measurement leaves no load behind.
    """

    def __init__(
        self, command: Sequence[str], scratch: Path, called: str = "fio", env: Mapping[str, str] | None = None
    ) -> None:
        self.command, self._called = command, called
        # How often fio was asked when it began.
        self._asked = 0
        self._output = output_in(scratch)
        self._errors = (scratch / "fio.err").open("w+b")
        self._process = launch(self.command, log=self._errors, cwd=scratch, env=env, dies_by="KILL")

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            # A process whose requests never return cannot end; the kernel reaps it when they do.
            ended(self._process, KILL_S)
        self._errors.close()

    def wait(self, tick: Callable[[], None], interval_s: float, measured_s: float = math.inf) -> None:
        """Call `tick` every `interval_s`, off the beat of its requests, until fio ends.

        After `measured_s`, and on and on from then, fio is to note its figures: it may have begun late.
        """
        descriptor = os.pidfd_open(self._process.pid)
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            begun, turn = time.monotonic(), 1
            due, last = begun + off_beat(turn, interval_s), begun + measured_s
            while not poll.poll(max(0.0, min(due, last) - time.monotonic()) * 1000):
                if time.monotonic() >= last:
                    self._note_figures()
                    last += _ASK_S
                tick()
                turn += 1
                # A tick that took too long moves all that follow.
                begun = max(begun, time.monotonic() - off_beat(turn, interval_s))
                due = begun + off_beat(turn, interval_s)
        finally:
            os.close(descriptor)
        self._process.wait()

    def _note_figures(self) -> None:
        """Let fio write its figures as they are, while its jobs run.

        Before it has its handlers the signal would end it, and so it would once fio takes apart what they use.
        """
        if _jobs(Path(f"/proc/{self._process.pid}")):
            _to_main_thread(self._process, signal.SIGUSR1)

    def measures_since_s(self, ramp_s: float) -> float | None:
        """Return since when fio measures (monotonic clock), None before: it makes files, or its ramp of `ramp_s` runs.

        A job is there for a while before it begins, and ends its ramp when it comes to look at the clock: from when
        that may be, fio itself is asked.
        """
        since = [one for job in _jobs(Path(f"/proc/{self._process.pid}")) if (one := _since_s(job)) is not None]
        earliest_s = min(since, default=math.inf) + ramp_s
        if time.monotonic() < earliest_s:
            return None
        answers = self._answers()
        if len(answers) == self._asked and not _measures(answers, earliest_s, ramp_s):
            self._note_figures()
            self._asked += 1
            answers = self._next_answer()
        return max(_starts_s(answers[-1])) if _measures(answers, earliest_s, ramp_s) else None

    def _answers(self) -> list[FioOutput]:
        return _split(self._output)[0]

    def _next_answer(self) -> list[FioOutput]:
        """Return what fio has answered once it has answered everything, or as far as it did within `_ANSWER_S`."""
        until_s = time.monotonic() + _ANSWER_S
        while len(answers := self._answers()) < self._asked and time.monotonic() < until_s:
            if ended(self._process, _ANSWER_S / 10):
                break
        return answers

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more, by itself."""
        return self._process.poll() is not None

    def stop(self) -> bool:
        """Ask fio to end and print what it has; return False when requests held it up too long."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        return ended(self._process, STOP_S)

    def before_drain(self) -> FioOutput | None:
        """Return what fio had counted when it was last asked before it waited for what was outstanding, else None.

        While it waits it does not answer; afterwards it has counted everything.
        """
        documents = self._answers()[self._asked :]
        counts = [sum(job.read.lat_ns.N + job.write.lat_ns.N for job in one.jobs) for one in documents]
        early = next((one for one, n in zip(documents[::-1], counts[::-1], strict=True) if 0 < n < counts[-1]), None)
        return early and early.essence

    def document(self) -> FioOutput:
        """Return fio's JSON.  Raises FioError with fio's own words when it ended badly, or not at all."""
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")
        documents, around = _split(self._output)
        document = documents[-1] if documents else None
        status = self._process.returncode
        if status == 0 and document is not None:
            return document
        if status is None:
            raise FioError(f"{self._called} has not ended", document)
        words = "; ".join(dict.fromkeys(_complaints(said + "\n" + around)))[:400] or "no message"
        raise FioError(f"{self._called} ended with status {status}: {words}", document)


def _measures(answers: Sequence[FioOutput], earliest_s: float, ramp_s: float) -> bool:
    """Tell whether by the last of `answers` every job has begun what it measures, which is not before `earliest_s`."""
    begun = bool(answers) and min(_starts_s(answers[-1]), default=-math.inf) >= earliest_s - _TICK_S
    # A job whose ramp began late looks, in its ramp, like one that measures.
    if not (begun and answers[-1].is_past_ramp(ramp_s)):
        return False
    # fio notes since when a job counts, waits for the job, and notes what it has counted: the ramp may end in between.
    # What it said in the ramp agrees with that.
    lasts_s = [max(_starts_s(one)) for one in answers[-2:] if one.is_past_ramp(ramp_s)]
    return not ramp_s or (len(lasts_s) > 1 and abs(lasts_s[1] - lasts_s[0]) < ramp_s / 2)


def _starts_s(said: FioOutput) -> list[float]:
    """Return since when each job has been counting, by the monotonic clock: it counts anew once its ramp is over."""
    to_monotonic_s = time.monotonic() - time.time()
    return [unix_s + to_monotonic_s for unix_s in said.starts_unix_s]


def _to_main_thread(process: "Process[bytes]", number: signal.Signals) -> None:
    """Send the signal to the first thread alone, once it lets it through.

    The C library keeps all signals from a thread that starts another.  One that was for the whole process went to
    fio's helper then, which does not expect any, and ended: nobody was left to answer.
    """
    # What has been waited for may have lent its number to another process since.
    if process.poll() is None:
        ctypes.CDLL(None).tgkill(process.pid, process.pid, number)


def _jobs(fio: Path) -> list[Path]:
    """Return the jobs of fio, a directory of /proc, that run: threads beside its first and its helper, or processes."""
    try:
        caught = int(re.findall(r"^SigCgt:\s*(\w+)$", (fio / "status").read_text(), re.MULTILINE)[0], 16)
        children = (fio / "task" / fio.name / "children").read_text().split()
        threads = sorted((fio / "task").iterdir(), key=lambda one: (_since_s(one) or math.inf, int(one.name)))
    except OSError:
        return []
    # Before it has its handlers other threads of it try the clocks of all CPUs.
    if not caught >> (signal.SIGUSR1 - 1) & 1:
        return []
    return [*threads[2:], *(fio.parent / child for child in children)]


def _since_s(task: Path) -> float | None:
    """Return when a thread or process, a directory of /proc, began, by the monotonic clock; None once it is gone."""
    try:
        # What follows its name, which may have blanks: from the third field on.
        fields = (task / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    suspended_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return int(fields[19]) * _TICK_S - suspended_s


def _split(output: Path) -> tuple[list[FioOutput], str]:
    """Return the JSON documents in fio's output and the text around them (fio prints notes between them)."""
    try:
        text = output.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return [], ""
    documents: list[FioOutput] = []
    around, at = "", 0
    while (start := text.find("{\n", at)) >= 0:
        around += text[at:start]
        try:
            document, at = json.JSONDecoder().raw_decode(text, start)
            documents.append(typed.TOLERANT.read(FioOutput, document, "its output"))
        except json.JSONDecodeError:
            return documents, around
        except InputError as error:
            around += f"\nfio: {error}\n"
    return documents, around + text[at:]


def _complaints(text: str) -> Iterable[str]:
    """Yield the lines in which fio says what went wrong."""
    for line in text.splitlines():
        line = line.strip()
        if re.match(r"(fio|verify|pid=\d+|crc\w*)[:=, ]|.*\b(error|failed|No space|Permission)\b", line, re.IGNORECASE):
            yield re.sub(r"^fio: pid=\d+, ", "fio: ", line)

# SPDX-License-Identifier: GPL-2.0-or-later
"""How long work says what it is doing; the lines go to stderr, results never do."""

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


class Estimate:
    """How long the steps that were announced will still take, by what those that are over took.

    Steps announced together are alike: how much longer than expected those took, so will the others.
    Times are those of any one clock, in s.
    """

    def __init__(self) -> None:
        self._expected_s: dict[str, float] = {}
        # A step that runs beside others moves the whole by its share alone; its batch is what it is like.
        self._at_once: dict[str, int] = {}
        self._batch: dict[str, int] = {}
        self._started: dict[str, float] = {}
        self._took_s: dict[str, float] = {}

    def expect(self, steps: Sequence[tuple[str, float]], at_once: int = 1) -> None:
        """Announce steps, (name, expected seconds) each, that will run so many side by side."""
        batch = len(self._batch)
        for name, expected_s in steps:
            self._expected_s[name], self._at_once[name], self._batch[name] = expected_s, at_once, batch

    def start(self, name: str, now: float) -> None:
        """Note that a step has begun."""
        if name not in self._expected_s:
            self.expect([(name, 10.0)])
        self._started[name] = now

    def end(self, name: str, now: float) -> None:
        """Note that a step is over."""
        self._took_s[name] = now - self._started.pop(name)

    def give_up(self, name: str, now: float) -> None:
        """Note that a step is over before it was done.

        One that took longer than expected until then says that the others may, too; of one that failed early its time
        says nothing.
        """
        if now - self._started[name] > self._expected_s[name]:
            self.end(name, now)
        else:
            del self._started[name], self._expected_s[name]

    @property
    def running(self) -> list[str]:
        """The steps that have begun and are not over."""
        return list(self._started)

    def counts(self, name: str) -> tuple[int, int]:
        """Return how many of the steps that are like `name` are over, and of how many."""
        alike = [one for one, batch in self._batch.items() if batch == self._batch[name]]
        return sum(one in self._took_s or one not in self._expected_s for one in alike), len(alike)

    def left_s(self, now: float) -> float:
        """Return the seconds that all steps together will still take."""
        left: dict[str, float] = {}
        for name, expected_s in list(self._expected_s.items()):
            if name not in self._took_s:
                gone_s = now - self._started[name] if name in self._started else 0.0
                left[name] = max(expected_s * self._pace(self._batch[name]) - gone_s, 0.0)
        together = sum(seconds / self._at_once[name] for name, seconds in left.items())
        return max(together, max((left[name] for name in self._started if name in left), default=0.0))

    def share(self, now: float) -> float:
        """Return how much of all is done, from 0 to 1."""
        whole = sum(s * self._pace(self._batch[name]) / self._at_once[name] for name, s in self._expected_s.items())
        return max(0.0, 1 - self.left_s(now) / whole) if whole else 0.0

    def _pace(self, batch: int) -> float:
        done = [name for name in self._took_s if self._batch[name] == batch]
        expected_s = sum(self._expected_s[name] for name in done)
        return sum(self._took_s[name] for name in done) / expected_s if expected_s else 1.0


def clock_text(seconds: float) -> str:
    """Return seconds as minutes and seconds, with hours from an hour on."""
    minutes, rest = divmod(round(max(seconds, 0)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02} h" if minutes >= 60 else f"{minutes}:{rest:02} min"


class Progress:
    """One plain line a step, for stderr that is not a terminal; none at all when `quiet`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._lock = threading.Lock()
        self._estimate = Estimate()

    def begin(self, steps: Sequence[tuple[str, float]], at_once: int = 1) -> None:
        """Announce the `steps` to come, (name, expected seconds) each, `at_once` of them side by side."""
        with self._lock:
            self._estimate.expect(steps, at_once)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Name the step that runs inside the `with`."""
        started = time.monotonic()
        with self._lock:
            self._estimate.start(name, started)
        self.say(f"{name} ...")
        try:
            yield
        except Exception:
            self._over(name, started, done=False)
            raise
        self._over(name, started, done=True)

    def _over(self, name: str, started: float, *, done: bool) -> None:
        now = time.monotonic()
        with self._lock:
            if done:
                self._estimate.end(name, now)
            else:
                self._estimate.give_up(name, now)
            over, of = self._estimate.counts(name)
            left = f"; {over} of {of}, about {clock_text(self._estimate.left_s(now))} left" if over < of else ""
        took = f"{now - started:.0f} s"
        self.say(f"{name}: done in {took}{left}" if done else f"{name}: ended after {took}, not done{left}")

    def say(self, text: str) -> None:
        """Print one line about what is running."""
        if not self._quiet:
            # A full disk or a terminal that is gone must not end the work that is told of.
            with self._lock, suppress(OSError):
                # One write: print's line end would be another, and lines of steps side by side run into each other.
                sys.stderr.write(f"fabtune: {text}\n")
                sys.stderr.flush()


class TerminalProgress(Progress):
    """A bar with the running steps and the time left, for a terminal.

    A step that takes longer than expected holds the bar at its own end, so the time left is an estimate.
    Drawing takes CPU from what runs beside it: where that is being measured, `redraws_per_s` is low.
    """

    def __init__(self, redraws_per_s: float = 10.0) -> None:
        super().__init__()
        self._redraws_per_s = redraws_per_s
        self._bar: RichProgress | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        with self._lock:
            self._estimate.start(name, time.monotonic())
            self._open()
        done = False
        try:
            yield
            done = True
        finally:
            with self._lock:
                if done:
                    self._estimate.end(name, time.monotonic())
                else:
                    self._estimate.give_up(name, time.monotonic())
                if not self._estimate.running:
                    self._close()

    def say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            super().say(text)

    def _open(self) -> None:
        if self._bar is not None:
            return
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
        from rich.progress import Progress as RichProgress
        from rich.text import Text

        estimate = self._estimate

        class Running(ProgressColumn):
            def render(self, task: "Task") -> Text:
                return Text("; ".join(estimate.running), overflow="ellipsis", no_wrap=True)

        class Left(ProgressColumn):
            def render(self, task: "Task") -> Text:
                now = time.monotonic()
                task.completed = estimate.share(now)
                return Text(f"about {clock_text(estimate.left_s(now))} left")

        self._bar = RichProgress(
            BarColumn(bar_width=20), TextColumn("{task.percentage:>3.0f}%"), Left(), Running(),
            console=Console(stderr=True), transient=True, refresh_per_second=self._redraws_per_s,
        )  # fmt: skip
        self._bar.update(self._bar.add_task("", total=1.0), completed=estimate.share(time.monotonic()))
        self._bar.start()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def for_stderr(redraws_per_s: float = 10.0) -> Progress:
    """Return the bar where stderr is a terminal that can redraw a line, plain lines where it is not."""
    redraws = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    return TerminalProgress(redraws_per_s) if redraws else Progress()

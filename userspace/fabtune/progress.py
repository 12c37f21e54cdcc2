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


class Progress:
    """One plain line a step, for stderr that is not a terminal; none at all when `quiet`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def begin(self, steps: Sequence[tuple[str, float]], at_once: int = 1) -> None:
        """Announce the `steps` to come, (name, expected seconds) each, `at_once` of them side by side."""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Name the step that runs inside the `with`."""
        started = time.monotonic()
        self.say(f"{name} ...")
        yield
        self.say(f"{name}: done in {time.monotonic() - started:.0f} s")

    def say(self, text: str) -> None:
        """Print one line about what is running."""
        if not self._quiet:
            # A full disk or a terminal that is gone must not end the work that is told of.
            with suppress(OSError):
                print(f"fabtune: {text}", file=sys.stderr, flush=True)


class TerminalProgress(Progress):
    """A bar with the running steps and the time left, for a terminal.

    The bar moves by the steps' expected seconds; a step that takes longer than expected holds
    the bar at its own end, so the time left is an estimate and never jumps back to the start.
    Drawing takes CPU from what runs beside it: where that is being measured, `redraws_per_s` is low.
    """

    def __init__(self, redraws_per_s: float = 10.0) -> None:
        super().__init__()
        self._redraws_per_s = redraws_per_s
        self._bar: RichProgress | None = None
        self._lock = threading.Lock()
        self._expected_s: dict[str, float] = {}
        # A step that runs beside others moves the whole by its share alone.
        self._share: dict[str, float] = {}
        self._done_s = 0.0
        self._running: dict[str, float] = {}

    def begin(self, steps: Sequence[tuple[str, float]], at_once: int = 1) -> None:
        self._expected_s.update(steps)
        self._share.update({name: 1 / at_once for name, _ in steps})

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        with self._lock:
            self._expected_s.setdefault(name, 10.0)
            self._running[name] = time.monotonic()
            self._open()
        try:
            yield
        finally:
            with self._lock:
                del self._running[name]
                self._done_s += self._expected_s[name] * self._share.get(name, 1)
                if not self._running:
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

        owner = self

        class Running(ProgressColumn):
            def render(self, task: "Task") -> Text:
                return Text("; ".join(owner._running), overflow="ellipsis", no_wrap=True)

        class Left(ProgressColumn):
            def render(self, task: "Task") -> Text:
                done, total = owner._position()
                task.completed, task.total = done, total
                minutes, seconds = divmod(round(max(total - done, 0)), 60)
                return Text(f"about {minutes}:{seconds:02} left")

        self._bar = RichProgress(
            BarColumn(bar_width=20), TextColumn("{task.percentage:>3.0f}%"), Left(), Running(),
            console=Console(stderr=True), transient=True, refresh_per_second=self._redraws_per_s,
        )  # fmt: skip
        done, total = self._position()
        self._bar.update(self._bar.add_task("", total=total), completed=done)
        self._bar.start()

    def _position(self) -> tuple[float, float]:
        now = time.monotonic()
        running_s = sum(
            min(now - started, 0.98 * self._expected_s[name]) * self._share.get(name, 1)
            for name, started in list(self._running.items())
        )
        whole_s = sum(expected_s * self._share.get(name, 1) for name, expected_s in self._expected_s.items())
        return self._done_s + running_s, whole_s

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def for_stderr(redraws_per_s: float = 10.0) -> Progress:
    """Return the bar where stderr is a terminal that can redraw a line, plain lines where it is not."""
    redraws = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    return TerminalProgress(redraws_per_s) if redraws else Progress()

# SPDX-License-Identifier: GPL-2.0-or-later
"""Where cases run: a host's trees in the scratch directory, tools that answer what a case says, and the properties.

Every kind of case holds to the same rules: a result, or a FabtuneError of a few lines that names the file;
nothing written but what the kind allows; no program started for good; and at the verb level an exit code
that DESIGN's table has, no control character on the terminal, valid JSON where JSON was asked for.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from guard import Watch

_MAX_MESSAGE_CHARACTERS, _MAX_MESSAGE_LINES = 4000, 12
# What a terminal acts upon instead of showing it: C0, DEL, C1 and the marks that turn the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
Files = dict[str, bytes]


class WrongError(Exception):
    """A property does not hold."""


def claim(condition: bool, text: str) -> None:
    """Raise WrongError unless `condition`; unlike assert it holds under -O too."""
    if not condition:
        raise WrongError(text)


class Tools:
    """Stands for the programs fabtune runs: each answers what the case says, and nothing is started."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.valid: dict[str, bytes] = {}
        self.allowed_record_keys: frozenset[str] = frozenset()

    def run(self, command: Sequence[Any], **options: Any) -> subprocess.CompletedProcess[Any]:
        """Take the place of subprocess.run."""
        words = [str(word) for word in command]
        name = _question(Path(words[0]).name, words[1:])
        if name == "iscsiadm-update":
            key = words[words.index("-n") + 1]
            claim(key in self.allowed_record_keys, f"iscsiadm would set {key!r:.200}, which no tunable has")
            value = words[words.index("-v") + 1].encode(errors="replace")
            lines = self._answer("iscsiadm-show").split(b"\n")
            self.answers["iscsiadm-show"] = b"\n".join(
                key.encode() + b" = " + value if line.startswith(key.encode() + b" = ") else line for line in lines
            )
        known = name in self.valid or name in self.answers
        out: Any = self._answer(name)
        error: Any = b"" if known else b"not supported here\n"
        if options.get("text"):
            mode = options.get("errors") or "strict"
            out, error = out.decode(errors=mode), error.decode(errors=mode)
        status = 0 if known else 1
        if options.get("check") and status:
            raise subprocess.CalledProcessError(status, words, out, error)
        return subprocess.CompletedProcess(words, status, out, error)

    def _answer(self, name: str) -> bytes:
        return self.answers.get(name, self.valid.get(name, b""))


def _question(program: str, words: list[str]) -> str:
    """Return the name of what a command asks."""
    rest = [word for word in words if not word.startswith("-")]
    if program == "iscsiadm" and ("--login" in words or "--logout" in words):
        # Fails here: no session would come of it.
        return "iscsiadm-login"
    if program == "iscsiadm":
        return "iscsiadm-update" if "update" in words else f"iscsiadm-{'show' if 'node' in words else rest[:1]}"
    if "-batch" in words:
        return "ip-route-get"
    if program == "ip":
        # Without -j the route is shown as the words that `ip route change` takes.
        return "-".join(["ip", *rest[:2]] if rest[:1] == ["route"] else ["ip", *rest[:1]]) + "-j" * ("-j" in words)
    return f"{program}-{'-'.join(rest[:2])}"


class Bench:
    """One worker's scratch directory with everything in it."""

    def __init__(self, scratch: Path, watch: Watch) -> None:
        self.scratch, self.watch, self.tools = scratch, watch, Tools()
        self.host, self.state = scratch / "host", scratch / "state"
        self._pristine: dict[str, bytes] = {}
        self._placed: set[str] = set()
        subprocess.run = self.tools.run  # type: ignore[assignment]

    def keep(self) -> None:
        """Remember every file of the scratch directory as it is now: each case starts with them."""
        self._pristine = {str(path): path.read_bytes() for path in self.scratch.rglob("*") if path.is_file()}

    def place(self, files: Files) -> None:
        """Write a case's files below the scratch directory; `answer:NAME` is what a tool says."""
        for name, data in files.items():
            kind, _, rest = name.rpartition(":")
            if kind == "answer":
                self.tools.answers[rest] = data
            elif kind == "file":
                path = self.scratch / rest
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                self._placed.add(str(path))

    def clear(self) -> None:
        """Put back everything that a case placed or fabtune wrote."""
        self.watch.armed = False
        for name in (*self._placed, *self.watch.written):
            if name in self._pristine:
                Path(name).write_bytes(self._pristine[name])
            elif not Path(name).is_dir():
                Path(name).unlink(missing_ok=True)
        self._placed.clear()
        self.watch.written.clear()
        self.watch.forbidden.clear()
        self.tools.answers.clear()

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """Watch the block's writes."""
        self.watch.armed = True
        try:
            yield
        finally:
            self.watch.armed = False

    def result(self, action: Callable[[], Any], names: str, bad_input: bool = True) -> Any:
        """Return what `action` returns, or None for a proper refusal that tells `names`.  Raises for all else."""
        from fabtune.errors import FabtuneError, InputError

        try:
            with self.armed():
                return action()
        except FabtuneError as error:
            claim(not bad_input or isinstance(error, InputError), f"not an InputError: {error!r:.500}")
            check_message(str(error), names)
            return None

    def verb(self, *words: str, names: str = "") -> tuple[int, str]:
        """Run one verb as the command line does; return its exit code and stdout."""
        from fabtune.cli.main import main

        out, err = (
            io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=mode) for mode in ("strict", "backslashreplace")
        )
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), self.armed():
                code = main(list(words))
        except SystemExit as ending:
            code = int(ending.code or 0)
        shown, told = (_text(stream) for stream in (out, err))
        claim(code in (0, 1, 2, 3, 4, 5), f"exit code {code}")
        for text in (shown, told):
            found = _CONTROL.search(text)
            claim(found is None, f"control character {found and found[0]!r} on the terminal: {_near(text, found)}")
        if code in (1, 2) and not shown:
            claim(bool(told.strip()), f"exit code {code} without a word")
            check_message(told, names if code == 2 else "")
        if "--json" in words and shown:
            json.loads(shown, parse_constant=_no_constant)
        return code, shown


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


def _near(text: str, found: re.Match[str] | None) -> str:
    return repr(text[max(0, found.start() - 60) : found.end() + 30]) if found else ""


def _no_constant(word: str) -> None:
    raise WrongError(f"{word} is not JSON")


def check_message(text: str, names: str) -> None:
    """Check that an error is of readable size, tells the file, and is not the guard's own doing."""
    claim(len(text) <= _MAX_MESSAGE_CHARACTERS, f"a message of {len(text)} characters: {text[:300]!r}")
    claim(len(text.splitlines()) <= _MAX_MESSAGE_LINES, f"a message of {len(text.splitlines())} lines: {text[:300]!r}")
    claim(len(text) > 10, f"a message that says nothing: {text!r}")
    claim(names in text, f"the message does not tell {names!r}: {text[:300]!r}")
    claim(os.strerror(30) not in text, f"it tried to write outside the scratch directory: {text[:300]!r}")


def set_up(scratch: Path, watch: Watch) -> Bench:
    """Make the host's trees in `scratch` and point fabtune there.  Must come before fabtune is imported."""
    bench = Bench(scratch, watch)
    os.environ |= {
        "FABTUNE_ROOT": str(bench.host),
        "FABTUNE_STATE_DIR": str(bench.state),
        "FABTUNE_PROFILES": str(scratch / "profiles"),
        "COLUMNS": "80",
    }
    os.environ["PATH"] = f"{bench.host}/bin:{os.environ['PATH']}"
    os.chdir(scratch)
    claim("fabtune.host.tree" not in sys.modules, "fabtune was imported too early")
    return bench

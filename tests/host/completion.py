#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Presses TAB in a real shell on a pseudo-terminal: completion.py SHELL LINE... prints what each LINE becomes.

In a LINE, ^ stands for the key TAB.  The shell runs the completed line with a stand-in that prints its words, and asks
the real fabtune for completions.  --installed takes what the system has, instead of this tree's.
"""

import os
import pty
import select
import shlex
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
OURS = TOP / "userspace/completions"
_LIMIT_S = 60.0
STARTS = {
    "bash": ["bash", "--noprofile", "--norc", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
OF_TREE = {
    "bash": f"source {OURS}/fabtune",
    "zsh": f"fpath=({OURS} $fpath); autoload -U compinit; compinit -u -D",
    "fish": f"source {OURS}/fabtune.fish",
}
OF_SYSTEM = {
    "bash": "source /usr/share/bash-completion/bash_completion",
    "zsh": "autoload -U compinit; compinit -u -D",
    "fish": "true",
}


def read_until(fd: int, wanted: str) -> str:
    """Return what the shell prints up to `wanted`; it must come within a minute."""
    seen = ""
    until = time.monotonic() + _LIMIT_S
    while wanted not in seen:
        if time.monotonic() > until:
            raise SystemExit(f"no {wanted!r} in {seen!r}")
        if select.select([fd], [], [], 1)[0]:
            seen += os.read(fd, 65536).decode(errors="replace")
    return seen


def completed(shell: str, lines: list[str], program: str, setup: str) -> list[str]:
    """Return the words that each of `lines` ran with."""
    with tempfile.TemporaryDirectory() as name:
        stand_in = Path(name) / "fabtune"
        stand_in.write_text(
            f'#!/bin/sh\n[ "$1" != __complete ] || exec {shlex.quote(program)} "$@"\necho "RAN:$*:END"\n'
        )
        stand_in.chmod(0o755)
        pid, fd = pty.fork()
        if pid == 0:
            # A shell's own files are not to be read, nor its history to be kept.
            os.environ.update(PATH=f"{name}:/usr/bin:/bin:/usr/sbin", TERM="xterm", HOME=name, XDG_DATA_HOME=name)
            os.execvp(STARTS[shell][0], STARTS[shell])
        os.write(fd, f"{setup}; echo rea''dy\n".encode())
        read_until(fd, "ready")
        found = []
        for line in lines:
            os.write(fd, line.replace("^", "\t").encode() + b"\n")
            found.append(read_until(fd, ":END").rpartition("RAN:")[2].partition(":END")[0])
        os.write(fd, b"exit\n")
        os.close(fd)
        os.waitpid(pid, 0)
        return found


def main() -> int:
    """Print what each line became."""
    installed = "--installed" in sys.argv
    shell, *lines = (word for word in sys.argv[1:] if word != "--installed")
    program = "/usr/bin/fabtune" if installed else str(TOP / "userspace/bin/fabtune")
    print("\n".join(completed(shell, lines, program, (OF_SYSTEM if installed else OF_TREE)[shell])))
    return 0


if __name__ == "__main__":
    sys.exit(main())

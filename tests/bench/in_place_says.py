# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: answers what fabtune's verbs say, without the time that each start of Python takes there.

Reads a line of JSON with a command line, and writes one with its exit status, stdout and stderr, until its input ends.
Each command runs in a process of its own, which nothing was looked at in before.
"""

import contextlib
import importlib
import io
import json
import os
import sys

from fabtune.cli.main import main as fabtune

_USED = ("cli.tune", "cli.output", "tune.verify", "tune.request", "tune.reconnect", "tune.memory", "backends.record")


def _answer(words: list[str]) -> str:
    said, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
        try:
            status = int(fabtune(words) or 0)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
    return json.dumps([status, said.getvalue(), told.getvalue()])


def main() -> None:
    """Answer until the input ends."""
    for name in _USED:
        importlib.import_module(f"fabtune.{name}")
    for line in sys.stdin:
        child = os.fork()
        if not child:
            print(_answer(json.loads(line)), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()

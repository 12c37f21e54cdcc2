# SPDX-License-Identifier: GPL-2.0-or-later
"""Where ``userspace/bin/fabtune`` and ``python3 -m fabtune`` begin: a Python that cannot run it is told so at once."""

import signal
import sys
from pathlib import Path

from fabtune import needs


def start():
    # type: () -> int
    """Run the command line; return its exit code, 1 where this Python cannot run it."""
    # Until a verb runs there is nothing to be ended or taken back: Ctrl-C ends it as it ends any program, no traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    launcher = Path(__file__).resolve().parents[1] / "bin/fabtune"
    wrong = needs.complaint(str(launcher) if launcher.exists() else "fabtune")
    if wrong:
        sys.stderr.write(wrong + "\n")
        return 1
    if sys.argv[1:3] == ["__complete", "--"]:
        from fabtune.cli.complete import run_complete

        return run_complete(sys.argv[3:])
    from fabtune.cli.main import main

    try:
        return main()
    except KeyboardInterrupt:
        # A verb answers for its own; this one came when all was done, or is a second one.
        return 130
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(start())

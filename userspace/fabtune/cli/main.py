# SPDX-License-Identifier: GPL-2.0-or-later
"""The ``fabtune`` command: finds the verb, imports only its module, maps errors to exit codes."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from fabtune import __version__
from fabtune.errors import ExitCode, FabtuneError

# verb -> (module that implements it, one line for --help).  The module is imported only when
# its verb is called, which keeps `fabtune --version` and every other verb quick.
VERBS = {
    "plan": ("fabtune.cli.tune", "show what a profile would change, and why; writes nothing"),
    "apply": ("fabtune.cli.tune", "write a profile's values, journalled"),
    "verify": ("fabtune.cli.tune", "compare this host with what was applied"),
    "revert": ("fabtune.cli.tune", "take back what apply wrote"),
    "history": ("fabtune.cli.tune", "list the journal's transactions"),
    "measure": ("fabtune.cli.measure", "run a workload and keep a record of it"),
    "compare": ("fabtune.cli.compare", "hold one set of run records against another"),
    "ab": ("fabtune.cli.ab", "measure two profiles in interleaved runs and judge the difference"),
    "report": ("fabtune.cli.report", "make one offline page from run records"),
    "workloads": ("fabtune.cli.measure", "list the workloads, or explain one"),
    "run": ("fabtune.cli.experiment", "run an experiment's matrix and show its result"),
    "stat": ("fabtune.cli.stat", "show each device's latency, queue depth and refusals (fabstat.ko)"),
    "stuck": ("fabtune.cli.stat", "list requests that have been under way for too long (fabstat.ko)"),
    "show": ("fabtune.cli.inspect", "show sessions, paths, NICs, targets and who else tunes"),
    "lint": ("fabtune.cli.inspect", "look for settings that lose data, stall or cost throughput"),
    "negotiate": ("fabtune.cli.inspect", "preview what an iSCSI login would agree on"),
    "tunables": ("fabtune.cli.vocabulary", "list every tunable"),
    "explain": ("fabtune.cli.vocabulary", "say what a tunable is, where it lives, what it is now and why it matters"),
    "profiles": ("fabtune.cli.vocabulary", "list the profiles"),
    "lab": ("fabtune.cli.lab", "build, run and enter guests with an emulated WAN"),
}


def build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser; only the verb that `argv` names gets its arguments filled in."""
    parser = argparse.ArgumentParser(
        prog="fabtune",
        description="See, tune and prove iSCSI and SRP storage fabrics.",
        epilog="Exit codes: 0 done, 1 failed, 2 bad usage or input, 3 drift or regression, "
        "4 applied but something still needs a re-login, reload or reboot, 5 cannot tell, 130 interrupted.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"fabtune {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    named = next((word for word in argv if not word.startswith("-")), None)
    for verb, (module, summary) in VERBS.items():
        verb_parser = verbs.add_parser(verb, help=summary, description=summary, allow_abbrev=False)
        if verb == named:
            importlib.import_module(module).configure(verb_parser, verb)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; no error reaches the user as a traceback."""
    argv = sys.argv[1:] if argv is None else argv
    args = build_parser(argv).parse_args(argv)
    try:
        return int(args.handler(args))
    except FabtuneError as error:
        print(f"fabtune: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("fabtune: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of our stdout went away (`| head`); that is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"fabtune: {where}{error.strerror or error}", file=sys.stderr)
        return ExitCode.FAILED

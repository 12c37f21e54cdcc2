# SPDX-License-Identifier: GPL-2.0-or-later
"""The ``fabtune`` command: finds the verb, imports only its module, maps errors to exit codes."""

import argparse
import contextlib
import gc
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence

from fabtune import __version__
from fabtune.cli import console
from fabtune.cli.arguments import Parser
from fabtune.cli.examples import EXAMPLES, epilog
from fabtune.errors import ExitCode, FabtuneError, InputError, printable

# verb -> (module with its arguments, one line for --help).  The function that runs it is named there and imported only
# when it runs, which keeps `fabtune --version`, every `--help` and all other verbs quick.
VERBS = {
    "plan": ("parse_tuning", "show what a profile would change, and why; writes nothing"),
    "apply": ("parse_tuning", "write a profile's values, after noting the old ones in the journal"),
    "tune": ("parse_tuning", "find what limits sessions under load and tune it away, step by step"),
    "guard": ("parse_tuning", "keep watch: values that drift, sessions that lost theirs, a path that has moved"),
    "verify": ("parse_tuning", "check that this host still has what was applied"),
    "confirm": ("parse_tuning", "keep what `apply --confirm-within` wrote"),
    "revert": ("parse_tuning", "restore what apply changed"),
    "history": ("parse_tuning", "list the journal's transactions, or what one wrote"),
    "measure": ("parse_measuring", "run a workload and save a record of it"),
    "compare": ("parse_measuring", "compare two sets of run records"),
    "ab": ("parse_measuring", "compare two profiles in interleaved runs and judge the difference"),
    "report": ("parse_measuring", "turn run records into one HTML page that works offline"),
    "workloads": ("parse_measuring", "list the workloads, or explain one"),
    "run": ("parse_measuring", "run an experiment in the lab or on a fleet and show its results"),
    "stat": ("parse_viewing", "show each device's latency, queue depth and refusals (fabstat.ko)"),
    "why": ("parse_viewing", "say what limits the sessions under load, with the evidence, and what lifts it"),
    "whatif": ("parse_viewing", "foretell what a profile or single values would bring a session under load"),
    "stuck": ("parse_viewing", "list requests that are outstanding, or wait to be sent, for too long"),
    "export": ("parse_viewing", "serve metrics to Prometheus, or write them to a file"),
    "show": ("parse_viewing", "show sessions, paths, NICs, targets and other programs that tune"),
    "doctor": ("parse_viewing", "check that this host is ready: module, programs, rights, and what is missing"),
    "lint": ("parse_viewing", "find settings that lose data, cause stalls or cost throughput"),
    "negotiate": ("parse_viewing", "preview what an iSCSI login would agree on"),
    "tunables": ("parse_viewing", "list every tunable"),
    "explain": ("parse_viewing", "explain a tunable: what it does, where it lives, its value now, why it matters"),
    "profiles": ("parse_viewing", "list the profiles"),
    "lab": ("parse_lab", "build, run and enter guests with an emulated WAN"),
}
# Options that may stand before the verb and take the word after them.
TAKE_A_VALUE = ("--netns", "--role", "--rtt", "--rate", "--set")
_ENDS_EARLY = ("-h", "--help", "--version")
_OBJECTS_TO_A_COLLECTION = 50_000


def top_parser() -> Parser:
    """Return the parser of what may stand without a verb."""
    parser = Parser(
        prog="fabtune",
        description="See, tune and prove iSCSI and SRP storage fabrics.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=epilog(EXAMPLES[""]) + "\n\nExit codes: 0 done, 1 failed, 2 bad usage or input, 3 drift or regression,"
        "\n4 applied but something still needs a re-login, reload or reboot, 5 cannot tell,\n130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"fabtune {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, (_, summary) in VERBS.items():
        verbs.add_parser(verb, help=summary)
    return parser


def verb_parser(verb: str) -> Parser:
    """Return the parser of what follows `verb`."""
    module, summary = VERBS[verb]
    parser = Parser(
        prog=f"fabtune {verb}",
        description=summary,
        epilog=epilog(EXAMPLES[verb]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    importlib.import_module(f"fabtune.cli.{module}").configure(parser, verb)
    return parser


def handler(name: str) -> Callable[[argparse.Namespace], int]:
    """Return the function that `name`, MODULE:FUNCTION, runs a verb with."""
    module, _, function = name.partition(":")
    found: Callable[[argparse.Namespace], int] = getattr(importlib.import_module(module), function)
    return found


def verb_first(argv: Sequence[str]) -> list[str]:
    """Return `argv` with options that stand before the verb put behind it."""
    index = 0
    while index < len(argv) and argv[index].startswith("-"):
        if argv[index] in _ENDS_EARLY:
            return list(argv)
        index += 2 if argv[index] in TAKE_A_VALUE else 1
    return [*argv[index : index + 1], *argv[:index], *argv[index + 1 :]]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the parsed words of a command line, the verb first.  Raises InputError; SystemExit after --help."""
    found = argparse.Namespace()
    if not argv or argv[0] not in VERBS:
        if argv and not argv[0].startswith("-"):
            from fabtune.model import typed

            raise InputError(f"unknown verb '{argv[0]}'{typed.suggestion(argv[0], VERBS)}; see `fabtune --help`")
        top_parser().parse_args(argv, found)
    else:
        verb_parser(argv[0]).parse_args(argv[1:], found)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; no error reaches the user as a traceback."""
    # A service manager's stop and a hang-up are handled like Ctrl-C: what runs is ended, what was made for it goes.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    # What a verb reads of a thousand sessions it needs until it ends: few looks for what is unreachable are enough.
    gc.set_threshold(_OBJECTS_TO_A_COLLECTION)
    console.make_whole()
    return console.delivered(_run(verb_first(sys.argv[1:] if argv is None else argv)))


def _run(argv: Sequence[str]) -> int:
    # Until the words are parsed, the word itself must do; `lab run SCRIPT --json` means the script's.
    as_json = "--json" in argv
    try:
        args = parse(argv)
        as_json = getattr(args, "json", False)
        run = handler(args.handler)
        # Before all is imported Ctrl-C just ends it: within an import it can come out as another exception.
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return int(run(args))
    except SystemExit as end:
        # argparse has printed help or version.
        return int(end.code or 0)
    except FabtuneError as error:
        return _failed(error, str(error), error.exit_code, argv, as_json)
    except KeyboardInterrupt as interrupt:
        # Whoever was interrupted may have said what is left.
        message = ": ".join(["interrupted", *map(str, interrupt.args)])
        return _failed(interrupt, message, ExitCode.INTERRUPTED, argv, as_json)
    except BrokenPipeError:
        # The reader of our stdout went away (`| head`); that is not an error.
        return ExitCode.DONE
    except OSError as error:
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        return _failed(error, f"{where}{error.strerror or error}", ExitCode.FAILED, argv, as_json)


def _failed(raised: BaseException, message: str, code: ExitCode, argv: Sequence[str], as_json: bool) -> ExitCode:
    """Say what is wrong, on stderr and where JSON was asked for on stdout too; return `code`."""
    message = printable(message)
    console.say(f"fabtune: {message}")
    if as_json:
        verb = argv[0] if argv and argv[0] in VERBS else None
        error = {"kind": code.name.lower(), "exit_code": int(code), "verb": verb, "message": message}
        # One line: it may follow others of a stream (`stat --watch`).  Where nothing can be written stderr has said it.
        with contextlib.suppress(OSError):
            print(json.dumps({**console.shown_beside(raised), "error": error}))
    return code

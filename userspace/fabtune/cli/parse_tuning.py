# SPDX-License-Identifier: GPL-2.0-or-later
"""The arguments of plan, apply, verify, revert and history; what runs them is imported when it does."""

import argparse
import re
from pathlib import Path

from fabtune.cli.arguments import ROLES, add_look, seconds_between
from fabtune.errors import InputError


def configure(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the arguments of one of the tuning verbs."""
    parser.add_argument("--json", action="store_true", help="print stable JSON instead of a table")
    module = {"tune": "autotune", "guard": "guard"}.get(verb, "tune")
    parser.set_defaults(handler=f"fabtune.cli.{module}:run_{verb}")
    verbs = {
        "plan": _plan, "apply": _apply, "tune": _tune, "guard": _guard, "confirm": _confirm, "verify": _verify,
        "revert": _revert, "history": _history,
    }  # fmt: skip
    more = verbs.get(verb)
    if more:
        more(parser)


def _add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--role", choices=(*ROLES, "both"), help="which end this host is (default: whatever it has)")
    parser.add_argument(
        "--netns", type=_namespace, default="", metavar="NAME", help="network namespace of the portals, by name or path"
    )


def _namespace(text: str) -> str:
    """Return the one name by which the journal knows network namespace `text`, a name or a path."""
    return re.sub(r"^(/var)?/run/netns/(?=[^/]+$)", "", text)


def _add_path(parser: argparse.ArgumentParser) -> None:
    # argparse would take the value of `--rtt -5ms` for an option and say only that one is missing.
    parser._negative_number_matcher = re.compile(r"-\d")
    parser.add_argument(
        "--rtt", metavar="TIME", help="round-trip time of the path, such as 50ms (default: from the live sessions)"
    )
    parser.add_argument(
        "--rate",
        metavar="RATE",
        help="rate of the slowest link, such as 1gbit; 'measure' reads 3 MB from a session's disk (default: the NIC's)",
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="override a profile parameter")


def _add_scope(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scope",
        choices=("connection", "host"),
        default="host",
        help="connection: leave alone what concerns more on this host than the storage path's own sessions and disks",
    )


def _add_part(parser: argparse.ArgumentParser) -> None:
    """Add what makes a plan less than all that its profile says."""
    _add_scope(parser)
    parser.add_argument(
        "--only", action="append", default=[], metavar="TUNABLE", help="plan this tunable of the profile alone"
    )
    parser.add_argument(
        "--estimated", action="store_true", help="nobody vouches for the rate: pace nothing, bound buffers by memory"
    )


def _plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help="a profile's name or file (default: wan)")
    parser.add_argument(
        "--from",
        dest="reason",
        choices=("why",),
        help="look at the sessions under their load for 10 s, and plan only what lifts what limits them",
    )
    parser.add_argument("--all", action="store_true", help="also list values that are right already or not needed")
    _add_where(parser)
    _add_path(parser)
    _add_part(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="also save the plan, for `fabtune apply --plan FILE`; -: print only that",
    )
    parser.add_argument("--exit-code", action="store_true", help="exit 3 if there is anything to change, else 0")


def _apply(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help="a profile's name or file")
    parser.add_argument(
        "--plan",
        type=Path,
        metavar="FILE",
        help="write what `fabtune plan --out FILE` saved, if the host has not changed since; -: from standard input",
    )
    parser.add_argument(
        "--yes", "-y", action="store_true", help="do not ask first; without a terminal nothing is asked anyway"
    )
    _add_where(parser)
    _add_path(parser)
    _add_scope(parser)
    parser.add_argument(
        "--again",
        action="store_true",
        help="write again what is in force and a boot, a new login or a new link has undone (runs by itself at boot)",
    )
    _add_reconnect(parser, "new", " (see the plan)")
    parser.add_argument(
        "--allow-relogin", action="store_true", help="log sessions out and in again, one at a time, where that is safe"
    )
    _add_end_sessions(parser, "write", " (see the plan's effect)")
    parser.add_argument(
        "--persist", action="store_true", help="also write the system's own files that set the values at boot"
    )
    parser.add_argument("--dry-run", action="store_true", help="only show the plan")
    parser.add_argument(
        "--confirm-within",
        # Somebody must be able to log in and type meanwhile.
        type=seconds_between("--confirm-within", 5, 86400, "5s to 86400s"),
        metavar="TIME",
        help="restore everything after TIME, such as 60s, unless `fabtune confirm` comes, whatever dies meanwhile",
    )
    parser.add_argument("--note", default="", metavar="WORDS", help="keep these words with it in the journal")


def _tune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--goal", choices=("throughput", "latency", "both"), default="throughput",
        help="what a step must bring to stay: more MB/s; a lower p99, at 0.9 of the throughput or more; "
        "or either, with neither worse (default: throughput; times need fabstat)",
    )  # fmt: skip
    parser.add_argument(
        "--on", action="append", default=[], metavar="DEV",
        help="look at this disk's load alone (default: all disks); a step that needs new connections pauses all "
        "sessions of this host all the same",
    )  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--target-netns", type=_namespace, metavar="NAME", help="also tune the target in this namespace of this host"
    )
    where.add_argument(
        "--target-host", default="", metavar="HOST", help="also tune the target on this host, with the fabtune there"
    )
    parser.add_argument("--rate", metavar="RATE", help="rate of the slowest link, where it is known")
    parser.add_argument(
        "--with",
        dest="workload",
        metavar="WORKLOAD",
        help="put the disk of --on under this load meanwhile, as measure does",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change a parameter of WORKLOAD"
    )
    parser.add_argument("--confirm", metavar="NAME", help="allow WORKLOAD to overwrite this device, such as sdb")
    add_look(parser, 3, 600)
    parser.add_argument("--steps", type=_steps, default=8, metavar="N", help="the most steps (default: 8)")
    parser.add_argument(
        "--unfair",
        action="store_true",
        help="keep what leaves others that use the same line less than half as much, too",
    )
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask first")


def _guard(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--heal",
        action="store_true",
        help="write again what counts at once, was fabtune's and was undone, and follow a path whose round trip moved",
    )
    parser.add_argument(
        "--every",
        dest="every_s",
        type=seconds_between("--every", 0.1, 3600, "100ms to 3600s"),
        default=1.0,
        metavar="TIME",
        help="how often to look at the paths (default: 1s; values are compared each minute)",
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        type=seconds_between("--for", 0.001, 1e7, "1ms to 10000000s"),
        metavar="TIME",
        help="end after TIME (default: with Ctrl-C)",
    )


def _steps(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:4]) <= 100:
        raise InputError(f"--steps {text}: expected a whole number from 1 to 100")
    return int(text)


def _add_reconnect(parser: argparse.ArgumentParser, values: str, more: str = "") -> None:
    parser.add_argument(
        "--reconnect",
        action="store_true",
        help=f"give sessions in use a connection with the {values} values, in place: devices and mounts stay, "
        f"requests of all sessions of this host wait for a moment{more}",
    )


def _add_end_sessions(parser: argparse.ArgumentParser, act: str, more: str = "") -> None:
    parser.add_argument(
        "--end-sessions",
        action="store_true",
        help=f"also {act} what ends this target's sessions, whose initiators may be using them{more}",
    )


def _verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help="also compare the host with this profile's plan")
    _add_where(parser)
    _add_path(parser)
    _add_part(parser)
    parser.add_argument(
        "--publish",
        action="store_true",
        help="also leave the outcome in /run/fabtune, for `fabtune export`; of all that was applied, not of a part",
    )


def _confirm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--transaction", metavar="ID", help="keep only this transaction (see `fabtune history`); others go on waiting"
    )


def _history(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("transaction", nargs="?", metavar="TRANSACTION", help="show what this one wrote")


def _revert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help="restore only what this profile changed")
    parser.add_argument(
        "--transaction",
        metavar="ID",
        help="restore only this transaction (see `fabtune history`) and what a boot or guard wrote for it",
    )
    _add_where(parser)
    parser.add_argument(
        "--force", action="store_true", help="also overwrite values that somebody else has changed since"
    )
    _add_reconnect(parser, "old")
    parser.add_argument("--allow-relogin", action="store_true", help="log sessions in again with the old values")
    parser.add_argument(
        "--unconfirmed",
        nargs="?",
        const="wait",
        choices=("wait", "once"),
        metavar="once",
        help="wait for the end of each --confirm-within, and restore what was not confirmed; `once` only looks, as a "
        "boot does (both run by themselves)",
    )
    _add_end_sessions(parser, "restore")
    parser.add_argument(
        "--dry-run", action="store_true", help="only show what would become of each value, and why; writes nothing"
    )

# SPDX-License-Identifier: GPL-2.0-or-later
"""The arguments of the verbs that look at a host or the vocabulary; what runs them is imported when it does."""

import argparse
from pathlib import Path

from fabtune.cli.arguments import ROLES, add_look, count, plain_seconds, unix_time


def configure(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the arguments of `verb`."""
    if verb in ("stat", "stuck"):
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.set_defaults(handler=f"fabtune.cli.stat:run_{verb}")
        if verb == "stat":
            _stat(parser)
        return
    if verb == "export":
        _export(parser)
        return
    parser.add_argument("--json", action="store_true", help="print stable JSON instead of a table")
    if verb == "why":
        parser.set_defaults(handler="fabtune.cli.why:run_why")
        _why(parser)
        return
    if verb == "whatif":
        parser.set_defaults(handler="fabtune.cli.whatif:run_whatif")
        _whatif(parser)
        return
    if verb == "doctor":
        parser.set_defaults(handler="fabtune.cli.doctor:run_doctor")
        return
    if verb in ("tunables", "explain", "profiles"):
        parser.set_defaults(handler=f"fabtune.cli.vocabulary:run_{verb}")
        _vocabulary(parser, verb)
    else:
        parser.set_defaults(handler=f"fabtune.cli.inspect:run_{verb}")
        _inspect(parser, verb)


def _stat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("device", nargs="*", metavar="DEV", help="only this disk, in detail, such as sda")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--watch",
        type=plain_seconds(0.05, 86400, "1"),
        metavar="SECONDS",
        help="print what happened every so many seconds",
    )
    mode.add_argument("--diff", nargs=2, type=Path, metavar=("A", "B"), help="compare two saved readings")
    mode.add_argument("--save", type=Path, metavar="FILE", help="save this reading for --diff")
    parser.add_argument("--count", type=count, metavar="N", help="with --watch: stop after N intervals")
    parser.add_argument("--all", action="store_true", help="also show idle and removed devices")
    parser.add_argument(
        "--target", action="store_true", help="this host is a target: show what it served, by initiator and LUN"
    )


def _export(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(handler="fabtune.cli.export:run_export")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--textfile", type=Path, metavar="FILE", help="write the metrics once, for node_exporter (FILE.prom); -: print"
    )
    mode.add_argument(
        "--only",
        choices=("reader", "server"),
        help="half of the service: what reads the kernel, as root, or what serves HTTP, as nobody",
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:13260", metavar="ADDRESS:PORT", help="where to serve (default: %(default)s)"
    )


def _why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("device", nargs="*", metavar="DEV", help="only this disk, or those below it, such as sda")
    where = _look(parser)
    where.add_argument(
        "--fleet", type=Path, metavar="INVENTORY", help="look on all hosts of an Ansible inventory at once"
    )
    parser.add_argument(
        "--end", choices=("target",), metavar="END", help="'target': this host is it, show what its end sees (JSON)"
    )
    parser.add_argument("--watch", action="store_true", help="look again and again, until Ctrl-C")
    at = "begin when this host's clock reaches this UNIX time, if that is within a minute; else at once"
    parser.add_argument("--at", type=unix_time, metavar="SECONDS", help=at)


def _whatif(parser: argparse.ArgumentParser) -> None:
    words = "a profile, values such as iscsi.tcp_window=0 or target:tcp.wmem_max=16MiB, and disks; without a disk all"
    parser.add_argument("word", nargs="+", metavar="PROFILE|NAME=VALUE|DEV", help=words)
    _look(parser)


def _look(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    # Shorter looks see too little, longer ones mix too much.
    add_look(parser, 1, 3600)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--target-netns", metavar="NAME", help="the target is in this network namespace: look there too")
    where.add_argument("--target-host", default="", metavar="HOST", help="the target is this host: look there by ssh")
    parser.add_argument("--rate", metavar="RATE", help="rate of the slowest link, such as 1gbit, if you know it")
    return where


def _vocabulary(parser: argparse.ArgumentParser, verb: str) -> None:
    if verb == "tunables":
        parser.add_argument("--role", choices=ROLES, help="only those of this end")
        parser.add_argument(
            "--markdown", action="store_true", help="print the reference page, Documentation/tunables.md"
        )
    elif verb == "explain":
        parser.add_argument("tunable", metavar="NAME", help="a tunable, such as iscsi.tcp_window, or a workload")
        parser.add_argument("--netns", default="", metavar="NAME", help="network namespace to read it in")


def _inspect(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("--netns", default="", metavar="NAME", help="network namespace of the portals, by name or path")
    parser.add_argument("--rtt", metavar="TIME", help="round-trip time, such as 50ms (default: from live sessions)")
    parser.add_argument("--rate", metavar="RATE", help="rate of the slowest link, such as 1gbit (default: the NIC's)")
    if verb == "show":
        parser.add_argument(
            "profile", nargs="?", metavar="PROFILE", help="also show the values that this profile wants for sessions"
        )
    elif verb == "lint":
        parser.add_argument(
            "file", nargs="?", metavar="FACTS", help="another host's `fabtune show --json` (default: this host)"
        )
    else:
        parser.add_argument("profile", nargs="?", metavar="PROFILE", help="preview with this profile applied")
        parser.add_argument("--initiator", metavar="FACTS", help="facts file of the initiator (default: this host)")
        parser.add_argument("--target", metavar="FACTS", help="facts file of the target (default: this host)")

# SPDX-License-Identifier: GPL-2.0-or-later
"""The arguments of ``fabtune lab``; what runs it is imported when it does."""

import argparse
from pathlib import Path
from typing import Any

# As lab/ has them; importing that takes longer than all the rest of `fabtune lab --help`.
SUITES = ("trixie", "bookworm", "sid")
CLOCKS = ("virtual", "real")
ACCELERATORS = ("auto", "kvm", "tcg", "tcg-single", "uml")


# Which images there are follows from the kinds of targets: who builds one says so.
_SUITE: dict[str, Any] = {
    "default": SUITES[0],
    "metavar": "SUITE",
    "help": f"Debian suite of the guest: {', '.join(SUITES)}; or with a target's package, such as {SUITES[0]}+tgt",
}


def configure(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the sub-verbs of ``lab``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser("build", help="make a suite's guest image and fabstat.ko, cached")
    build.add_argument("--suite", **_SUITE)
    build.set_defaults(handler="fabtune.cli.lab:run_build")
    run = actions.add_parser("run", help="boot a guest, run a script in it as root, fetch its /results")
    _add_machine(run)
    run.add_argument("--timeout-s", type=float, default=600.0, help="wall time after which a guest counts as stalled")
    run.add_argument("--out", type=Path, help="directory for results and logs (default: discarded)")
    run.add_argument(
        "--state", type=Path, metavar="FILE",
        help="boot with systemd, and keep what the guest writes in FILE (made when absent) for the next one",
    )  # fmt: skip
    run.add_argument("script", type=Path)
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARG")
    run.set_defaults(handler="fabtune.cli.lab:run_job")
    shell = actions.add_parser("shell", help="enter a booted guest with the WAN topology up")
    _add_machine(shell)
    shell.set_defaults(handler="fabtune.cli.lab:run_shell", clock="real")
    clean = actions.add_parser("clean", help="delete all cached images")
    clean.set_defaults(handler="fabtune.cli.lab:run_clean")


def _add_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", **_SUITE)
    parser.add_argument("--kernel-suite", choices=SUITES, help="take the kernel from another suite")
    parser.add_argument("--clock", default="virtual", choices=CLOCKS, help="virtual: repeatable; real: SMP")
    parser.add_argument("--accel", default="auto", choices=ACCELERATORS, help="accelerator of the real clock")
    parser.add_argument("--smp", type=int, default=1, metavar="N", help="vCPUs; the virtual clock has one")
    parser.add_argument("--memory-mib", type=int, default=2048, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of every random choice in the guest")
    parser.add_argument("--append", default="", metavar="WORDS", help="more words for the kernel's command line")
    parser.add_argument("--device", action="append", default=[], metavar="'-device X'", help="one more QEMU option")

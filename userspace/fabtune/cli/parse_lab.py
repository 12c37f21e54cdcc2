# SPDX-License-Identifier: GPL-2.0-or-later
"""The arguments of ``fabtune lab``; what runs it is imported when it does."""

import argparse
from pathlib import Path

from fabtune.cli.arguments import plain_seconds, seed, whole_between

# As lab/ has them; importing that takes longer than all the rest of `fabtune lab --help`.
SUITES = ("trixie", "bookworm", "sid")
DEBUG_KERNELS = ("kasan", "kcsan", "rt", "scsi-builtin")
UML_VIRTUAL = "uml-virtual"
CLOCKS = ("virtual", "real")
ACCELERATORS = ("auto", "kvm", "tcg", "tcg-single", "uml")


def _add_suite(parser: argparse.ArgumentParser, more: str = "") -> None:
    # Which images there are follows from the kinds of targets: who builds one says so.
    parser.add_argument(
        "--suite", default=SUITES[0], metavar="SUITE",
        help=f"Debian suite of the guest: {', '.join(SUITES)}; or with a target's package, as {SUITES[0]}+tgt{more}",
    )  # fmt: skip


def configure(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the sub-verbs of ``lab``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser("build", help="build and cache a suite's guest image and fabstat.ko")
    _add_suite(build, f"; or a kernel: {', '.join((*DEBUG_KERNELS, UML_VIRTUAL))}")
    build.set_defaults(handler="fabtune.cli.lab:run_build")
    run = actions.add_parser("run", help="boot a guest, run a script in it as root and fetch its /results")
    _add_machine(run)
    run.add_argument(
        "--timeout-s",
        type=plain_seconds(1, 1e6, "600"),
        default=600.0,
        help="wall time after which a guest counts as stalled (default: 600)",
    )
    run.add_argument("--out", type=Path, metavar="DIR", help="directory for results and logs (default: discard them)")
    run.add_argument(
        "--state", type=Path, metavar="FILE",
        help="boot with systemd, and keep what the guest writes in FILE (created if missing) for the next boot",
    )  # fmt: skip
    run.add_argument(
        "--file", type=Path, action="append", default=[], metavar="FILE",
        help="copy FILE into the guest, where SCRIPT finds it as files/NAME in the directory that it begins in",
    )  # fmt: skip
    run.add_argument("script", type=Path, metavar="SCRIPT", help="the script to run in the guest")
    rest = run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARG", help="its arguments")
    # argparse would name it beside a SCRIPT that is missing.
    rest.required = False
    run.set_defaults(handler="fabtune.cli.lab:run_job")
    shell = actions.add_parser("shell", help="enter a running guest with the WAN topology up")
    _add_machine(shell)
    shell.set_defaults(handler="fabtune.cli.lab:run_shell", clock="real")
    clean = actions.add_parser("clean", help="delete all cached images")
    clean.set_defaults(handler="fabtune.cli.lab:run_clean")


def _add_machine(parser: argparse.ArgumentParser) -> None:
    _add_suite(parser)
    parser.add_argument(
        "--kernel-suite", choices=(*SUITES, *DEBUG_KERNELS), metavar="SUITE",
        help=f"take the kernel from this suite instead, or one with sanitizers: {', '.join(DEBUG_KERNELS)}",
    )  # fmt: skip
    parser.add_argument(
        "--clock", default="virtual", choices=CLOCKS, help="virtual: repeatable, one vCPU; real: the host's, any number"
    )
    parser.add_argument(
        "--accel", default="auto", choices=ACCELERATORS,
        help="accelerator for the real clock; with the virtual one, uml is many times as fast, and CPUs cost nothing",
    )  # fmt: skip
    parser.add_argument(
        "--smp",
        type=whole_between(1, 255),
        default=1,
        metavar="N",
        help="number of vCPUs; with the virtual clock always 1",
    )
    parser.add_argument(
        "--memory-mib", type=whole_between(256, 32768), default=2048, metavar="N", help="memory in MiB (default: 2048)"
    )
    parser.add_argument(
        "--seed", type=seed, default=1, metavar="N", help="seed of every random choice in the guest; uml has none"
    )
    parser.add_argument("--append", default="", metavar="WORDS", help="more words for the kernel's command line")
    parser.add_argument("--device", action="append", default=[], metavar="'-device X'", help="another QEMU option")

# SPDX-License-Identifier: GPL-2.0-or-later
"""The arguments of the verbs that measure and judge; what runs them is imported when it does."""

import argparse
from pathlib import Path

from fabtune.cli.arguments import (
    bit_per_s,
    count,
    counts,
    milliseconds,
    mtu_bytes,
    percent,
    seconds_between,
    seed,
    sizes,
    unix_time,
    whole_between,
)
from fabtune.model.untouched import UNTOUCHED


def configure(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the arguments of `verb`."""
    {
        "measure": _measure, "workloads": _workloads, "compare": _compare, "ab": _ab, "report": _report, "run": _run,
    }[verb](parser)  # fmt: skip


def _measure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "workload",
        metavar="WORKLOAD",
        help="one of `fabtune workloads`, the path of a file, replay for a trace, or net for just the network",
    )
    _add_load(parser)
    parser.add_argument("--label", default="", help="a name for these settings in reports, such as the profile applied")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="DIR", help="save the record in DIR (default: runs)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--at", type=unix_time, metavar="SECONDS", help="start the load when this host's clock reaches this UNIX time"
    )
    parser.add_argument(
        "--capture", action="store_true", help="afterwards capture packets to prove what the session does"
    )
    parser.add_argument("--claim", action="append", default=[], metavar="NAME=VALUE",
                        help="with --capture: also check this against it, such as CommandWindow=64")  # fmt: skip
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="replay: the requests to send, as blktrace kept them"
    )
    _add_net(parser.add_argument_group("net"))
    parser.set_defaults(handler="fabtune.cli.measure:run_measure")


def _add_net(net: argparse._ArgumentGroup) -> None:
    """Add what a test of just the network takes."""
    net.add_argument("--peer", metavar="HOST", help="the host that runs iperf3 --server")
    net.add_argument("--port", type=whole_between(1, 65535), default=5201, help="its port (default: 5201)")
    net.add_argument(
        "--windows",
        type=sizes,
        default=[0],
        metavar="SIZE[,SIZE]",
        help="socket buffers to try; 0 is the kernel's own (default: 0)",
    )
    net.add_argument(
        "--streams",
        type=counts,
        default=[1, 4],
        metavar="N[,N]",
        help="numbers of parallel connections to try (default: 1,4)",
    )


def _add_load(parser: argparse.ArgumentParser) -> None:
    """Add what says where and how a workload runs."""
    parser.add_argument("--on", metavar="DEVICE|DIR", help="block device or directory to load")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE[,VALUE]", help="change a parameter of the workload"
    )
    parser.add_argument(
        "--runtime", type=seconds_between("--runtime", 1e-9, 1e6, "more than 0s, at most 1000000s"), metavar="TIME",
        help="measure each step this long, such as 30s",
    )  # fmt: skip
    parser.add_argument(
        "--ramp",
        type=seconds_between("--ramp", 0, 1e6, "0s to 1000000s"),
        metavar="TIME",
        help="run the load this long before measuring, such as 6s",
    )
    parser.add_argument(
        "--rtt", type=milliseconds, metavar="TIME", help="round-trip time of the path, to compute the bound"
    )
    parser.add_argument(
        "--rate", type=bit_per_s, metavar="RATE", help="rate of the path, such as 1gbit, to compute the bound"
    )
    parser.add_argument(
        "--mtu", type=mtu_bytes, default=1500, help="MTU of the path, to compute the bound (default: 1500)"
    )
    parser.add_argument("--confirm", metavar="NAME", help="allow overwriting this device, such as sdb")
    parser.add_argument(
        "--keep-files", action="store_true", help="keep the files that a workload made in DIR for the next run"
    )


def _workloads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="WORKLOAD", help="show everything about this one")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler="fabtune.cli.workloads:run_workloads")


def _compare(parser: argparse.ArgumentParser) -> None:
    _add_judging(parser)
    parser.add_argument(
        "a", type=Path, metavar="A", help="a run record, or a directory of them; alone, one that `fabtune ab` left"
    )
    parser.add_argument("b", type=Path, nargs="?", metavar="B", help="a record or a directory, to compare with A")
    parser.set_defaults(handler="fabtune.cli.compare:run_compare")


def _add_judging(parser: argparse.ArgumentParser) -> None:
    """Add what says how a difference is judged and shown."""
    parser.add_argument(
        "--practical",
        type=percent,
        metavar="PERCENT",
        help="ignore smaller differences (default: 2%%, or what the session was measured with)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _ab(parser: argparse.ArgumentParser) -> None:
    _add_judging(parser)
    parser.add_argument("a", metavar="PROFILE_A", help=f"a profile, or '{UNTOUCHED}' for nothing applied")
    parser.add_argument("b", metavar="PROFILE_B", help="the same, to compare with PROFILE_A")
    parser.add_argument("workload", metavar="WORKLOAD", help="one of `fabtune workloads`, or the path of a file")
    _add_load(parser)
    parser.add_argument("--pairs", type=int, help="runs of each profile, interleaved in ABBA blocks (default: 10)")
    parser.add_argument(
        "--until",
        choices=("decided",),
        help="end at the first of four looks that can tell; --pairs is then the most there may be (default: 32)",
    )
    parser.add_argument(
        "--calibrate",
        type=int,
        default=6,
        metavar="PAIRS",
        help="pairs of PROFILE_A with itself, measured first (default: 6)",
    )
    settle = seconds_between("--settle", 0, 86400, "0s to 86400s")
    words = "wait this long after each switch (default: 2s)"
    parser.add_argument("--settle", type=settle, default=2.0, metavar="TIME", help=words)
    parser.add_argument(
        "--target-host", default="", metavar="HOST", help="also switch the profile on the target HOST, over ssh"
    )
    parser.add_argument("--target-netns", default="", metavar="NAME", help="network namespace of the target's portals")
    parser.add_argument("--switch", default="", metavar="COMMAND",
                        help="run COMMAND PROFILE to switch, instead of apply and revert")  # fmt: skip
    parser.add_argument("--seed", type=seed, metavar="N", help="seed of the runs' order (default: a new one, printed)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="DIR", help="save the records in DIR (default: runs)"
    )
    parser.set_defaults(handler="fabtune.cli.ab:run_ab")


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="directory of the run records")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the page here (default: DIR/report.html)")
    parser.add_argument(
        "--tree",
        action="store_true",
        help="DIR holds experiments of `fabtune run`: link them as one suite (DIR/index.html)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the figures of every run as JSON instead of writing a page"
    )
    parser.set_defaults(handler="fabtune.cli.report:run_report")


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "experiment", nargs="?", help="a shipped experiment's name or a .toml file (default: list them)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory for the results (default: out/NAME)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="FACTOR=VALUE[,VALUE]",
        help="run only the combinations with these values",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="only print the combinations and how long they will take"
    )
    parser.add_argument("--resume", action="store_true", help="keep the runs that --out already holds")
    parser.add_argument(
        "--jobs",
        type=count,
        default=0,
        metavar="N",
        help="how many guests to run at a time (default: one per CPU, if their memory is there)",
    )
    parser.add_argument(
        "--fleet", type=Path, metavar="INVENTORY", help="run on the hosts of an Ansible inventory instead of in the lab"
    )
    parser.add_argument(
        "--allow-relogin",
        action="store_true",
        help="with --fleet: log sessions out and in again where a profile needs it",
    )
    parser.add_argument("--json", action="store_true", help="print the points as JSON instead of a table")
    parser.set_defaults(handler="fabtune.cli.experiment:run_experiment")

# SPDX-License-Identifier: GPL-2.0-or-later
"""``fabtune lab``: build, run and enter guests with an emulated WAN."""

import argparse
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from fabtune import progress
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.lab.accel import ACCELERATORS, choose_accelerator
from fabtune.lab.image import Image, build_image, expected_steps, remove_images
from fabtune.lab.job import write_job
from fabtune.lab.module import build_module
from fabtune.lab.recipe import IMAGES, SUITES
from fabtune.lab.uml import build_uml, make_state
from fabtune.lab.vm import CLOCKS, Machine, run_guest, start


def configure(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the sub-verbs of ``lab``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser("build", help="make a suite's guest image and fabstat.ko, cached")
    build.add_argument("--suite", default=SUITES[0], choices=IMAGES)
    build.set_defaults(handler=_build)
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
    run.set_defaults(handler=_run)
    shell = actions.add_parser("shell", help="enter a booted guest with the WAN topology up")
    _add_machine(shell)
    shell.set_defaults(handler=_shell, clock="real")
    clean = actions.add_parser("clean", help="delete all cached images")
    clean.set_defaults(handler=_clean)


def _add_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", default=SUITES[0], choices=IMAGES, help="Debian suite of the guest")
    parser.add_argument("--kernel-suite", choices=SUITES, help="take the kernel from another suite")
    parser.add_argument("--clock", default="virtual", choices=CLOCKS, help="virtual: repeatable; real: SMP")
    parser.add_argument("--accel", default="auto", choices=ACCELERATORS, help="accelerator of the real clock")
    parser.add_argument("--smp", type=int, default=1, metavar="N", help="vCPUs; the virtual clock has one")
    parser.add_argument("--memory-mib", type=int, default=2048, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of every random choice in the guest")
    parser.add_argument("--append", default="", metavar="WORDS", help="more words for the kernel's command line")
    parser.add_argument("--device", action="append", default=[], metavar="'-device X'", help="one more QEMU option")


def _machine(args: argparse.Namespace) -> tuple[Machine, Path | None]:
    """Return the machine that the options describe, and fabstat.ko for its kernel where it can have one."""
    if args.smp < 1 or (args.clock == "virtual" and args.smp != 1):
        raise InputError(f"--smp {args.smp}: the virtual clock has exactly one vCPU; use --clock real for more")
    if not 256 <= args.memory_mib <= 32768:
        raise InputError(f"--memory-mib {args.memory_mib}: expected 256 to 32768")
    if args.accel == "uml":
        return _uml_machine(args), None
    suites = [args.suite, args.kernel_suite or args.suite]
    image, kernel = _images(suites)
    accelerator = choose_accelerator(args.accel, kernel) if args.clock == "real" else "tcg"
    machine = Machine(
        image, kernel if kernel is not image else None, args.clock, accelerator, args.smp, args.memory_mib,
        args.seed, tuple(args.device), args.append,
    )  # fmt: skip
    return machine, build_module(kernel)


def _uml_machine(args: argparse.Namespace) -> Machine:
    if args.clock != "real" or args.smp != 1 or args.kernel_suite or args.device:
        raise InputError("--accel uml: goes with --clock real, one CPU, a kernel of its own and no QEMU devices")
    image, host = _images([args.suite, SUITES[0]])
    return Machine(
        image, clock="real", accelerator="uml", memory_mib=args.memory_mib, append=args.append,
        uml=(build_uml(host), host),
    )  # fmt: skip


def _images(suites: list[str]) -> tuple[Image, Image]:
    show = progress.for_stderr()
    show.begin([step for suite in dict.fromkeys(suites) for step in expected_steps(suite)])
    built = {suite: build_image(suite, show) for suite in dict.fromkeys(suites)}
    return built[suites[0]], built[suites[1]]


def _build(args: argparse.Namespace) -> int:
    image, _ = _images([args.suite, args.suite])
    module = build_module(image)
    print(f"{image.suite}: kernel {image.kernel_release}, image {image.squashfs}, module {module}")
    return ExitCode.DONE


def _run(args: argparse.Namespace) -> int:
    if args.state and args.accel != "uml":
        raise InputError("--state: goes with --accel uml; an emulated CPU takes minutes to boot systemd")
    machine, module = _machine(args)
    if args.state:
        make_state(args.state)
        machine = replace(machine, state=args.state)
    with tempfile.TemporaryDirectory(prefix="fabtune-lab-") as name:
        job = Path(name) / "job.cpio"
        write_job(job, args.script, args.arguments, module=module, tests=True, systemd=bool(args.state))
        out = args.out or Path(name) / "out"
        outcome = run_guest(
            machine, job, out, timeout_s=args.timeout_s,
            on_output=lambda line: print(line, flush=True),
        )  # fmt: skip
    return outcome.exit_status


def _shell(args: argparse.Namespace) -> int:
    machine, module = _machine(args)
    columns, lines = shutil.get_terminal_size()
    with tempfile.TemporaryDirectory(prefix="fabtune-lab-") as name:
        directory = Path(name)
        job = directory / "job.cpio"
        script = Path(__file__).parent.parent / "lab" / "guestfs" / "shell"
        terminal = {"stty": f"cols {columns} rows {lines}", "term": os.environ.get("TERM", "vt100")}
        write_job(job, script, module=module, shell=terminal, tests=True)
        console = directory / "console.log"
        ttys = [f"file,path={console}", "stdio,mux=off,signal=off", "null"]
        process = start(machine, job, ttys, directory / "qemu.log")
        try:
            status = process.wait()
        finally:
            process.kill()
            process.wait()
        if status != 0:
            raise FabtuneError(f"QEMU ended with exit {status}: {(directory / 'qemu.log').read_text()}")
    return ExitCode.DONE


def _clean(_args: argparse.Namespace) -> int:
    print(f"freed {remove_images() / 2**30:.1f} GiB")
    return ExitCode.DONE

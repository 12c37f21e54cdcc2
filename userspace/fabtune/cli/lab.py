# SPDX-License-Identifier: GPL-2.0-or-later
"""``fabtune lab``: build, run and enter guests with an emulated WAN."""

import argparse
import os
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from fabtune import progress
from fabtune.cli.arguments import first_given
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.lab.accel import choose_accelerator
from fabtune.lab.cache import using_cache
from fabtune.lab.debug_kernel import build_debug_kernel, find_debug_kernel
from fabtune.lab.image import Image, build_image, expected_steps, remove_images
from fabtune.lab.job import check_files, write_job
from fabtune.lab.module import build_module
from fabtune.lab.own_kernel import EXPECTED_S
from fabtune.lab.qemu_words import file_line
from fabtune.lab.recipe import DEBUG_KERNELS, SUITES, UML_VIRTUAL
from fabtune.lab.uml import build_uml, make_state, require_root
from fabtune.lab.uml_virtual import build_virtual_uml, find_virtual_uml
from fabtune.lab.vm import Machine, run_guest, start


def _machine(args: argparse.Namespace) -> tuple[Machine, Path | None]:
    """Return the machine that the options describe, and fabstat.ko for its kernel where it can have one."""
    if args.clock == "virtual" and args.smp != 1:
        raise InputError(f"--smp {args.smp}: the virtual clock has exactly one vCPU; use --clock real for more")
    if args.accel == "kvm" and args.clock == "virtual":
        raise InputError("--accel kvm: the virtual clock is an emulated CPU's; use --clock real for this host's")
    if args.accel == "uml":
        return _uml_machine(args), None
    debug = find_debug_kernel(args.kernel_suite) if args.kernel_suite in DEBUG_KERNELS else None
    image, kernel = _images([args.suite, args.suite if debug or not args.kernel_suite else args.kernel_suite])
    kernel = debug or kernel
    accelerator = choose_accelerator(args.accel, kernel) if args.clock == "real" else "tcg"
    machine = Machine(
        image, kernel if kernel is not image else None, args.clock, accelerator, args.smp, args.memory_mib,
        args.seed, tuple(args.device), args.append,
    )  # fmt: skip
    return machine, build_module(kernel)


def _uml_machine(args: argparse.Namespace) -> Machine:
    if args.smp != 1 or args.kernel_suite or args.device:
        raise InputError("--accel uml: has one CPU, brings its own kernel and takes no QEMU devices")
    if first_given(args, "--seed"):
        raise InputError(
            f"--seed {args.seed}: User Mode Linux takes its random numbers from this host; leave it out, or use "
            "--clock virtual without --accel uml"
        )
    require_root()
    virtual = find_virtual_uml() if args.clock == "virtual" else None
    image, host = _images([args.suite, SUITES[0]])
    return Machine(
        image, clock=args.clock, accelerator="uml", memory_mib=args.memory_mib, append=args.append,
        uml=(virtual or build_uml(), host),
    )  # fmt: skip


def _images(suites: list[str]) -> tuple[Image, Image]:
    show = progress.for_stderr()
    show.begin([step for suite in dict.fromkeys(suites) for step in expected_steps(suite)])
    built = {suite: build_image(suite, show) for suite in dict.fromkeys(suites)}
    return built[suites[0]], built[suites[1]]


def run_build(args: argparse.Namespace) -> int:
    """Make an image, or a kernel, and the module for it."""
    show = progress.for_stderr()
    if args.suite in (*DEBUG_KERNELS, UML_VIRTUAL):
        show.begin([(f"building the {args.suite} kernel", EXPECTED_S)])
    if args.suite == UML_VIRTUAL:
        directory, release = build_virtual_uml(show)
        print(f"{args.suite}: kernel {release}, program {directory / 'linux.uml'}")
        return ExitCode.DONE
    if args.suite in DEBUG_KERNELS:
        image = build_debug_kernel(args.suite, show)
    else:
        image, _ = _images([args.suite, args.suite])
    module = build_module(image)
    print(f"{image.suite}: kernel {image.kernel_release}, image {image.squashfs}, module {module}")
    return ExitCode.DONE


def run_job(args: argparse.Namespace) -> int:
    """Boot a guest and run a script in it; return its exit status."""
    if args.state and args.accel != "uml":
        raise InputError("--state: needs --accel uml; an emulated CPU takes minutes to boot systemd")
    if args.state and re.search(r"[\s,:]", args.state.name):
        raise InputError(f"--state {args.state}: the name of the file must have no space, comma or colon")
    # Before an image is made, which takes minutes.
    if not args.script.is_file():
        raise InputError(f"{args.script}: no such file; expected a script to run in the guest")
    check_files(args.file, args.memory_mib)
    machine, module = _machine(args)
    if args.state:
        make_state(args.state)
        machine = replace(machine, state=args.state)
    with using_cache(), tempfile.TemporaryDirectory(prefix="fabtune-lab-") as name:
        job = Path(name) / "job.cpio"
        write_job(
            job, args.script, args.arguments,
            image=machine.image, module=module, tests=True, systemd=bool(args.state), files=args.file,
        )  # fmt: skip
        out = args.out or Path(name) / "out"
        outcome = run_guest(
            machine, job, out, timeout_s=args.timeout_s,
            on_output=lambda line: print(line, flush=True),
        )  # fmt: skip
    return outcome.exit_status


def run_shell(args: argparse.Namespace) -> int:
    """Enter a booted guest."""
    machine, module = _machine(args)
    columns, lines = shutil.get_terminal_size()
    with using_cache(), tempfile.TemporaryDirectory(prefix="fabtune-lab-") as name:
        directory = Path(name)
        job = directory / "job.cpio"
        script = Path(__file__).parent.parent / "lab" / "guestfs" / "shell"
        terminal = {"stty": f"cols {columns} rows {lines}", "term": os.environ.get("TERM", "vt100")}
        write_job(job, script, image=machine.image, module=module, shell=terminal, tests=True)
        console = directory / "console.log"
        ttys = [file_line(console), "stdio,mux=off,signal=off", "null"]
        process = start(machine, job, ttys, directory / "qemu.log")
        try:
            status = process.wait()
        finally:
            process.kill()
            process.wait()
        if status != 0:
            raise FabtuneError(f"QEMU ended with exit {status}: {(directory / 'qemu.log').read_text()}")
    return ExitCode.DONE


def run_clean(_args: argparse.Namespace) -> int:
    """Delete all cached images."""
    print(f"freed {remove_images() / 2**30:.1f} GiB")
    return ExitCode.DONE

# SPDX-License-Identifier: GPL-2.0-or-later
"""A job: what a guest runs and the files that go in with it, as one appended initramfs."""

import contextlib
import math
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fabtune.errors import FabtuneError, InputError
from fabtune.host import userfile
from fabtune.installed import data_dir
from fabtune.lab import initramfs
from fabtune.lab.bytecode import copy_package
from fabtune.lab.image import Image

# What a guest gets of this tree, beside the package itself.
DATA = ("tunables", "profiles")
# Where a script finds the files that it was given, below the directory that it begins in, /job.
FILES = "files"
# What an archive's file may have, and what all may take of a guest's memory.
_MOST_BYTES, _SHARE_OF_MEMORY = 2**32 - 1, 0.25
# What its tests need besides, where there is a checkout.
_DATA_OF_TESTS = ("tests", "monitoring", "systemd", "support", "container")


def check_files(files: Sequence[Path], memory_mib: int) -> None:
    """Raise InputError where a guest of that much memory cannot be given `files`, each by its name alone.

    While it starts they are there twice, beside all else that its memory holds.
    """
    named: dict[str, Path] = {}
    size_bytes = 0
    for path in files:
        if not path.name.isprintable():
            # The archive's names are handed over a line each.
            raise InputError(f"--file {str(path)!r}: expected a name of printable characters")
        if other := named.get(path.name):
            raise InputError(f"--file {other} and --file {path}: both would be called '{path.name}' in the guest")
        named[path.name] = path
        try:
            size_bytes += userfile.size_of(path, _MOST_BYTES)
        except InputError as error:
            raise InputError(f"--file {error}") from None
    if size_bytes > memory_mib * 2**20 * _SHARE_OF_MEMORY:
        raise InputError(
            f"--file: {math.ceil(size_bytes / 2**20)} MiB in all, at most a quarter of the guest's memory of "
            f"{memory_mib} MiB; give it more with --memory-mib"
        )


def write_job(
    target: Path, script: Path, arguments: Sequence[str] = (), *, image: Image, module: Path | None = None,
    shell: dict[str, str] | None = None, tests: bool = False, systemd: bool = False, files: Sequence[Path] = (),
) -> None:  # fmt: skip
    """Write the initramfs `target` that makes a guest run `script` with `arguments`.

    `image` is what the guest boots, `module` the fabstat.ko to carry in.  `shell` ({"stty": ..., "term": ...})
    makes it interactive.  `tests` carries the checkout's tests in, where there is a checkout; experiments go
    without, because on the virtual clock each byte that a guest unpacks shifts its history.  `systemd` makes it a
    unit of systemd's.  `files`, which `check_files` has passed, the script finds in the directory FILES.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        stage = Path(name)
        (stage / "job").mkdir()
        shutil.copy(initramfs.GUEST_DIR / "job-init", stage / "job/init")
        if systemd:
            shutil.copy(initramfs.GUEST_DIR / "systemd-unit", stage / "job/systemd-unit")
        shutil.copy(script, stage / "job/run")
        (stage / "job/arguments").write_bytes(b"".join(argument.encode() + b"\0" for argument in arguments))
        for program in ("init", "run"):
            (stage / "job" / program).chmod(0o755)
        for path in files:
            (stage / "job" / FILES).mkdir(exist_ok=True)
            shutil.copy(path, stage / "job" / FILES / path.name)
        if shell is not None:
            (stage / "job/interactive").write_text(shell["stty"])
            (stage / "job/term").write_text(shell["term"])
        copy_package(image, stage / "fabtune/userspace/fabtune")
        for name in DATA:
            _copy_tree(data_dir(name), stage / "fabtune" / name)
        if tests:
            for name in _DATA_OF_TESTS:
                with contextlib.suppress(FabtuneError):
                    _copy_tree(data_dir(name), stage / "fabtune" / name)
        (stage / "fabtune/kmod").mkdir(exist_ok=True)
        if module is not None:
            for built in module.parent.glob("*.ko") if tests else [module]:
                shutil.copy(built, stage / "fabtune/kmod" / built.name)
        initramfs.pack(stage, target)


def _copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", ".*"))

# SPDX-License-Identifier: GPL-2.0-or-later
"""Initramfs archives: the one that mounts an image, and the ones that carry a job into a guest."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabtune.host.run import require, run
from fabtune.installed import PACKAGE
from fabtune.lab.cache import locked, making
from fabtune.lab.image import Image

_BOOT_MODULES = ("nfit", "nd_pmem", "squashfs", "overlay")
_ARCHIVE = "initramfs.cpio"
GUEST_DIR = PACKAGE / "lab" / "guestfs"


def boot_archive(image: Image) -> Path:
    """Return the initramfs that finds, mounts and enters `image`, made when there is none of this tree's own.

    It is named after what of this tree is in it, so that trees that take turns find theirs.
    """
    own = (GUEST_DIR / "init").read_bytes() + " ".join(_BOOT_MODULES).encode()
    target = image.directory / f"initramfs-{hashlib.sha256(own).hexdigest()[:16]}"
    with locked(f"initramfs-{image.suite}"):
        if not target.exists():
            with making(target) as draft:
                _write(image, draft / _ARCHIVE)
    return target / _ARCHIVE


def _write(image: Image, target: Path) -> None:
    with first(image.root, "init", target) as stage:
        (stage / "modules").mkdir()
        order = []
        for path in _module_files(image.root, image.kernel_release):
            shutil.copy(path, stage / "modules" / path.name)
            order.append(path.name)
        (stage / "modules/order").write_text("".join(f"{name}\n" for name in order))


@contextmanager
def first(root: Path, init: str, target: Path) -> Iterator[Path]:
    """Yield a directory with busybox of `root` and `init` of GUEST_DIR, and pack what it holds in the end as `target`.

    An archive that mounts what a guest's root is made of.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        stage = Path(name)
        for directory in ("bin", "dev", "proc", "sys", "layers", "new"):
            (stage / directory).mkdir()
        shutil.copy(root / "usr/bin/busybox", stage / "bin/busybox")
        shutil.copy(GUEST_DIR / init, stage / "init")
        (stage / "init").chmod(0o755)
        yield stage
        pack(stage, target)


def pack(directory: Path, target: Path) -> None:
    """Write `directory` as an uncompressed cpio archive whose bytes depend on its contents alone."""
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))
    for name in names:
        os.utime(directory / name, (0, 0), follow_symlinks=False)
    run(
        [require("cpio", "cpio"), "--create", "--format=newc", "--owner=0:0", "--reproducible", "--quiet",
         "--directory", directory, "--file", target],
        what=f"packing {target.name}",
        stdin="".join(f"{name}\n" for name in names),
    )  # fmt: skip


def _module_files(root: Path, kernel_release: str) -> list[Path]:
    """Return the boot modules and what they depend on, in loading order, each once."""
    files: dict[Path, None] = {}
    for module in _BOOT_MODULES:
        shown = run(
            [require("modprobe", "kmod"), "-d", root, "-S", kernel_release, "--show-depends", module],
            what=f"looking up module {module}",
        )
        for line in shown.splitlines():
            if line.startswith("insmod "):
                files[Path(line.split()[1])] = None
    return list(files)

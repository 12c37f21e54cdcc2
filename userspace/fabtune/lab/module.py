# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds fabstat.ko, and its tests where the kernel has KUnit, with an image's own compiler and kernel headers."""

import hashlib
import shutil
import tempfile
from pathlib import Path

from fabtune.installed import data_dir
from fabtune.lab.cache import delete_tree, locked, making
from fabtune.lab.image import Image, in_root

_SOURCES = ("Makefile", "Kbuild", "*.c", "*.h")


def build_module(image: Image) -> Path:
    """Return fabstat.ko for `image`'s kernel, from the cache when the sources have not changed.

    Beside it lies fabstat_test.ko if that kernel has KUnit.
    Every warning that W=1 knows is an error.  Raises FabtuneError with the compiler's last lines.
    """
    target = image.directory / "modules" / source_digest()
    target.parent.mkdir(exist_ok=True)
    with locked(f"module-{image.suite}"):
        if not target.exists():
            with making(target) as draft:
                _compile(image, _files(), draft)
    return target / "fabstat.ko"


def source_digest() -> str:
    """Return 16 hex digits that name the sources of fabstat.ko."""
    return hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in _files())).hexdigest()[:16]


def _files() -> list[Path]:
    source = data_dir("kmod")
    return sorted({path for pattern in _SOURCES for path in source.glob(pattern)})


def _compile(image: Image, files: list[Path], draft: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix="fabstat-", dir=image.root / "tmp"))
    try:
        for path in files:
            shutil.copy(path, work / path.name)
        headers = f"/usr/lib/modules/{image.kernel_release}/build"
        words = ("W=1", "KCFLAGS=-Werror", "FABSTAT_TESTS=1", "modules")
        in_root(
            image.root,
            ["make", "-j2", "-C", headers, f"M=/tmp/{work.name}", *words],
            "LC_ALL=C",
            what=f"building fabstat.ko for {image.kernel_release}",
        )
        for built in work.glob("*.ko"):
            shutil.copy(built, draft / built.name)
    finally:
        delete_tree(work)

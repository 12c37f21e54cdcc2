# SPDX-License-Identifier: GPL-2.0-or-later
"""The package with the bytecode of an image's own Python: compiling it takes a guest seconds of each boot."""

import hashlib
import shutil
import tempfile
from pathlib import Path

from fabtune.installed import PACKAGE
from fabtune.lab.cache import delete_tree, locked, making
from fabtune.lab.image import Image, compile_python

# So many versions of the package are kept, for work trees that take turns.
_KEPT = 8
# Where a guest has the package.
_GUEST_PLACE = "/fabtune/userspace"


def copy_package(image: Image, target: Path) -> None:
    """Copy the package and its bytecode for `image`'s Python to `target`.  Raises FabtuneError."""
    kept = image.directory / "packages"
    kept.mkdir(exist_ok=True)
    wanted = kept / _digest()
    with locked(f"package-{image.suite}"):
        if not wanted.exists():
            with making(wanted) as draft:
                _compile(image, draft)
            for old in sorted(kept.iterdir(), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
                delete_tree(old)
        shutil.copytree(wanted / PACKAGE.name, target)


def _digest() -> str:
    found = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            found.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def _compile(image: Image, draft: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix="package-", dir=image.root / "tmp"))
    inside = f"/tmp/{work.name}"
    try:
        shutil.copytree(PACKAGE, work / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", ".*"))
        words = ("-s", inside, "-p", _GUEST_PLACE, f"{inside}/{PACKAGE.name}")
        compile_python(image.root, *words, what=f"compiling the package for {image.suite}")
        shutil.copytree(work / PACKAGE.name, draft / PACKAGE.name)
    finally:
        delete_tree(work)

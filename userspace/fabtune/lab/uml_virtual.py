# SPDX-License-Identifier: GPL-2.0-or-later
"""User Mode Linux with a virtual clock: computing takes no time, and idle time is skipped.

Debian's package cannot (UML_TIME_TRAVEL_SUPPORT excludes what it has), so it is compiled from the source of the same
suite.  A guest is many times as fast as one on the virtual clock of an emulated CPU, but tells nothing of CPUs, and
what it draws by chance, the kernel's random numbers, comes from the host: no two runs are the same.
"""

import json
import shutil
from pathlib import Path

from fabtune.errors import InputError
from fabtune.lab.cache import delete_tree, locked, making, require_space
from fabtune.lab.image import tool_root
from fabtune.lab.own_kernel import COMPILER, NEEDED_BYTES, OwnKernel, compile_kernel
from fabtune.lab.recipe import UML_VIRTUAL, Recipe
from fabtune.lab.uml import SUITE
from fabtune.progress import Progress

_KERNEL = OwnKernel(UML_VIRTUAL, Recipe(SUITE, ("linux-source", *COMPILER)), "um", "linux", modules_below="/media")


def find_virtual_uml() -> Path:
    """Return the directory with the program and its modules.  Raises InputError when it has not been built."""
    if not (_KERNEL.directory / "image.json").exists():
        raise InputError(
            "--accel uml --clock virtual: that kernel has not been built here; "
            f"build it with 'fabtune lab build --suite {UML_VIRTUAL}' (minutes)"
        )
    return _KERNEL.directory


def build_virtual_uml(progress: Progress) -> tuple[Path, str]:
    """Return that directory, built when the cache has none, and the kernel's release.  Raises FabtuneError."""
    target = _KERNEL.directory
    with locked(f"image-{UML_VIRTUAL}"):
        if not (target / "image.json").exists():
            require_space(target.parent, NEEDED_BYTES, f"building the {UML_VIRTUAL} kernel")
            with making(target) as draft, progress.step(f"building the {UML_VIRTUAL} kernel"):
                root = tool_root(_KERNEL.tools)
                release = compile_kernel(_KERNEL, root)
                shutil.copy(root / _KERNEL.tree.relative_to("/") / "linux", draft / "linux.uml")
                modules = Path("media/lib/modules") / release
                shutil.copytree(root / modules, draft / "modules" / release, ignore=shutil.ignore_patterns("build"))
                # No module is compiled for it.
                delete_tree(root / _KERNEL.tree.relative_to("/"))
                (draft / "image.json").write_text(json.dumps({"suite": UML_VIRTUAL, "kernel_release": release}))
    return target, json.loads((target / "image.json").read_text())["kernel_release"]

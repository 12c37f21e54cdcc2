# SPDX-License-Identifier: GPL-2.0-or-later
"""Small kernels with the sanitizers that Debian leaves out; each stands in for the kernel of an image."""

import json
import os
import shutil
from pathlib import Path

from fabtune.errors import InputError
from fabtune.lab.cache import delete_tree, locked, making, require_space
from fabtune.lab.image import Image, squash, tool_root
from fabtune.lab.own_kernel import COMPILER, NEEDED_BYTES, OwnKernel, compile_kernel, drop_objects, step
from fabtune.lab.recipe import DEBUG_KERNELS, SUITES, Recipe
from fabtune.progress import Progress

_TOOLS = Recipe(SUITES[0], ("linux-source-6.12", *COMPILER))


def find_debug_kernel(name: str) -> Image:
    """Return the kernel `name`, one of DEBUG_KERNELS.  Raises InputError when it has not been built."""
    image = Image(directory_of(name), name)
    if not (image.directory / "image.json").exists():
        raise InputError(
            f"--kernel-suite {name}: that kernel has not been built here; "
            f"build it with 'fabtune lab build --suite {name}' (minutes), or all with 'make lab-debug-kernels'"
        )
    return image


def build_debug_kernel(name: str, progress: Progress) -> Image:
    """Return the kernel `name`, built when the cache has none.  Raises FabtuneError with the compiler's last lines."""
    kernel = _kernel(name)
    target = kernel.directory
    with locked(f"image-{name}"):
        if not (target / "image.json").exists():
            require_space(target.parent, NEEDED_BYTES, f"building the {name} kernel")
            with making(target) as draft, progress.step(f"building the {name} kernel"):
                root = tool_root(_TOOLS)
                release = compile_kernel(kernel, root)
                boot = f"{kernel.tree}/arch/x86/boot/bzImage"
                step(root, "installing it", "install", "-D", boot, f"/boot/vmlinuz-{release}")
                drop_objects(kernel, root)
                (draft / "root").symlink_to(os.path.relpath(root, target))
                _pack(root, release, draft)
                (draft / "image.json").write_text(json.dumps({"suite": name, "kernel_release": release}))
    return Image(target, name)


def directory_of(name: str) -> Path:
    """Return where the kernel `name` is kept, built or not; it is named after all that it is made of."""
    return _kernel(name).directory


def _kernel(name: str) -> OwnKernel:
    if name not in DEBUG_KERNELS:
        raise InputError(f"kernel '{name}': expected one of {', '.join(DEBUG_KERNELS)}")
    return OwnKernel(name, _TOOLS, "x86_64", "bzImage")


def _pack(root: Path, release: str, draft: Path) -> None:
    """Write the modules as guests find them: where an image has its own."""
    stage = draft / "stage"
    modules = Path("usr/lib/modules") / release
    shutil.copytree(root / modules, stage / modules, symlinks=True, ignore=shutil.ignore_patterns("build"))
    squash(stage, draft / "root.squashfs")
    delete_tree(stage)

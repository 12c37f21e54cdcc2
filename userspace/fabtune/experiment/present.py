# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run would come from if it were measured now."""

import functools
import hashlib
from pathlib import Path

import attrs

from fabtune.experiment.inventory import Inventory
from fabtune.installed import PACKAGE, data_dir
from fabtune.lab import accel
from fabtune.lab.image import Image, find_image
from fabtune.lab.job import DATA
from fabtune.lab.module import source_digest
from fabtune.lab.recipe import SUITES, image_for, recipe_for
from fabtune.model.factors import Settings
from fabtune.model.origin import Origin, each

# What of the package takes no part in measuring: how runs are chosen, judged and shown.
_ASIDE = (
    "report", "lint", "experiment/at_once.py", "experiment/batch.py", "experiment/definition.py",
    "experiment/derived.py", "experiment/earlier.py", "experiment/expect.py", "experiment/left_out.py",
    "experiment/measuring.py", "experiment/present.py", "experiment/publish.py",
    "experiment/results.py", "experiment/summary.py", "cli/compare.py", "cli/experiment.py", "cli/report.py",
)  # fmt: skip


def images_of(settings: Settings) -> tuple[str, str]:
    """Return the names of the images that a combination's root and kernel come from."""
    root = image_for(settings.target)
    return root, root if settings.kernel == SUITES[0] else settings.kernel


def origin_now(settings: Settings, clock: str, fleet: Inventory | None = None) -> Origin:
    """Return what a run comes from now: of an image that is not built yet what its recipe tells, on a fleet neither."""
    stated = Origin(settings=attrs.asdict(settings), clock=clock, code=code_digest())
    if fleet:
        devices = each(zip(fleet.initiators, fleet.devices, strict=False))
        return attrs.evolve(stated, hosts=fleet.initiators, devices=devices, targets=tuple(sorted(fleet.targets)))
    root, kernel = images_of(settings)
    booted, rooted = find_image(kernel), find_image(root)
    real = clock == "real" and booted is not None
    return attrs.evolve(
        stated,
        image=f"{root} {recipe_for(root).digest}",
        module=source_digest(),
        packages=packages_digest(rooted.directory) if rooted else "",
        kernel=booted.kernel_release if booted else "",
        qemu=accel.qemu_version(),
        accelerator=_accelerator(booted) if real and booted else "",
    )


@functools.cache
def code_digest() -> str:
    """Return the digest of what of fabtune, its vocabulary and its profiles runs while something is measured."""
    found = hashlib.sha256()
    for top in (PACKAGE, *map(data_dir, DATA)):
        for path in sorted(top.rglob("*")):
            name = path.relative_to(top)
            aside = top == PACKAGE and any(name.is_relative_to(one) for one in _ASIDE)
            if path.is_file() and not aside and "__pycache__" not in name.parts and not name.name.startswith("."):
                found.update(f"{top.name}/{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def look_anew() -> None:
    """Let `origin_now` see what was edited since it looked last."""
    code_digest.cache_clear()


@functools.cache
def packages_digest(directory: Path) -> str:
    """Return the digest of the packages, with their versions, that an image in `directory` was made of."""
    status = directory / "root/var/lib/dpkg/status"
    return hashlib.sha256(status.read_bytes()).hexdigest() if status.exists() else ""


@functools.cache
def _accelerator(image: Image) -> str:
    return accel.choose_accelerator("auto", image)

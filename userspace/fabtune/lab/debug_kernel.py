# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels of our own making: small ones from Debian's kernel source, with the sanitizers that Debian leaves out.

Each stands in for the kernel of an image, as another suite's does.  Its configuration is tinyconfig with base.config
and the fragment of its name behind it; a wanted option that the kernel's own rules take away is an error.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from fabtune.errors import FabtuneError, InputError
from fabtune.lab import initramfs
from fabtune.lab.cache import cache_dir, delete_tree, locked, making, require_space
from fabtune.lab.image import Image, in_root, squash, tool_root
from fabtune.lab.recipe import DEBUG_KERNELS, SUITES, Recipe
from fabtune.progress import Progress

_FRAGMENTS = Path(__file__).parent / "kernels"
_SOURCE = "linux-source-6.12"
_TOOLS = Recipe(
    SUITES[0],
    (_SOURCE, "make", "gcc", "libc6-dev", "flex", "bison", "bc", "libelf-dev", "libssl-dev", "perl", "kmod", "cpio",
     "xz-utils", "lz4", "rsync", "busybox-static"),
)  # fmt: skip
# On 2 cores; it only moves the progress bar.
EXPECTED_S = 720.0
_NEEDED_BYTES = 6 * 2**30


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
    target = directory_of(name)
    with locked(f"image-{name}"):
        if not (target / "image.json").exists():
            require_space(target.parent, _NEEDED_BYTES, f"building the {name} kernel")
            with making(target) as draft, progress.step(f"building the {name} kernel"):
                root = tool_root(_TOOLS)
                release = _compile(name, root, Path("/build") / target.name)
                (draft / "root").symlink_to(os.path.relpath(root, target))
                _pack(root, release, draft)
                (draft / "image.json").write_text(json.dumps({"suite": name, "kernel_release": release}))
    return Image(target, name)


def directory_of(name: str) -> Path:
    """Return where the kernel `name` is kept, built or not; it is named after all that it is made of."""
    if name not in DEBUG_KERNELS:
        raise InputError(f"kernel '{name}': expected one of {', '.join(DEBUG_KERNELS)}")
    text = _fragments(name) + _TOOLS.digest
    return cache_dir() / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def wanted_options(name: str) -> dict[str, str]:
    """Return what the fragments ask for: the value of each option, "n" for one that is to be off."""
    options: dict[str, str] = {}
    for line in _fragments(name).splitlines():
        if off := re.fullmatch(r"# (CONFIG_\w+) is not set", line):
            options[off[1]] = "n"
        elif line and not line.startswith("#"):
            key, _, options_value = line.partition("=")
            options[key] = options_value
    return options


def missing_options(name: str, config: str) -> list[str]:
    """Return the wanted options that `config`, the text of a kernel's configuration, has not, as OPTION=VALUE."""
    found = dict(re.findall(r"^(CONFIG_\w+)=(.*)$", config, re.MULTILINE))
    return [f"{key}={value}" for key, value in wanted_options(name).items() if found.get(key, "n") != value]


def _fragments(name: str) -> str:
    return "".join((_FRAGMENTS / f"{part}.config").read_text() for part in ("base", name))


def _compile(name: str, root: Path, tree: Path) -> str:
    """Compile and install the kernel `name` inside `root`, with what a module needs in `tree`; return its release."""
    source = Path("/usr/src") / _SOURCE
    with locked("kernel-source"):
        if not (root / source.relative_to("/") / "Makefile").exists():
            _make(root, "unpacking its source", "tar", "-xJf", f"{source}.tar.xz", "-C", "/usr/src")
    place = root / tree.relative_to("/")
    make = ["make", "-s", f"-j{os.cpu_count()}", "-C", str(source), f"O={tree}", "ARCH=x86_64"]
    # An interrupted build may have left its own.
    delete_tree(place)
    _make(root, "making tinyconfig", *make, "tinyconfig")
    with tempfile.NamedTemporaryFile("w", dir=root / "tmp", suffix=".config") as fragment:
        # Each kernel has a name of its own: their modules lie side by side.
        fragment.write(f'{_fragments(name)}CONFIG_LOCALVERSION="-{name}"\n')
        fragment.flush()
        _make(root, "configuring it", "sh", "-c", f"cat /tmp/{Path(fragment.name).name} >> {tree}/.config")
    _make(root, "configuring it", *make, "olddefconfig")
    if missing := missing_options(name, (place / ".config").read_text()):
        raise FabtuneError(f"the {name} kernel would be without {', '.join(missing)}; what they depend on is not set")
    _make(root, f"compiling the {name} kernel", *make, "bzImage", "modules")
    release = (place / "include/config/kernel.release").read_text().strip()
    _make(root, "installing its modules", *make, "INSTALL_MOD_STRIP=1", "modules_install")
    _make(root, "installing it", "install", "-D", f"{tree}/arch/x86/boot/bzImage", f"/boot/vmlinuz-{release}")
    # What is left compiles modules; it weighs a tenth of all.
    _make(root, "dropping objects", "find", str(tree), "-name", "*.o", "-not", "-path", "*/scripts/*", "-delete")
    return release


def _make(root: Path, what: str, *command: str) -> None:
    in_root(root, command, "LC_ALL=C", what=what)


def _pack(root: Path, release: str, draft: Path) -> None:
    """Write what guests boot: the initramfs, and the modules where an image has them."""
    stage = draft / "stage"
    modules = Path("usr/lib/modules") / release
    shutil.copytree(root / modules, stage / modules, symlinks=True, ignore=shutil.ignore_patterns("build"))
    squash(stage, draft / "root.squashfs")
    delete_tree(stage)
    initramfs.write(root, release, draft / "initramfs.cpio")

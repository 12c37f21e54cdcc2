# SPDX-License-Identifier: GPL-2.0-or-later
"""Compiles kernels of our own making from Debian's kernel source.

Each one's configuration is tinyconfig with base.config and the fragment of its name behind it; a wanted option that the
kernel's own rules take away is an error.
"""

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.lab.cache import cache_dir, delete_tree, locked
from fabtune.lab.image import in_root
from fabtune.lab.recipe import Recipe

_FRAGMENTS = Path(__file__).parent / "kernels"
# What compiles any kernel, its source apart.
COMPILER = (
    "make", "gcc", "libc6-dev", "flex", "bison", "bc", "libelf-dev", "libssl-dev", "perl", "kmod", "cpio", "xz-utils",
    "lz4", "rsync", "busybox-static",
)  # fmt: skip
# On 2 cores; it only moves the progress bar.
EXPECTED_S = 720.0
NEEDED_BYTES = 6 * 2**30


@dataclass(frozen=True)
class OwnKernel:
    """A kernel called `name`: the root that compiles it, with a package of Debian's source, and make's ARCH and target.

    Its modules are installed below `modules_below` in that root.
    """

    name: str
    tools: Recipe
    arch: str
    program: str
    modules_below: str = "/"

    @property
    def directory(self) -> Path:
        """Where it is kept, compiled or not; named after all that it is made of."""
        text = fragments(self.name) + self.tools.digest
        return cache_dir() / f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def tree(self) -> Path:
        """Where it is compiled, as the root sees it."""
        return Path("/build") / self.directory.name


def wanted_options(name: str) -> dict[str, str]:
    """Return what the fragments ask for: the value of each option, "n" for one that is to be off."""
    options: dict[str, str] = {}
    for line in fragments(name).splitlines():
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


def fragments(name: str) -> str:
    """Return the configuration of the kernel `name` that is asked for, one option a line; the last word counts."""
    return "".join((_FRAGMENTS / f"{part}.config").read_text() for part in ("base", name))


def compile_kernel(kernel: OwnKernel, root: Path) -> str:
    """Compile `kernel` inside `root` and install its modules; return its release.

    What a module needs stays in its tree.  Raises FabtuneError with the compiler's last lines.
    """
    tree, name = kernel.tree, kernel.name
    place, source = root / tree.relative_to("/"), _unpacked(root)
    make = ["make", "-s", f"-j{os.cpu_count()}", "-C", str(source), f"O={tree}", f"ARCH={kernel.arch}"]
    # An interrupted build may have left its own.
    delete_tree(place)
    step(root, "making tinyconfig", *make, "tinyconfig")
    with tempfile.NamedTemporaryFile("w", dir=root / "tmp", suffix=".config") as fragment:
        # Each kernel has a name of its own: their modules lie side by side.
        fragment.write(f'{fragments(name)}CONFIG_LOCALVERSION="-{name}"\n')
        fragment.flush()
        step(root, "configuring it", "sh", "-c", f"cat /tmp/{Path(fragment.name).name} >> {tree}/.config")
    step(root, "configuring it", *make, "olddefconfig")
    if missing := missing_options(name, (place / ".config").read_text()):
        raise FabtuneError(f"the {name} kernel would be without {', '.join(missing)}; what they depend on is not set")
    step(root, f"compiling the {name} kernel", *make, kernel.program, "modules")
    modules = ("INSTALL_MOD_STRIP=1", f"INSTALL_MOD_PATH={kernel.modules_below}")
    step(root, "installing its modules", *make, *modules, "modules_install")
    return (place / "include/config/kernel.release").read_text().strip()


def _unpacked(root: Path) -> Path:
    """Return the directory of the kernel's source inside `root`, unpacked."""
    packed = next((root / "usr/src").glob("linux-source-*.tar.xz"))
    source = Path("/usr/src") / packed.name.removesuffix(".tar.xz")
    # It gets its name when it is whole; what an interrupt left of it is made anew.
    draft = Path("/usr/src/unpacking")
    with locked("kernel-source"):
        if not (root / source.relative_to("/") / "Makefile").exists():
            what = "unpacking its source"
            step(root, what, "rm", "-rf", str(draft), str(source))
            step(root, what, "mkdir", str(draft))
            step(root, what, "tar", "-xJf", f"{source}.tar.xz", "-C", str(draft))
            step(root, what, "mv", str(draft / source.name), str(source))
            step(root, what, "rmdir", str(draft))
    return source


def drop_objects(kernel: OwnKernel, root: Path) -> None:
    """Leave of `kernel`'s tree what compiles modules; it weighs a tenth of all."""
    objects = ("-name", "*.o", "-not", "-path", "*/scripts/*", "-delete")
    step(root, "dropping objects", "find", str(kernel.tree), *objects)


def step(root: Path, what: str, *command: str) -> None:
    """Run `command` inside `root`.  Raises FabtuneError."""
    in_root(root, command, "LC_ALL=C", what=what)

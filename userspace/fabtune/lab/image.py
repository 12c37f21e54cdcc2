# SPDX-License-Identifier: GPL-2.0-or-later
"""Guest images: a Debian root from the host's own apt sources, as a directory and as a squashfs.

The directory keeps the suite's compiler and kernel headers and builds modules; the squashfs is
what guests boot.  A guest sees it as persistent memory (an NVDIMM), which costs no copying, takes
part in no host-timed I/O and therefore keeps the virtual clock exact.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import FabtuneError, InputError
from fabtune.host.run import privileged, require, run
from fabtune.lab import apt
from fabtune.lab.cache import cache_dir, delete_tree, locked, making, require_space, using_cache, whole_cache
from fabtune.lab.recipe import IMAGES, Recipe, recipe_for
from fabtune.progress import Progress

# Expected times on 2 cores with a near archive; they only move the progress bar.
ROOT_EXPECTED_S = 90.0
MORE_EXPECTED_S = 20.0
PACK_EXPECTED_S = 20.0
_NEEDED_BYTES = 5 * 2**30
# pmem wants its size in whole memory sections.
_SECTION_BYTES = 128 * 2**20
# A root becomes another one's: without what its guests leave, and devices, which are made anew.
_COPY = """bash -o pipefail -c 'tar --directory "$LAB_BASE" --exclude=./dev --exclude=./root/.uml --create . |
tar --directory "$0" --extract' "$1\""""
# Drivers that no guest has a device for.
_UNUSED_DRIVERS = ("drivers/gpu", "drivers/media", "drivers/net/wireless", "sound")


@dataclass(frozen=True)
class Image:
    """One cached image."""

    directory: Path
    suite: str

    @property
    def root(self) -> Path:
        """The root directory, toolchain included."""
        return self.directory / "root"

    @property
    def squashfs(self) -> Path:
        return self.directory / "root.squashfs"

    @property
    def kernel_release(self) -> str:
        return str(json.loads((self.directory / "image.json").read_text())["kernel_release"])

    @property
    def kernel(self) -> Path:
        return self.root / "boot" / f"vmlinuz-{self.kernel_release}"


def find_image(suite: str) -> Image | None:
    """Return the cached image of `suite`, or None.  Raises InputError for an unknown suite."""
    if suite not in IMAGES:
        raise InputError(f"suite '{suite}': expected one of {', '.join(IMAGES)}")
    recipe = recipe_for(suite)
    image = Image(cache_dir() / f"{suite}-{recipe.digest}", suite)
    return image if (image.directory / "image.json").exists() else None


def expected_steps(suite: str) -> list[tuple[str, float]]:
    """Return the steps that `build_image` will run now, with their expected seconds."""
    if find_image(suite) is not None:
        return []
    plain, _, more = suite.partition("+")
    before = expected_steps(plain) if more else []
    root = (_root_step(suite), MORE_EXPECTED_S if more else ROOT_EXPECTED_S)
    return [*before, root, (_pack_step(suite), PACK_EXPECTED_S)]


def build_image(suite: str, progress: Progress) -> Image:
    """Return the image of `suite`, building it when the cache has none; one with more than its suite begins with that.

    Raises InputError for an unknown suite, FabtuneError when the build fails; a failed or
    interrupted build leaves nothing behind.
    """
    with locked(f"image-{suite}") if find_image(suite) is None else using_cache():
        image = find_image(suite)
        if image is not None:
            return image
        plain, _, more = suite.partition("+")
        base = build_image(plain, progress).root if more else None
        recipe = recipe_for(suite)
        target = cache_dir() / f"{suite}-{recipe.digest}"
        require_space(target.parent, _NEEDED_BYTES, f"building the {suite} image")
        with making(target) as draft:
            with progress.step(_root_step(suite)):
                install_root(recipe, draft / "root", base)
            with progress.step(_pack_step(suite)):
                _compile_library(draft / "root")
                release = _strip_kernel_modules(draft / "root")
                squash(draft / "root", draft / "root.squashfs", recipe.toolchain)
            (draft / "image.json").write_text(json.dumps({"suite": suite, "kernel_release": release}))
        return Image(target, suite)


def remove_images() -> int:
    """Delete every cached image and verdict; return the bytes that were freed.

    Raises FabtuneError, having deleted nothing, where one is built or a guest runs from one.
    """
    freed = 0
    with whole_cache():
        for path in cache_dir().iterdir():
            if path.is_dir():
                freed += sum(entry.lstat().st_size for entry in path.rglob("*"))
                delete_tree(path)
            elif path.suffix != ".lock":
                path.unlink()
    return freed


def _root_step(suite: str) -> str:
    return f"installing a {suite} root"


def _pack_step(suite: str) -> str:
    return f"packing the {suite} image"


def install_root(recipe: Recipe, root: Path, base: Path | None = None) -> None:
    """Install `recipe` from the host's archive into the directory `root`.  Raises FabtuneError.

    With `base`, the root of its plain suite, a copy of that gets what it lacks.
    """
    archive = apt.host_archive()
    packages, start = recipe.packages, ["--variant=minbase"]
    if base is not None:
        # What is there already would be brought up to date: a second kernel, perhaps.
        packages = tuple(one for one in packages if one not in recipe_for(recipe.suite).packages)
        start = ["--variant=custom", f"--setup-hook={_COPY}"]
    # In namespaces of its own, so that an interrupted build leaves neither a mount nor a process.
    # INITRD: a guest boots with our initramfs; without this Debian's own would be made, slowly.
    command: list[str | Path] = [
        "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "INITRD=No", f"TMPDIR={root.parent}", f"LAB_BASE={base}",
        require("unshare", "util-linux"), "--mount", "--pid", "--fork", "--kill-child",
        require("mmdebstrap", "mmdebstrap"), "--mode=root", *start,
        f"--keyring={archive.keyring}", f"--include={','.join(packages)}",
        "--aptopt=APT::Install-Recommends \"false\"", "--aptopt=Acquire::Languages \"none\"",
        # An archive frozen in the past serves a lab as well; its signatures are checked all the same.
        "--dpkgopt=force-unsafe-io", "--aptopt=Acquire::Check-Valid-Until \"false\"",
    ]  # fmt: skip
    command += [f"--aptopt={option}" for option in archive.apt_options]
    command += [f"--dpkgopt=path-exclude={path}" for path in recipe.unwanted]
    command += [recipe.suite, root, f"deb {archive.uri} {recipe.suite} main"]
    try:
        run(privileged(command), what=f"installing the {recipe.suite} root")
    except FabtuneError as error:
        raise FabtuneError(f"{error}\n  Is the package archive reachable? 'apt-get update' shows it.") from None


def tool_root(recipe: Recipe) -> Path:
    """Return a root from `recipe` that compiles and boots nothing, made when the cache has none."""
    target = cache_dir() / f"{recipe.suite}-{recipe.digest}"
    with locked(f"image-{target.name}"):
        if not target.exists():
            with making(target) as draft, Progress().step(f"installing a {recipe.suite} root"):
                install_root(recipe, draft / "root")
    return target / "root"


def in_root(root: Path, command: Sequence[str], *environment: str, what: str) -> str:
    """Run `command` inside the root directory `root`, with `environment` (NAME=VALUE) alone; return what it said.

    In namespaces of its own, so that an interrupted one leaves neither a mount nor a process.  Raises FabtuneError.
    """
    return run(
        privileged([
            "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *environment, require("unshare", "util-linux"),
            "--mount", "--pid", "--fork", "--kill-child", f"--root={root}", "--mount-proc", *command,
        ]),
        what=what,
    )  # fmt: skip


def compile_python(root: Path, *words: str, what: str) -> None:
    """Run Python's compileall with `words` inside `root`.  Raises FabtuneError.

    Hashed and unchecked, in one order of sets: neither time stamps nor chance may shift a guest's history, and the
    times of files, which packing sets to 0, make nothing stale.
    """
    compiler = ("/usr/bin/python3", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
    in_root(root, [*compiler, *words], "LC_ALL=C.UTF-8", "PYTHONHASHSEED=0", what=what)


def _compile_library(root: Path) -> None:
    """Compile Python's library and packages again: for stale bytecode an emulated CPU compiles at each import."""
    places = [f"/usr/lib/{path.name}" for path in sorted((root / "usr/lib").glob("python3*"))]
    compile_python(root, "-f", *places, what="compiling Python's library")


def _strip_kernel_modules(root: Path) -> str:
    """Drop drivers without a device, decompress the others (an emulated CPU is slow at it), index them."""
    releases = sorted(path.name for path in (root / "usr/lib/modules").iterdir() if (path / "kernel").is_dir())
    if len(releases) != 1:
        raise FabtuneError(f"{root}: expected one kernel, found {releases or 'none'}")
    tree = root / "usr/lib/modules" / releases[0] / "kernel"
    run(privileged(["rm", "-rf", *(tree / unused for unused in _UNUSED_DRIVERS)]), what="dropping unused drivers")
    packed = sorted(str(path) for path in tree.rglob("*.ko.xz"))
    if packed:
        run(
            privileged(["xargs", "-0", "-P0", "-n64", "xz", "-d"]),
            what="unpacking kernel modules",
            stdin="\0".join(packed),
        )
    run(privileged([require("depmod", "kmod"), "-b", root, releases[0]]), what="indexing kernel modules")
    return releases[0]


def squash(root: Path, squashfs: Path, unwanted: Sequence[str] = ()) -> None:
    """Pack the directory `root`, without the paths `unwanted`, as guests read it.  Raises FabtuneError."""
    # Not compressed: guests read it from memory, and decompression would cost them emulated time.
    run(
        privileged([require("mksquashfs", "squashfs-tools"), root, squashfs, "-noappend", "-no-progress", "-no-xattrs",
         "-noI", "-noD", "-noF", "-noX", "-all-time", "0", *(("-wildcards", "-e", *unwanted) if unwanted else ())]),
        what=f"packing {squashfs.name}",
    )  # fmt: skip
    run(privileged(["truncate", f"--size=%{_SECTION_BYTES}", squashfs]), what=f"padding {squashfs.name}")

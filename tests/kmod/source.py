#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Compiles and reads fabstat.ko's source for every kernel it is made for: no warning may be left.

W=1 with the compiler of 5.10 (bullseye), 6.1, 6.12, its PREEMPT_RT flavour, and 7.2, for the KUnit tests too; sparse
where the kernel's headers carry what it needs; checkpatch --strict, from the kernel source that the package
linux-source brings; a build with DKMS.  Prints one line a check and exits 1 when one of them complains.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "userspace"))

from fabtune.errors import FabtuneError  # noqa: E402
from fabtune.host.run import privileged, require, run  # noqa: E402
from fabtune.lab.cache import delete_tree  # noqa: E402
from fabtune.lab.image import build_image, in_root, tool_root  # noqa: E402
from fabtune.lab.recipe import SUITES, Recipe  # noqa: E402
from fabtune.progress import Progress  # noqa: E402

# Roots with a compiler and kernel headers that boot nothing: the oldest kernel, and PREEMPT_RT's flavour.
OTHERS = {
    "bullseye": Recipe("bullseye", ("linux-headers-amd64", "make", "gcc", "libc6-dev")),
    "trixie-rt": Recipe("trixie", ("linux-headers-rt-amd64", "make", "gcc", "libc6-dev", "perl")),
}
# checker-valid.sh, which the kernel's Makefile wants before it runs sparse, is missing in 7.2's header package.
SPARSE_SUITES = ("bookworm", "trixie")
SPARSE = ("/usr/bin/sparse", "/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6")
DKMS_SUITES = ("bookworm", "trixie")
CHECKPATCH = ("scripts/checkpatch.pl", "scripts/spelling.txt", "scripts/const_structs.checkpatch")


def sources() -> list[Path]:
    # A build in the tree leaves fabstat.mod.c behind.
    return sorted(path for path in (TOP / "kmod").glob("*.[ch]") if not path.name.endswith(".mod.c"))


def root_of(suite: str) -> Path:
    return tool_root(OTHERS[suite]) if suite in OTHERS else build_image(suite, Progress()).root


def compile_in(root: Path, *words: str, tools: tuple[str, ...] = ()) -> str:
    """Compile the module in `root` with `words` for make; return what the compiler said.  Raises FabtuneError."""
    work = Path(tempfile.mkdtemp(prefix="fabstat-check-", dir=root / "tmp"))
    try:
        for path in (*sources(), TOP / "kmod/Kbuild", *map(Path, tools)):
            shutil.copy(path, work / path.name)
        releases = sorted(path.name for path in (root / "lib/modules").iterdir() if (path / "build").is_symlink())
        here = f"/tmp/{work.name}"
        # What compilers and sparse say goes to stderr.
        make = ["sh", "-c", 'exec make -s -j2 "$@" 2>&1', "make", "-C", f"/lib/modules/{releases[-1]}/build"]
        make += [f"M={here}", *(word.replace("@", here) for word in words), "modules"]
        return in_root(root, make, "LC_ALL=C", what=f"compiling fabstat.ko for {releases[-1]}")
    finally:
        delete_tree(work)


def complaints(text: str) -> str:
    """Return the lines of `text` that name one of our files."""
    named = [line for line in text.splitlines() if "fabstat-check-" in line]
    return "\n".join(line for line in named if "warning" in line or "error" in line)


def check_compiler(suite: str) -> str:
    compile_in(root_of(suite), "W=1", "KCFLAGS=-Werror")
    return ""


def check_tests(suite: str) -> str:
    """Compile the KUnit tests, which these kernels cannot load: what KUnit exports is not there."""
    words = ("W=1", "KCFLAGS=-Werror", "FABSTAT_TESTS=1", "CONFIG_KUNIT=m", "KBUILD_MODPOST_WARN=1")
    compile_in(root_of(suite), *words)
    return ""


def check_sparse(suite: str) -> str:
    require("sparse", "sparse")
    # With the loader and the C library that it was built for, sparse runs in an older or newer root as well.
    command = "CHECK=@/ld-linux-x86-64.so.2 --library-path @ @/sparse"
    return complaints(compile_in(root_of(suite), "C=2", command, tools=SPARSE))


def check_checkpatch() -> str:
    archives = sorted(Path("/usr/src").glob("linux-source-*.tar.xz"))
    if not archives:
        raise FabtuneError("no kernel source with checkpatch.pl; install it with: apt-get install linux-source")
    stem = archives[-1].name.removesuffix(".tar.xz")
    with tempfile.TemporaryDirectory() as scripts:
        run(["tar", "-xJf", archives[-1], "-C", scripts, *(f"{stem}/{name}" for name in CHECKPATCH)], what="unpacking")
        lines = (TOP / "kmod/.checkpatch.conf").read_text().splitlines()
        options = [word for line in lines if not line.startswith("#") for word in line.split()]
        # It leaves files where it runs, so it reads copies.
        shutil.copytree(TOP / "kmod", Path(scripts) / "kmod")
        # It ends with exit 1 when it has something to say.
        command = f'cd "{scripts}" && perl "{stem}/scripts/checkpatch.pl" --no-summary --terse "$@" || true'
        said = []
        for path in sources():
            # Declarations of tracepoints look alike in the whole kernel, and as in no other code.
            of_file = ("--ignore", "OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT") if path.name == "trace.h" else ()
            file = path.relative_to(TOP)
            said.append(run(["sh", "-c", command, "sh", *options, *of_file, "-f", file], what="checkpatch").strip())
        return "\n".join(filter(None, said))


def check_dkms(suite: str) -> str:
    script = TOP / "tests/kmod/dkms.sh"
    with tempfile.TemporaryDirectory() as work:
        run(
            privileged([require("unshare", "util-linux"), "--mount", "--pid", "--fork", "--kill-child",
                        "sh", "-c", 'exec 2>&1; exec "$@"', "sh", script, root_of(suite), TOP, work]),
            what=f"DKMS on {suite}",
        )  # fmt: skip
    return ""


def main() -> int:
    """Run the checks named, all by default; return 1 when one of them complains."""
    checks: dict[str, Callable[[], str]] = {
        f"W=1 {suite}": partial(check_compiler, suite) for suite in (*OTHERS, *SUITES)
    }
    checks |= {f"tests {suite}": partial(check_tests, suite) for suite in ("bullseye", *SUITES)}
    checks |= {f"sparse {suite}": partial(check_sparse, suite) for suite in SPARSE_SUITES}
    checks["checkpatch"] = check_checkpatch
    checks |= {f"dkms {suite}": partial(check_dkms, suite) for suite in DKMS_SUITES}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"only these, of: {', '.join(checks)}")
    chosen = parser.parse_args().checks or list(checks)
    failed = 0
    for name in chosen:
        if name not in checks:
            parser.error(f"'{name}': expected one of {', '.join(checks)}")
        try:
            said = checks[name]()
        except FabtuneError as error:
            said = str(error)
        print(f"{name}: {'FAILED' if said else 'clean'}" + (f"\n{said}" if said else ""), flush=True)
        failed += bool(said)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

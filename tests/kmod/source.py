#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Compiles and reads fabstat.ko's source for every kernel it is made for: no warning may be left.

W=1 and sparse with the compiler of 5.10 (bullseye), 6.1, 6.12, its PREEMPT_RT flavour, and 7.2; W=1 for the KUnit
tests, too; checkpatch --strict and Coccinelle's rules, from the kernel source that the package linux-source brings; a
build with DKMS.  Prints one line a check and exits 1 when one of them complains.  smatch is not among them: no suite
of Debian from bullseye to sid, their backports and experimental included, has a package of it.
"""

import argparse
import re
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

# Roots with a compiler and kernel headers that boot nothing: the oldest kernel, PREEMPT_RT's flavour, and the newest
# kernel with a sparse that understands its headers.
OTHERS = {
    "bullseye": Recipe("bullseye", ("linux-headers-amd64", "make", "gcc", "libc6-dev")),
    "trixie-rt": Recipe("trixie", ("linux-headers-rt-amd64", "make", "gcc", "libc6-dev", "perl")),
    "sid": Recipe("sid", ("linux-headers-amd64", "make", "gcc", "libc6-dev", "perl", "sparse")),
}
# checker-valid.sh, which the kernel's Makefile wants before it runs sparse, is missing in 7.2's header package: it is
# told to run sparse though it cannot try it.
OWN_SPARSE = {"sid": ("KBUILD_CHECKSRC=2",)}
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
    """Return the lines of `text` that complain about one of our files."""
    ours = "|".join(re.escape(path.name) for path in sources())
    said = re.compile(rf"^(.*/)?({ours}):\d+:.*(warning|error)")
    return "\n".join(line for line in text.splitlines() if said.search(line))


def check_tests(suite: str) -> str:
    """Compile the KUnit tests, which these kernels cannot load: what KUnit exports is not there."""
    words = ("W=1", "KCFLAGS=-Werror", "FABSTAT_TESTS=1", "CONFIG_KUNIT=m", "KBUILD_MODPOST_WARN=1")
    compile_in(root_of(suite), *words)
    return ""


def check_compiler(suite: str) -> str:
    """Compile with every warning, and have sparse read the same: each takes as long as the headers are."""
    tools: tuple[str, ...] = ()
    words = OWN_SPARSE.get(suite)
    if words is None:
        require("sparse", "sparse")
        # With the loader and the C library that it was built for, sparse runs in an older or newer root as well.
        words, tools = ("CHECK=@/ld-linux-x86-64.so.2 --library-path @ @/sparse",), SPARSE
    return complaints(compile_in(root_of(suite), "W=1", "KCFLAGS=-Werror", "C=2", *words, tools=tools))


def unpack(*names: str, into: Path) -> Path:
    """Unpack what `names` match in the kernel's source; return the tree.  Raises FabtuneError."""
    archives = sorted(Path("/usr/src").glob("linux-source-*.tar.xz"))
    if not archives:
        raise FabtuneError("no kernel source with checkpatch.pl; install it with: apt-get install linux-source")
    stem = archives[-1].name.removesuffix(".tar.xz")
    patterns = [f"{stem}/{name}" for name in names]
    run(["tar", "-xJf", archives[-1], "-C", into, "--wildcards", *patterns], what="unpacking")
    return into / stem


def check_checkpatch() -> str:
    with tempfile.TemporaryDirectory() as scripts:
        tree = unpack(*CHECKPATCH, into=Path(scripts))
        lines = (TOP / "kmod/.checkpatch.conf").read_text().splitlines()
        options = [word for line in lines if not line.startswith("#") for word in line.split()]
        # It leaves files where it runs, so it reads copies.
        shutil.copytree(TOP / "kmod", Path(scripts) / "kmod")
        # It ends with exit 1 when it has something to say.
        command = f'cd "{scripts}" && perl "{tree}/scripts/checkpatch.pl" --no-summary --terse "$@" || true'
        said = []
        for path in sources():
            # Declarations of tracepoints look alike in the whole kernel, and as in no other code.
            of_file = ("--ignore", "OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT") if path.name == "trace.h" else ()
            file = path.relative_to(TOP)
            said.append(run(["sh", "-c", command, "sh", *options, *of_file, "-f", file], what="checkpatch").strip())
        return "\n".join(filter(None, said))


def check_coccinelle() -> str:
    """Have Coccinelle apply the kernel's rules that report, as `make coccicheck` does, to the module."""
    spatch = require("spatch", "coccinelle")
    said = []
    with tempfile.TemporaryDirectory() as rules:
        tree = unpack("scripts/coccinelle/*", into=Path(rules))
        shutil.copytree(TOP / "kmod", Path(rules) / "kmod")
        for rule in sorted(tree.rglob("*.cocci")):
            text = rule.read_text()
            # Two are OCaml inside and want its compiler: one battery's tables, and pointers compared with 0, as sparse.
            if "script:ocaml" in text or "virtual report" not in text:
                continue
            options = " ".join(re.findall(r"^//.*Options:(.*)$", text, re.MULTILINE)).split()
            words = ["-D", "report", "--very-quiet", "--no-show-diff", *options, "--cocci-file", str(rule)]
            said.append(run([spatch, *words, "--dir", f"{rules}/kmod"], what=f"spatch with {rule.name}").strip())
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
        f"W=1, sparse {suite}": partial(check_compiler, suite) for suite in dict.fromkeys((*OTHERS, *SUITES))
    }
    checks |= {f"tests {suite}": partial(check_tests, suite) for suite in ("bullseye", *SUITES)}
    checks |= {"checkpatch": check_checkpatch, "coccinelle": check_coccinelle}
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

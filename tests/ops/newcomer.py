#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""newcomer.py SUITE DEBS OUT: bare Debian, our packages, a boot, and what people type.

newcomer.sh is what happens in the root, newcomer_guest.sh what happens in the guest.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "userspace"))

from fabtune import __version__  # noqa: E402
from fabtune.host.run import privileged, require, run  # noqa: E402
from fabtune.lab import image, initramfs  # noqa: E402
from fabtune.lab.accel import choose_accelerator  # noqa: E402
from fabtune.lab.cache import cache_dir, delete_tree, locked, making  # noqa: E402
from fabtune.lab.image import Image  # noqa: E402
from fabtune.lab.recipe import Recipe  # noqa: E402
from fabtune.lab.vm import Machine, run_guest  # noqa: E402

HERE = Path(__file__).resolve().parent
# Bare Debian, and the one program that the lab's first process is.
PACKAGES = ("linux-image-amd64", "busybox-static", "systemd-sysv", "kmod", "iproute2")
OLDER = "0.1.9"


def bare(suite: str) -> Image:
    """Return a bare root that a guest can boot, made when the cache has none."""
    recipe = Recipe(suite, PACKAGES, unwanted=())
    target = cache_dir() / f"bare-{suite}-{recipe.digest}"
    with locked(f"image-bare-{suite}"):
        if not target.exists():
            with making(target) as draft:
                image.install_root(recipe, draft / "root")
                release = image._strip_kernel_modules(draft / "root")
                (draft / "image.json").write_text(json.dumps({"suite": suite, "kernel_release": release}))
    return Image(target, suite)


def older(debs: Path, out: Path) -> None:
    """Make packages of an earlier version from ours: the same, by another number."""
    for deb in sorted(debs.glob("*.deb")):
        tree = out / deb.stem
        run(["dpkg-deb", "--raw-extract", deb, tree], what=f"unpacking {deb.name}")
        for path in (*(tree / "DEBIAN").iterdir(), *tree.glob("usr/src/*/dkms.conf")):
            path.write_text(path.read_text().replace(__version__, OLDER))
        for source in tree.glob(f"usr/src/fabstat-{__version__}"):
            source.rename(source.with_name(f"fabstat-{OLDER}"))
        (tree / "DEBIAN/md5sums").unlink()
        run(["dpkg-deb", "--root-owner-group", "--build", tree, out], what=f"packing {deb.name}")
        shutil.rmtree(tree)


def job(target: Path) -> None:
    """Write the initramfs with what the guest runs, and nothing of this tree else."""
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        stage = Path(name) / "job"
        stage.mkdir()
        for source, file in ((initramfs.GUEST_DIR / "job-init", "init"), (HERE / "newcomer_guest.sh", "run")):
            shutil.copy(source, stage / file)
            (stage / file).chmod(0o755)
        (stage / "arguments").touch()
        initramfs.pack(Path(name), target)


def main() -> int:
    """Return 0 when everything was as it should be."""
    suite, debs, out = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    base = bare(suite)
    work = Path(tempfile.mkdtemp(prefix=f"newcomer-{suite}-"))
    started = time.monotonic()
    try:
        (work / "older").mkdir()
        older(debs, work / "older")
        (work / "chroot").mkdir()
        namespace = [require("unshare", "util-linux"), "--mount", "--pid", "--fork", "--kill-child"]
        script = [HERE / "newcomer.sh", base.root, debs, work / "older", work / "chroot"]
        done = subprocess.run([str(word) for word in privileged([*namespace, "sh", *script])], check=False)
        if done.returncode:
            return 1
        in_root_s = time.monotonic() - started
        installed = work / "image"
        installed.mkdir()
        (work / "chroot/root.squashfs").rename(installed / "root.squashfs")
        shutil.copy(base.directory / "image.json", installed / "image.json")
        (installed / "root").symlink_to(base.root)
        machine = Machine(Image(installed, suite), clock="real", accelerator=choose_accelerator("auto", base), smp=2)
        job(work / "job.cpio")
        outcome = run_guest(
            machine, work / "job.cpio", out / "guest", timeout_s=1800, on_output=lambda line: print(line, flush=True)
        )
        figures = {"in_root_s": round(in_root_s), "in_guest_s": round(time.monotonic() - started - in_root_s)}
        (out / f"figures-{suite}.json").write_text(json.dumps(figures) + "\n")
        return outcome.exit_status
    finally:
        delete_tree(work)


if __name__ == "__main__":
    sys.exit(main())

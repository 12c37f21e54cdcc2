# SPDX-License-Identifier: GPL-2.0-or-later
"""Which accelerator really works here: KVM only after a guest has booted under it.

There are machines where /dev/kvm opens and a stock kernel never leaves real mode, so being able to
open the device proves nothing.  The verdict of the probe guest is kept in the lab's cache.
"""

import functools
import json
import os
import shutil
import tempfile
from pathlib import Path

from fabtune.errors import InputError
from fabtune.host.run import TimeLimitError, finish, require, run, where_is
from fabtune.lab import initramfs
from fabtune.lab.cache import cache_dir
from fabtune.lab.image import Image

ACCELERATORS = ("auto", "kvm", "tcg", "tcg-single", "uml")
_PROBE_LIMIT_S = 10.0
_PROBE_INIT = (
    "#!/bin/busybox sh\n/bin/busybox mount -t devtmpfs dev /dev\necho up > /dev/ttyS0\n/bin/busybox poweroff -f\n"
)


def choose_accelerator(wanted: str, image: Image) -> str:
    """Return ``kvm``, ``tcg`` or ``tcg-single`` for a real-clock guest; ``auto`` asks the probe.  Raises InputError.

    Without KVM, ``auto`` lets one thread run the vCPUs in turns.  With a thread each, one vCPU may run the
    breakpoint of another's text patching too late, and a stock kernel oopses (int3), at boot already.
    """
    if wanted not in ACCELERATORS:
        raise InputError(f"accelerator '{wanted}': expected one of {', '.join(ACCELERATORS)}")
    if wanted != "auto":
        return wanted
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg-single"
    verdict = cache_dir() / "kvm-verdict.json"
    key = {"kernel": image.kernel_release, "host": os.uname().release, "qemu": qemu_version()}
    try:
        known = json.loads(verdict.read_text())
    except (OSError, ValueError):
        known = {}
    if known.get("key") != key:
        known = {"key": key, "kvm_boots": _probe_boots(image)}
        verdict.write_text(json.dumps(known))
    return "kvm" if known["kvm_boots"] else "tcg-single"


@functools.cache
def qemu_version() -> str:
    """Return what QEMU says of its version, empty where there is none.  Raises FabtuneError."""
    program = where_is("qemu-system-x86_64")
    return run([program, "--version"], what="asking QEMU's version").splitlines()[0] if program else ""


def _probe_boots(image: Image) -> bool:
    with tempfile.TemporaryDirectory() as name:
        stage, console = Path(name) / "stage", Path(name) / "console"
        (stage / "bin").mkdir(parents=True)
        (stage / "dev").mkdir()
        shutil.copy(image.root / "usr/bin/busybox", stage / "bin/busybox")
        (stage / "init").write_text(_PROBE_INIT)
        (stage / "init").chmod(0o755)
        initramfs.pack(stage, Path(name) / "probe.cpio")
        command = [
            require("qemu-system-x86_64", "qemu-system-x86"), "-machine", "q35,accel=kvm", "-cpu", "host", "-m", "256M",
            "-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{console}", "-kernel", str(image.kernel),
            "-initrd", f"{name}/probe.cpio", "-append", "console=ttyS0 quiet panic=-1",
        ]  # fmt: skip
        try:
            finish(command, timeout_s=_PROBE_LIMIT_S)
        except TimeLimitError:
            return False
        return console.exists() and "up" in console.read_text(errors="replace").split()

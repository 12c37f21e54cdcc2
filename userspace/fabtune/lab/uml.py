# SPDX-License-Identifier: GPL-2.0-or-later
"""User Mode Linux: a real kernel as an ordinary program, several times as fast as an emulated CPU.

Debian's own package (from sid: it needs a kernel of 6.16 or newer to run its user space under seccomp, and to know
how large a present CPU's registers are), with any suite's root.  It has LIO, open-iscsi, dm-multipath, netem and all
else that tuning touches, but neither RDMA, NVMe, null_blk nor fabstat.ko, and one CPU.  It has no virtual clock:
uml_virtual.py makes one that has.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fabtune.errors import FabtuneError, InputError
from fabtune.host.run import Process, launch, require, run
from fabtune.lab import apt, initramfs
from fabtune.lab.cache import cache_dir, locked, making
from fabtune.lab.image import Image
from fabtune.lab.qemu_words import file_of

SUITE = "sid"
_PACKAGE = "user-mode-linux"
# Where the guest's kernel finds what it needs on the host, inside the root that it runs in.
_PROGRAM, _GUEST_ROOT, _JOB, _STATE = "media", "srv", "mnt", "opt"
# A sparse file.
_STATE_BYTES = 512 * 2**20


def build_uml() -> Path:
    """Return the directory with the kernel program and its modules, from the cache if there.

    Raises FabtuneError when the package cannot be had.
    """
    target = cache_dir() / f"uml-{SUITE}"
    with locked("uml"):
        if not target.exists():
            with making(target) as draft:
                _download(draft)
    return target


def _download(draft: Path) -> None:
    archive = apt.host_archive()
    with tempfile.TemporaryDirectory(dir=draft) as name:
        scratch = Path(name)
        (scratch / "lists/partial").mkdir(parents=True)
        (scratch / "cache").mkdir()
        listing = f"deb [signed-by={archive.keyring}] {archive.uri} {SUITE} main\n"
        (scratch / "sources.list").write_text(listing)
        options = [
            f"Dir::Etc::SourceList={scratch}/sources.list", "Dir::Etc::SourceParts=/nonexistent",
            f"Dir::State::Lists={scratch}/lists", f"Dir::Cache={scratch}/cache",
            # Nobody but root can read a fresh temporary directory, apt's own user included.
            "APT::Sandbox::User=root",
        ]  # fmt: skip
        words = [word for option in options for word in ("-o", option)]
        for action in (["update"], ["download", _PACKAGE]):
            run(
                ["env", "--chdir", scratch, "apt-get", "-q", *words, *action],
                what=f"fetching {_PACKAGE} of {SUITE}",
            )
        package = next(scratch.glob(f"{_PACKAGE}_*.deb"))
        run(["dpkg-deb", "--extract", package, scratch / "root"], what=f"unpacking {_PACKAGE}")
        shutil.move(scratch / "root/usr/bin/linux.uml", draft / "linux.uml")
        shutil.move(scratch / "root/usr/lib/uml/modules", draft / "modules")


def require_root() -> None:
    """Raise InputError unless this is root, which alone may start a guest.

    Not behind sudo: it closes the files that the guest writes to, and what runs as root is not ours to end.
    """
    if os.geteuid() != 0:
        raise InputError(
            "--accel uml: needs root, because its kernel runs inside a root of its own, with mounts; "
            "run fabtune as root, or leave --accel uml out"
        )


def make_state(path: Path) -> None:
    """Make `path` a state of no guest yet, unless it exists.  Raises FabtuneError."""
    if path.exists():
        return
    with path.open("wb") as handle:
        handle.truncate(_STATE_BYTES)
    try:
        run([require("mkfs.ext4", "e2fsprogs"), "-q", "-F", path], what=f"making {path}")
    except BaseException:
        path.unlink()
        raise


def start(
    uml: Path, host: Image, guest: Image, *, memory_mib: int, append: str, job: Path, ttys: Sequence[str], log: Path,
    state: Path | None = None, virtual: bool = False,
) -> "Process[bytes]":  # fmt: skip
    """Start a guest with `guest`'s root and return its process, which dies with this one.

    The program needs a newer C library than a stable host has: it runs inside `host`'s root, in a mount namespace
    of its own, and leaves no mount behind however it ends.  `ttys` are QEMU's chardev definitions.
    What the guest writes stays in `state`, if it is given, and systemd is the guest's init.  `virtual` starts its clock
    as a virtual one, which takes a `uml` that has it.  Raises InputError for who is not root.
    """
    require_root()
    directory = log.parent
    joined = directory / "uml.cpio"
    with initramfs.first(host.root, "init-uml", joined):
        pass
    with joined.open("ab") as whole:
        whole.write(job.read_bytes())
    root = host.root
    mounts = [
        ["mount", "--bind", str(guest.root), f"{root}/{_GUEST_ROOT}"],
        ["mount", "--bind", str(uml), f"{root}/{_PROGRAM}"],
        ["mount", "--bind", str(directory.resolve()), f"{root}/{_JOB}"],
        ["mount", "--rbind", "/dev", f"{root}/dev"],
        ["mount", "--bind", "/proc", f"{root}/proc"],
    ]
    if state is not None:
        mounts.append(["mount", "--bind", str(state.resolve().parent), f"{root}/{_STATE}"])
        append = f"ubd0=/{_STATE}/{state.name} lab.state {append}"
    opened: list[int] = []
    try:
        channels = [_channel(tty, opened) for tty in ttys]
        kernel = [
            f"/{_PROGRAM}/linux.uml", f"mem={memory_mib}M", f"initrd=/{_JOB}/{joined.name}", "seccomp=auto",
            "con=null", f"con0={channels[0]}", "ssl=null",
            *(f"ssl{n}={channel}" for n, channel in enumerate(channels) if n),
            *(["time-travel=inf-cpu"] if virtual else []),
            "panic=-1", "quiet", "loglevel=4", *append.split(),
        ]  # fmt: skip
        script = "".join(f"{_quoted(words)} && " for words in mounts) + f'exec chroot {_quoted([str(root)])} "$@"'
        command = [
            require("setpriv", "util-linux"), "--pdeathsig", "KILL", require("unshare", "util-linux"), "--mount",
            "--propagation", "private", "sh", "-c", script, "uml", *kernel,
        ]  # fmt: skip
        with log.open("wb") as said:
            return launch(command, log=said, on_terminal=on_terminal(ttys), pass_fds=opened)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def on_terminal(ttys: Sequence[str]) -> bool:
    """Tell whether one of a guest's serial lines is the terminal that we run on."""
    return any(tty.startswith("stdio") for tty in ttys)


def _quoted(words: Sequence[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


def _channel(tty: str, opened: list[int]) -> str:
    """Return UML's words for a serial line (input,output) that QEMU knows as chardev `tty`."""
    kind = tty.partition(",")[0]
    if kind == "null":
        return "null"
    if kind == "stdio":
        return "fd:0,fd:1"
    path = file_of(tty)
    if path is None:
        raise FabtuneError(f"serial line '{tty}': User Mode Linux has files, stdio and null here")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    opened.append(descriptor)
    return f"null,fd:{descriptor}"

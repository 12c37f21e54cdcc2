# SPDX-License-Identifier: GPL-2.0-or-later
"""What is mounted where, and which files can be looked at without waiting for somebody's server.

A stat of a file on a network or FUSE file system asks its server, and where that is dead, it waits for ever: only
SIGKILL ends it, and not always.  The kernel itself tells on which mount a file is, and what is mounted there.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host.blocks import BLOCK, Node, numbered
from fabtune.host.run import ended, launch

# Without a disk of its own, or with several: they answer by themselves, and hold device nodes.
_LOCAL = ("devtmpfs", "tmpfs", "ramfs", "rootfs", "overlay", "aufs", "btrfs", "bcachefs", "zfs", "ubifs")
# On a disk, but with somebody else to ask: a process, or the other hosts of a cluster.
_ASKING = ("fuseblk", "gfs2", "ocfs2")
# What a file system that nobody has mounted any more has to answer.
_PROBE_S = 2.0
_LINKS = 40


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo; `number` is that of the file system, its disk's where it has one disk."""

    ident: int
    number: Node
    place: str
    kind: str
    source: str

    @property
    def answers(self) -> bool:
        """Tell whether a look at a file here waits for nobody, and may find a device node."""
        return self.kind in _LOCAL or (self.number.major != 0 and self.kind not in _ASKING)


def of(process: Path) -> list[Mount]:
    """Return what the process with directory `process` sees mounted, the first mount first.  Raises OSError."""
    return [one for line in (process / "mountinfo").read_text(errors="replace").splitlines() if (one := _mount(line))]


def seen_by(process: Path) -> list[Mount]:
    """Return the same, nothing where it cannot be told."""
    try:
        return of(process)
    except OSError:
        return []


def _mount(line: str) -> Mount | None:
    words = line.split()
    number = numbered(BLOCK, words[2]) if len(words) > 4 else None
    if number is None:
        return None
    tail = words[words.index("-") + 1 :] if "-" in words else []
    kind, source = (*tail, "", "")[:2]
    return Mount(int(words[0]), number, unescaped(words[4]), kind, unescaped(source))


def at(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """Return the one of `mounts` that `path`, without links, lies on; None where that is none of them."""
    below = [one for one in mounts if f"{path}/".startswith(one.place.rstrip("/") + "/")]
    # Of several mounts on one place the last one is seen.
    return max(reversed(below), key=lambda one: len(one.place)) if below else None


def below(path: str, mounts: Sequence[Mount]) -> list[str]:
    """Return the places that must be mounted for `path`, without links, to be there; the root is left out."""
    return sorted({one.place for one in mounts if one.place != "/" and f"{path}/".startswith(f"{one.place}/")})


def answering(path: str, mounts: Sequence[Mount], root: str = "") -> bool:
    """Tell whether `path` below `root` can be looked at without asking a server, nor one for a link on its way."""
    left, here = path.split("/"), ""
    links = 0
    while left and links <= _LINKS:
        part = left.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            here = here.rpartition("/")[0]
            continue
        mount = at(f"{here}/{part}", mounts)
        if mount is not None and not mount.answers:
            return False
        try:
            link = str(Path(f"{root}{here}/{part}").readlink())
        except OSError:
            here = f"{here}/{part}"
            continue
        links += 1
        left = link.split("/") + left
        here = "" if link.startswith("/") else here
    return True


def probed(path: Path) -> bool:
    """Tell whether `path`, which lies on no mount that is known, answers: asked by a program that may wait for ever."""
    try:
        program = launch(["stat", "--dereference", path])
    except FabtuneError:
        return False
    if ended(program, _PROBE_S):
        return True
    program.kill()
    return False


def unescaped(text: str) -> str:
    r"""Return a path of mountinfo or swaps as it is: blanks stand there as \040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)

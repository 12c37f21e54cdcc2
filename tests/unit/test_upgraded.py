# SPDX-License-Identifier: GPL-2.0-or-later
"""What nobody confirms goes back by the fabtune that wrote it, whatever an upgrade of the package does to its files."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import hosttree
import pytest

from fabtune.installed import PROGRAM

_WITHIN_S = 5
_PROFILE = """summary = "a sysctl and a disk"
[initiator."tcp.slow_start_after_idle"]
value = false
why = "a test"
[initiator."block.rq_affinity"]
value = 2
why = "a test"
"""


def _mended(program: Path) -> None:
    """Another vocabulary: this program does not know the key."""
    file = program / "tunables/tcp.toml"
    file.write_text(file.read_text().replace("\nsummary = ", '\na_key_of_a_later_one = "x"\nsummary = ', 1))


def _end(variable: str) -> None:
    """End who watches for a test that failed: it would try again for a day."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)


@pytest.mark.parametrize("upgrade", [_mended, shutil.rmtree])
def test_what_waits_goes_back_after_an_upgrade(tmp_path: Path, upgrade: Callable[[Path], object]) -> None:
    """Who watched read the vocabulary, and imported what reads and writes, when the time was up."""
    program, root = tmp_path / "program", hosttree.make(tmp_path / "root", 1)
    for name in ("userspace/fabtune", "tunables", "profiles"):
        shutil.copytree(PROGRAM.parent / name, program / Path(name).name)
    (tmp_path / "mine.toml").write_text(_PROFILE)
    paths = [str(program), *(path for path in sys.path if Path(path).name in ("dist-packages", "site-packages"))]
    where = os.environ | {
        "FABTUNE_ROOT": str(root), "FABTUNE_STATE_DIR": str(root / "state"), "PYTHONPATH": os.pathsep.join(paths),
        "PATH": f"{root}/bin:{os.environ['PATH']}",
    }  # fmt: skip
    values = [root / "proc/sys/net/ipv4/tcp_slow_start_after_idle", root / "sys/block/sd1/queue/rq_affinity"]
    before = [value.read_text() for value in values]
    words = ["apply", str(tmp_path / "mine.toml"), "--role", "initiator", "--rtt", "1ms", "--rate", "1gbit", "--yes"]
    fabtune = [sys.executable, "-m", "fabtune"]
    done = subprocess.run([*fabtune, *words, "--confirm-within", f"{_WITHIN_S}s"], env=where, check=False)
    assert done.returncode in (0, 4)
    assert [value.read_text() for value in values] != before, "its time was up before it was told"
    upgrade(program)
    (journal,) = (root / "state/journal").iterdir()
    try:
        deadline = time.monotonic() + 60
        while '"kind": "closed"' not in journal.read_text():
            assert time.monotonic() < deadline, journal.read_text()
            time.sleep(0.1)
    finally:
        _end(f"FABTUNE_STATE_DIR={root}/state")
    assert [value.read_text().strip() for value in values] == [one.strip() for one in before]

# SPDX-License-Identifier: GPL-2.0-or-later
"""A file system is mounted for nobody to see, and what was begun for it is let go of however that ends."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.host import detached, libbpf, namespaces


@pytest.mark.parametrize("fails", [1, 2])
def test_a_mount_that_fails_leaves_no_descriptor(fails: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace's sysfs that could not be made kept the file system's context open."""
    begun = os.open("/dev/null", os.O_RDONLY)
    answers = iter([begun, *[0] * (fails - 1), -1])
    monkeypatch.setattr(detached, "_libc", lambda: SimpleNamespace(syscall=lambda *_: next(answers)))
    monkeypatch.setattr("ctypes.get_errno", lambda: errno.EPERM)
    with pytest.raises(PermissionError):
        detached.mount_unseen("sysfs")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(begun)


def test_who_asks_for_one_says_what_it_was_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: str) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(detached, "mount_unseen", refused)
    with pytest.raises(UnsupportedError, match="cgroup v2: Operation not permitted"), libbpf._root_of_cgroups():
        pass
    monkeypatch.setattr(namespaces, "netns_path", lambda _: namespaces._OWN)
    monkeypatch.setattr(namespaces, "_setns", lambda *_: None)
    with pytest.raises(FabtuneError, match="sysfs of namespace 'far': Operation not permitted; run as root"):
        namespaces.sysfs("far")


def test_a_namespace_that_takes_the_name_of_another_is_seen_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `ip netns del` and `add`, beside a guard that goes on."""
    monkeypatch.setattr(namespaces, "_setns", lambda *_: None)
    monkeypatch.setattr(detached, "mount_unseen", lambda _: os.open(tmp_path, os.O_RDONLY))
    names = [str(tmp_path / one) for one in ("far", "near")]
    for name in names:
        Path(name).touch()
    far, near = map(namespaces.sysfs, names)
    assert namespaces.sysfs(names[0]) == far != near == namespaces.sysfs(names[1])
    Path(names[1]).rename(names[0])
    Path(names[1]).touch()
    again = namespaces.sysfs(names[0])
    assert again not in (far, near)
    for old in (far, near):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(int(old.name))
    Path(names[0]).unlink()
    with pytest.raises(FabtuneError, match="not found"):
        namespaces.sysfs(names[0])

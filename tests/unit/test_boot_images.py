# SPDX-License-Identifier: GPL-2.0-or-later
"""A file of --persist that an initramfs was packed with outlives the file: revert says so, and what packs it anew."""

import json
import os
import time
from pathlib import Path

import hosttree
import pytest

from fabtune.cli.main import main
from fabtune.host import tree
from fabtune.model.device import Device
from fabtune.tune.boot_images import still_packed
from fabtune.tune.lines import BeginLine, ClosedLine, Line, RestoredLine, WriteLine
from fabtune.tune.transaction import Step, Transaction, as_line, take

_RULES = "etc/udev/rules.d/99-fabtune.rules"
_SYSCTLS = "etc/sysctl.d/90-fabtune.conf"
_LINK = "etc/systemd/network/99-default-fabtune-pci-0000-00-03.0.link"
_OPTIONS = "etc/modprobe.d/fabtune.conf"
_DEBIANS, _DRACUTS = "boot/initrd.img-6.1.0-18-amd64", "boot/initramfs-6.12.0-55.el10.x86_64.img"
_ROWS = {
    "queue": '[initiator."block.scheduler"]\nvalue = "mq-deadline"\nwhy = "a test"\n',
    "backlog": '[initiator."net.netdev_max_backlog"]\nvalue = 4321\nwhy = "a test"\n',
}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tree of a host with a disk without a scheduler, of which each initramfs is older than what follows."""
    root = hosttree.make(tmp_path / "root", 1)
    hosttree.enter(root, monkeypatch)
    hosttree.put(root / "sys/block/sd1/queue/scheduler", "[none] mq-deadline")
    for name, row in _ROWS.items():
        (tmp_path / f"{name}.toml").write_text(f'summary = "a test"\n{row}')
    (tmp_path / "both.toml").write_text("\n".join(['summary = "a test"', *_ROWS.values()]))
    for name in (_DEBIANS, _DRACUTS):
        packed(root, name, -1000)
    return root


def packed(host: Path, name: str, after_s: float = 0) -> None:
    """Make an initramfs, so long after now."""
    hosttree.put(host / name, "cpio")
    # What is made now has the kernel's own time, some milliseconds behind ours, as what is written next.
    if after_s:
        os.utime(host / name, (time.time() + after_s,) * 2)


def apply(host: Path, name: str) -> None:
    words = ("--role", "initiator", "--rtt", "1ms", "--rate", "1gbit", "--persist")
    assert main(["apply", str(host.parent / f"{name}.toml"), *words]) == 0


def revert(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, str]]:
    """Take back, and return the exit code and what is still to do, by initramfs."""
    capsys.readouterr()
    code = main(["revert", "--json", *words])
    pending = json.loads(capsys.readouterr().out)["pending"]
    assert {one["action"] for one in pending} <= {"initramfs"}
    return code, {one["identity"]: one["reason"] for one in pending}


def test_an_initramfs_made_since_is_named_with_what_makes_it_anew(
    host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(host, "both")
    packed(host, _DEBIANS)
    packed(host, _DRACUTS)
    code, left = revert(capsys)
    assert code == 4
    assert left[f"/{_DEBIANS}"] == f"made since /{_RULES} was written; `update-initramfs -u -k all` makes it anew"
    assert left[f"/{_DRACUTS}"] == f"made since /{_SYSCTLS} was written; `dracut -f --regenerate-all` makes it anew"
    assert main(["revert"]) == 0


def test_it_is_said_in_words(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apply(host, "queue")
    packed(host, _DEBIANS)
    assert main(["revert"]) == 4
    said = " ".join(capsys.readouterr().out.split())
    assert f"still to do: /{_DEBIANS} may still hold what was taken back (made since /{_RULES} was written;" in said


def test_an_initramfs_from_before_or_with_nothing_of_ours_is_not(
    host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(host, "both")
    assert revert(capsys) == (0, {})
    packed(host, _DEBIANS)
    assert revert(capsys) == (0, {})
    apply(host, "backlog")
    packed(host, _DEBIANS)
    assert revert(capsys) == (0, {}), "Debian's has no file of sysctl.d"


def test_a_file_that_was_removed_by_hand_before_the_initramfs_was_made(
    host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(host, "queue")
    (host / _RULES).unlink()
    packed(host, _DEBIANS, 1)
    assert revert(capsys) == (0, {})


def test_lines_that_another_profile_keeps_are_said_when_they_go(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apply(host, "queue")
    packed(host, _DEBIANS)
    time.sleep(1.1)
    apply(host, "both")
    assert revert(capsys, "queue") == (0, {}), "what was packed is what is there"
    code, left = revert(capsys)
    assert code == 4 and list(left) == [f"/{_DEBIANS}"]


@pytest.mark.parametrize(
    ("key", "image", "holds"),
    [
        (_LINK, _DEBIANS, True), (_LINK, _DRACUTS, True), (_OPTIONS, _DEBIANS, True), (_OPTIONS, _DRACUTS, True),
        (_RULES, _DRACUTS, False), (_SYSCTLS, _DEBIANS, False), ("etc/udev/rules.d/", _DEBIANS, False),
        (_OPTIONS, "boot/initrd-6.4.0-150600.23-default", True),
    ],
)  # fmt: skip
def test_which_files_an_initramfs_is_packed_with(host: Path, key: str, image: str, holds: bool) -> None:
    packed(host, image, -1)
    (host / key).parent.mkdir(parents=True, exist_ok=True)
    one = Transaction(host / "20260101T000000Z-000.jsonl")
    step = Step(1, "boot", "persist.x", "textfile", key, Device("host", "host", "host"), "", "x=1\n", "live", False)
    written = as_line(step, WriteLine, "")
    header = BeginLine(1, ("initiator",), "", time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 9)))
    lines: list[Line] = [header, written, RestoredLine(1), ClosedLine()]
    for line in lines:
        take(one, line)
    assert bool(still_packed([one], [one], "boot")) == holds


def test_a_file_that_did_not_go_is_still_owed_and_not_said_twice(
    host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(host, "queue")
    packed(host, _DEBIANS)
    rules = tree.read_text(host / _RULES) or ""
    hosttree.put(host / _RULES, f"{rules}\n# mine")
    assert revert(capsys) == (3, {})

# SPDX-License-Identifier: GPL-2.0-or-later
"""The one writer of configuration files: what it replaces keeps all that is not its content."""

import json
import os
from pathlib import Path

import hosttree
import pytest

from fabtune import backends
from fabtune.cli.main import main
from fabtune.errors import UnsupportedError
from fabtune.host import files
from fabtune.model.device import Device


def test_a_link_is_written_through(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real.conf"
    real.parent.mkdir()
    real.write_text("old")
    link = tmp_path / "a.conf"
    link.symlink_to("elsewhere/real.conf")
    files.replace(link, "new")
    assert link.is_symlink() and real.read_text() == "new" and not real.is_symlink()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.conf", "elsewhere", "real.conf"]


def test_owner_mode_and_attributes_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("old")
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 1234, 4321)
    attributes = True
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        attributes = False
    was = path.stat()
    files.replace(path, "new")
    now = path.stat()
    assert (now.st_uid, now.st_gid, now.st_mode) == (was.st_uid, was.st_gid, was.st_mode)
    assert not attributes or os.getxattr(path, "user.note") == b"kept"


def test_new_files_and_directories_are_readable_whatever_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        files.replace(tmp_path / "x/y/a.conf", "new")
    finally:
        os.umask(mask)
    assert (tmp_path / "x/y/a.conf").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "x").stat().st_mode & 0o777 == (tmp_path / "x/y").stat().st_mode & 0o777 == 0o755


def test_what_lies_where_the_draft_goes_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".a.conf.fabtune-draft").symlink_to(victim)
    files.replace(tmp_path / "a.conf", "new")
    assert victim.read_text() == "precious" and (tmp_path / "a.conf").read_text() == "new"
    assert not (tmp_path / "a.conf").is_symlink()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path):
        with pytest.raises(OSError, match="not a regular file|Is a directory"):
            files.replace(path, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["fifo"]


def test_drafts_of_crashed_writers_are_swept(tmp_path: Path) -> None:
    etc, other = tmp_path / "etc", tmp_path / "other"
    for directory in (etc, other, etc / "a.link.d"):
        directory.mkdir()
    drafts = [etc / ".a.fabtune-draft", etc / "a.link.d/.b.fabtune-draft", other / ".real.fabtune-draft"]
    for draft in drafts:
        draft.write_text("half")
    (other / "real").write_text("x")
    (etc / "linked").symlink_to(other / "real")
    files.sweep([etc, tmp_path / "absent"])
    assert not any(draft.exists() for draft in drafts) and (other / "real").exists()


def test_a_result_is_whole_and_has_the_umask(tmp_path: Path) -> None:
    was = os.umask(0o027)
    try:
        files.keep(tmp_path / "page", b"one", over=True)
        files.keep(tmp_path / "page", b"two", over=True)
        files.keep(tmp_path / "record", b"one", 0o444, over=False)
    finally:
        os.umask(was)
    with pytest.raises(FileExistsError):
        files.keep(tmp_path / "record", b"two", 0o444, over=False)
    with pytest.raises(FileNotFoundError):
        files.keep(tmp_path / "absent/page", b"", over=True)
    assert {path.name: (path.read_bytes(), path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == {
        "page": (b"two", 0o640), "record": (b"one", 0o440),
    }  # fmt: skip


def test_a_result_that_cannot_be_put_in_place_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    with pytest.raises(IsADirectoryError):
        files.keep(tmp_path / "page", b"x", over=True)
    assert [path.name for path in tmp_path.iterdir()] == ["page"]


_HOST = Device("host", "host", "host")
_TPG = Device("tpg", f"{hosttree.iqn(1)},tpgt_1", "disk1")
_SAVED = {"targets": [{"fabric": "iscsi", "wwn": hosttree.iqn(1), "tpgs": [{"tag": 1, "parameters": {}}]}]}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tree of a host with one session and one target."""
    hosttree.enter(hosttree.make(tmp_path / "root", 1, 1), monkeypatch)
    return tmp_path / "root"


@pytest.mark.parametrize("behind_link", [False, True])
@pytest.mark.parametrize(
    ("file", "text", "backend", "device", "key"),
    [
        ("iscsi/iscsid.conf", "node.startup = manual", "conf", _HOST, "node.session.cmds_max"),
        ("srp_daemon.conf", "a queue_size=64", "srp_daemon", _HOST, "queue_size"),
        ("target/saveconfig.json", json.dumps(_SAVED), "saveconfig", _TPG, "param/MaxOutstandingR2T"),
    ],
)
def test_an_administrators_file_with_another_name_keeps_its_content_under_both(
    host: Path, file: str, text: str, backend: str, device: Device, key: str, behind_link: bool
) -> None:
    path, real = host / "etc" / file, host / "srv/real"
    hosttree.put(real if behind_link else path, text)
    if behind_link:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(real)
    (host / "other").hardlink_to(path.resolve())
    with pytest.raises(UnsupportedError, match=r"left alone, as it has 2 names \(hard links\)"):
        backends.get(backend).write(device, key, "16")
    assert path.samefile(host / "other") and path.read_text() == text + "\n"
    (host / "other").unlink()
    backends.get(backend).write(device, key, "16")
    assert "16" in path.read_text()


def test_apply_says_that_such_a_file_was_left_alone_and_writes_the_rest(
    host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = host / "etc/iscsi/iscsid.conf"
    hosttree.put(conf, "node.startup = manual")
    (host / "kept.conf").hardlink_to(conf)
    mine = host.parent / "mine.toml"
    mine.write_text('summary = "a test"\n[initiator."iscsi.cmds_max"]\nvalue = 256\nwhy = "a test"\n')
    main(["apply", str(mine), "--role", "initiator", "--rtt", "1ms", "--rate", "1gbit", "--persist"])
    assert "has 2 names (hard links)" in " ".join(capsys.readouterr().out.split())
    assert conf.samefile(host / "kept.conf") and "cmds_max" not in conf.read_text()
    assert "node.session.cmds_max = 256" in (host / "records" / hosttree.iqn(1)).read_text()

# SPDX-License-Identifier: GPL-2.0-or-later
"""Saved readings name what the host had around the disks when it saved them, never what this host has now."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_stat import reading

from fabtune.cli.main import main
from fabtune.host import tree
from fabtune.stat import load, parse, text_snapshot

USERSPACE = str(Path(__file__).resolve().parents[2] / "userspace")
MPATH = "mpath-36001405\n"


def host(root: Path, target: str, portal: str) -> Path:
    """A /sys in which session3, whose disk is sda, leads to `target`, the host takes 1 command, and dm-3 is above."""
    for path, text in {
        "class/iscsi_session/session3/targetname": f"{target}\n",
        "class/iscsi_connection/connection3:0/persistent_address": f"{portal}\n",
        "class/iscsi_connection/connection3:0/persistent_port": "3260\n",
        "class/scsi_host/host2/can_queue": "1\n",
        "block/sda/queue/nr_requests": "2\n",
        "block/dm-3/dm/uuid": MPATH,
        "block/dm-3/slaves/sda/dev": "8:0\n",
        "block/sda/holders/dm-3/dev": "253:3\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def texts() -> tuple[str, str]:
    """Two readings of a full host, a second apart."""
    return (
        reading([1_000_000], depth_ns=10**9),
        reading([1_000_000] * 9, depth_ns=3 * 10**9, time_ns=3 * 10**9),
    )


def shown(capsys: pytest.CaptureFixture[str], paths: list[Path], *words: str) -> str:
    assert main(["stat", *words, "--diff", *map(str, paths)]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("words", [(), ("sda",), ("--json",)])
def test_saved_readings_are_not_named_by_the_host_that_compares_them(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "SYS", host(tmp_path / "here", "iqn.2026-01.example:other", "192.0.2.9"))
    paths = [tmp_path / name for name in ("a", "b")]
    for path, text in zip(paths, texts(), strict=True):
        path.write_text(text)
    out = shown(capsys, paths, *words)
    assert "sda" in out
    for name in ("example:other", "192.0.2.9", "dm-3", "wait for one another", "nr_requests 2"):
        assert name not in out
    if words == ("--json",):
        found = json.loads(out)
        (device,) = found["devices"]
        assert found["hosts"] == [] and device["path_of"] is None and device["nr_requests"] is None
        assert (device["transport"], device["target"], device["portal"]) == ("", "", "")
    assert main(["stat", "dm-3", "--diff", *map(str, paths)]) == 2, "whose path a disk is, is not known"


def test_what_the_host_had_when_it_saved_a_reading_is_kept_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for path, text in zip(paths, texts(), strict=True):
        monkeypatch.setattr(tree, "SYS", host(tmp_path / "there", "iqn.2026-01.example:t 0", "192.0.2.1"))
        (tmp_path / "stats").write_text(text)
        monkeypatch.setattr("fabtune.cli.stat.text_snapshot", lambda: text_snapshot(tmp_path))
        assert main(["stat", "--save", str(path)]) == 0
        assert parse(path.read_text()).devices[0].ops == parse(text).devices[0].ops
    monkeypatch.setattr(tree, "SYS", host(tmp_path / "here", "iqn.2026-01.example:other", "192.0.2.9"))
    found = json.loads(shown(capsys, paths, "--json"))
    (device,) = found["devices"]
    assert (device["transport"], device["target"], device["portal"]) == (
        "iscsi", "iqn.2026-01.example:t 0", "192.0.2.1:3260",
    )  # fmt: skip
    assert (device["path_of"], device["nr_requests"]) == ("dm-3", 2)
    assert found["hosts"] == [{"host": 2, "mean_depth": 2.0, "can_queue": 1}]
    assert "host2: on average 2.0 of its 1 commands" in shown(capsys, paths)
    assert "iqn.2026-01.example:t 0" in shown(capsys, paths, "dm-3")
    assert load(paths[0]).devices[0].around


def test_a_reading_saved_where_nothing_is_around_the_disks_is_the_modules_own_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "SYS", tmp_path / "nowhere")
    text = texts()[0].replace("parent=session3", "parent=virtio3")
    (tmp_path / "stats").write_text(text)
    monkeypatch.setattr("fabtune.cli.stat.text_snapshot", lambda: text_snapshot(tmp_path))
    assert main(["stat", "--save", str(tmp_path / "saved")]) == 0
    assert (tmp_path / "saved").read_text() == text


def test_a_reading_is_saved_in_the_encoding_that_it_is_read_in(tmp_path: Path) -> None:
    """In a locale of another encoding a target with an umlaut ended in a traceback, or was not to be read again."""
    root = host(tmp_path / "sys", "iqn.2026-01.example:st\u00f6r", "192.0.2.9")
    (tmp_path / "fabstat").mkdir()
    (tmp_path / "fabstat/stats").write_text(reading([1000]))
    kept = tmp_path / "kept"
    script = (
        "import pathlib; from fabtune.cli.main import main; from fabtune.host import tree; "
        "from fabtune.stat.snapshot import text_snapshot; "
        f"tree.SYS = pathlib.Path({str(root)!r}); "
        f"text_snapshot.__defaults__ = (pathlib.Path({str(tmp_path / 'fabstat')!r}),); "
        f"raise SystemExit(main(['stat', '--save', {str(kept)!r}]))"
    )
    where = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": USERSPACE}
    done = subprocess.run([sys.executable, "-c", script], env=where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "st\u00f6r" in kept.read_text("utf-8")


@pytest.mark.parametrize("words", [("--json",), ("--save",), (), ("sda",)])
def test_of_a_queue_that_the_module_follows_nothing_is_read_that_may_wait_for_it(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sets another scheduler holds its lock until the queue is empty: on a hung disk, for ever."""
    monkeypatch.setattr(tree, "SYS", host(tmp_path / "sys", "iqn.2026-01.example:t", "192.0.2.1"))
    asked: list[str] = []
    read = tree.read_text

    def noted(path: Path | str) -> str | None:
        asked.append(str(path))
        return read(path)

    monkeypatch.setattr(tree, "read_text", noted)
    text = texts()[0].replace("at_limit_ns=0\n", "at_limit_ns=0 depth_error_ns=0 torn=0 limit_of=device\n")
    (tmp_path / "stats").write_text(text)
    monkeypatch.setattr("fabtune.cli.stat.snapshot", lambda: parse(text))
    monkeypatch.setattr("fabtune.cli.stat.text_snapshot", lambda: text_snapshot(tmp_path))
    monkeypatch.setattr("fabtune.cli.stat.slowest", lambda: None)
    saved = tmp_path / "saved"
    assert main(["stat", *words, *([str(saved)] if words == ("--save",) else [])]) == 0
    assert asked and not [path for path in asked if "/queue/" in path]
    out = capsys.readouterr().out
    if words == ("--json",):
        (device,) = json.loads(out)["devices"]
        assert (device["nr_requests"], device["depth_limit"]) == (None, 32)
    if words == ("--save",):
        assert "nr_requests=-" in saved.read_text()

# SPDX-License-Identifier: GPL-2.0-or-later
"""The dead-man's switch: what may be confirmed, and what no longer may."""

from pathlib import Path

import hosttree
import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError
from fabtune.host import systemd
from fabtune.tune import armed, confirm, journal, unconfirmed

_SYSCTLS = "proc/sys/net/ipv4"
_PROFILE = """
summary = "two sysctls"
[initiator."tcp.slow_start_after_idle"]
value = false
why = "a test"
[initiator."tcp.mtu_probing"]
value = 1
why = "a test"
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host on which two values wait to be confirmed, and nobody watches."""
    root = hosttree.make(tmp_path / "root")
    hosttree.enter(root, monkeypatch)
    (tmp_path / "mine.toml").write_text(_PROFILE)
    monkeypatch.setattr(armed, "arm", lambda name: None)
    words = ["--role", "initiator", "--rtt", "40ms", "--rate", "1gbit", "--confirm-within", "60s"]
    assert main(["apply", str(tmp_path / "mine.toml"), *words]) in (0, 4)
    return root


def test_what_waits_is_confirmed_in_time(host: Path) -> None:
    assert main(["confirm"]) == ExitCode.DONE
    assert [one.state for one in journal.transactions()] == ["in force"]


def test_what_has_gone_back_in_part_is_not_confirmed(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hosttree.put(host / _SYSCTLS / "tcp_mtu_probing", "2")
    now_s = unconfirmed.now_s()
    monkeypatch.setattr(unconfirmed, "now_s", lambda: now_s + 61)
    assert main(["revert"]) == ExitCode.DRIFT
    assert (host / _SYSCTLS / "tcp_slow_start_after_idle").read_text().strip() == "1"
    capsys.readouterr()
    assert main(["confirm"]) == ExitCode.FAILED
    assert "is up" in capsys.readouterr().err
    assert [one.state for one in journal.transactions()] == ["unconfirmed"]
    assert main(["revert", "--force"]) == ExitCode.DONE


def test_what_cannot_be_read_whole_is_not_confirmed(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = journal.transactions()[-1].path
    path.write_bytes(path.read_bytes() + bytes(4) + b"\n")
    assert main(["confirm"]) == ExitCode.FAILED
    assert "it is not confirmed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "after", "lasting", "said"),
    [
        ("/run/systemd/generator/data.mount", ["local-fs-pre.target"], True, ""),
        ("/run/systemd/generator/data.mount", ["remote-fs-pre.target"], False, "mounted after remote-fs-pre.target"),
        ("", [], True, "mounted by hand"),
        ("", [], False, ""),
    ],
)
def test_a_journal_that_a_boot_does_not_have_in_time_is_refused(
    file: str, after: list[str], lasting: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `_netdev` the unit for a boot made a cycle that cost iscsid and open-iscsi their start."""
    monkeypatch.setattr(systemd, "mount_unit", lambda place: (file, after))
    if said:
        with pytest.raises(FabtuneError, match=said):
            confirm._require_mounted_at_boot(["/data"], lasting)
    else:
        confirm._require_mounted_at_boot(["/data"], lasting)

# SPDX-License-Identifier: GPL-2.0-or-later
"""Two sessions of one record: where one stays away after its logout, the other one is the last path, and stays."""

import contextlib
from pathlib import Path

import hosttree
import pytest

from fabtune.cli.main import main
from fabtune.host.sessions import live_sessions
from fabtune.tune import journal, logout, relogin, successor

_PROFILE = 'summary = "a test"\n[initiator."{}"]\nvalue = {}\nwhy = "a test"\n'
_PATH = ("--role", "initiator", "--rtt", "1ms", "--rate", "1gbit")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the files of a host with two sessions of one record, one path to the same disk each."""
    root = hosttree.make(tmp_path / "root", 2)
    hosttree.enter(root, monkeypatch)
    hosttree.two_of_one_record(root)
    (root / "bin/iscsiadm").rename(root / "bin/iscsiadm.real")
    answer(root)
    monkeypatch.setattr(logout, "_GONE_WAIT_S", 0.2)
    return root


def answer(root: Path, on_first_logout: str = "", on_login: str = "") -> None:
    """Have iscsiadm note what it is asked; its logouts and logins come to nothing but what these words do."""
    program = root / "bin/iscsiadm"
    program.write_text(f"""#!/bin/sh
echo "$*" >> {root}/asked
case "$*" in
*"-r 1 --logout"*) {on_first_logout}
    exit 0;;
*--logout*) exit 0;;
*--login*) {on_login}
    echo "connection timed out" >&2; exit 8;;
esac
exec {root}/bin/iscsiadm.real "$@"
""")
    program.chmod(0o755)


def ended(root: Path) -> list[str]:
    """Return the ids of the sessions that iscsiadm was asked to log out."""
    words = [one.split() for one in (root / "asked").read_text().splitlines() if "--logout" in one]
    return [one[one.index("-r") + 1] for one in words]


def first_goes(root: Path) -> None:
    """Leave the first session logged out, as a fabtune that is killed before the login does."""
    first, _ = live_sessions()
    with journal.locked(), relogin.journalled() as log:
        log(successor.leaving(first, {}))
    (root / "sys/class/iscsi_session/session1").rename(root / "gone")


def fails(root: Path, sid: int) -> None:
    hosttree.put(root / f"sys/class/iscsi_session/session{sid}/state", "FAILED")


@pytest.mark.parametrize("verb", ["revert", "apply"])
def test_a_session_that_lost_its_network_is_not_ended_for_one_of_its_record_that_is_away(host: Path, verb: str) -> None:
    first_goes(host)
    fails(host, 2)
    hosttree.put(host / "proc/self/mounts", "/dev/sd2 /data ext4 rw 0 0")
    profile = host.parent / "mine.toml"
    profile.write_text(_PROFILE.format("tcp.mtu_probing", 1))
    main([verb] if verb == "revert" else [verb, str(profile), *_PATH])
    assert ended(host) == []


def test_a_login_that_fails_as_the_network_goes_ends_no_other_session_of_the_record(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = host / "sys/class/iscsi_session"
    answer(host, f"mv {sessions}/session1 {host}/gone", f"echo FAILED > {sessions}/session2/state")
    # That the first may go, as the other one is a live path, is shown in guests.
    monkeypatch.setattr(logout, "why_not", lambda session: "" if session.sid == 1 else "is in use")
    monkeypatch.setattr(logout, "kept", lambda session: contextlib.nullcontext(""))
    profile = host.parent / "mine.toml"
    profile.write_text(_PROFILE.format("iscsi.cmds_max", 256))
    main(["apply", str(profile), *_PATH, "--allow-relogin"])
    assert ended(host) == ["1"]


def test_a_session_that_was_there_before_the_logout_is_not_the_login_that_failed(host: Path) -> None:
    """Its target may have no LUN just now."""
    first_goes(host)
    fails(host, 2)
    without_disks(host, 2)
    main(["revert"])
    assert ended(host) == []


def test_a_login_that_failed_is_ended_before_the_next_one(host: Path) -> None:
    first_goes(host)
    came_later(host)
    without_disks(host, 3)
    main(["revert"])
    assert ended(host) == ["3"]


def test_a_session_that_came_after_the_logout_and_has_disks_stays(host: Path) -> None:
    """Somebody logged it in; it lost its network since."""
    first_goes(host)
    came_later(host)
    assert [one.state for one in live_sessions()] == ["FAILED"]
    main(["revert"])
    assert ended(host) == []


def came_later(root: Path) -> None:
    """Have session 3, which has no connection, in the place of session 2."""
    for name in ("session/session{}", "connection/connection{}:0"):
        place = root / "sys/class" / f"iscsi_{name}".format(2)
        place.rename(root / "sys/class" / f"iscsi_{name}".format(3))
    fails(root, 3)


def without_disks(root: Path, sid: int) -> None:
    device = root / f"sys/class/iscsi_session/session{sid}/device"
    for number, port in enumerate(device.glob("target*")):
        port.rename(root / f"lost{number}")

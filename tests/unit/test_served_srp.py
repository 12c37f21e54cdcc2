# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of a target's sessions an SRP login is: by the names that ib_srpt gives it, and by what it did."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hosttree
import pytest
from test_stat_target import served

from fabtune.host import srp
from fabtune.measure.ends import _served_between
from fabtune.measure.look import Look
from fabtune.model.observation import DiskSeen, EndSeen, Observation, SessionSeen, WaySeen

SGID, DGID = "fe80:0000:0000:0000:0200:00ff:fe00:0001", "fe80:0000:0000:0000:0200:00ff:fe00:0002"
GUID, PORT = "0200:00ff:fe00:0001", "0200:00ff:fe00:0002"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    hosttree.enter(hosttree.make(tmp_path, 1, 1), monkeypatch)
    return tmp_path


def renamed(text: str, initiator: str = GUID, target: str = PORT) -> str:
    """The reading as of one SRP session."""
    for was, now in (
        ("fabric=iSCSI", "fabric=srpt"), ("iqn.2026-01.example:a", initiator), ("iqn.2026-01.example:t", target),
        ("isid=00023d01", "isid=-"),
    ):  # fmt: skip
        text = text.replace(was, now)
    return text


def another(text: str, name: str, other: str) -> str:
    """The LUN of `text` again, as the session `other` uses it."""
    return text[text.index("nexus ") :].replace("id=1", "id=9").replace(f"initiator={name}", f"initiator={other}")


@pytest.fixture
def login(host: Path) -> Path:
    """The SCSI host of an SRP login by InfiniBand's connection manager."""
    port = host / "sys/devices/x/host9/rport/port-9:1"
    hosttree.put(port / "port_id", "0200:00ff:fe00:0002")
    (host / "sys/class/srp_remote_ports").mkdir(parents=True)
    (host / "sys/class/srp_remote_ports/port-9:1").symlink_to(port)
    place = host / "sys/class/scsi_host/host9"
    hosttree.put(place / "sgid", SGID)
    hosttree.put(place / "dgid", DGID)
    return place


def looked(*texts: str, reads: int = 100) -> Observation:
    """What a look at an SRP login's disk, of which `reads` were asked, makes of two readings of its target."""
    look: Any = object.__new__(Look)
    look._missing, look._theirs, look._afar, look._host, look._ran_out = [], {}, {}, "", {"port-9:1": 0}
    told = _served_between(*texts)
    look._serving = EndSeen("target", "6.12", None, cpu_busy=(0.1, 0.1), served=told)
    (session,) = srp.srp_logins()
    disk = DiskSeen("sda", True, 1.0, {"read": WaySeen(reads, 409600, 1.5, 1.5)}, 0.15, 32, 0.0, {}, {}, {}, lun=3)
    one: Any = SimpleNamespace(disk="sda", socket=None, why_no_socket="", session=session, multipath="")
    found: Observation = look._observation(one, disk, {}, EndSeen("initiator", "6.12", None, cpu_busy=(0.1, 0.1)))
    return found


def readings(*names: str) -> list[str]:
    return [renamed(text, *names) for text in (served(10), served(110, time_ns=3 * 10**9))]


NAMES = [
    # By the connection manager of InfiniBand, to the port by its GUID.
    (GUID, PORT),
    # To the port by its GID: the initiator's port identifier, with what the login chose before its own half.
    ("0x" + SGID.replace(":", ""), "0x" + DGID.replace(":", "")),
    ("0000000000000001020000fffe000001", "0x" + DGID.replace(":", "")),
]


@pytest.mark.parametrize("names", NAMES)
def test_an_srp_login_s_session_is_known_by_each_name_that_ib_srpt_gives_it(
    login: Path, names: tuple[str, str]
) -> None:
    """SRP was never joined with its target's half."""
    one = looked(*readings(*names))
    assert one.served_ms("read") == pytest.approx(1)
    assert not any("the target's time" in text for text in one.missing)


@pytest.mark.parametrize(
    "names",
    [
        ("0200:00ff:fe00:0009", PORT),
        ("0x" + DGID.replace(":", ""), "0x" + DGID.replace(":", "")),
        # Another port of the target, and a name that this login's connection manager does not give.
        (GUID, "0200:00ff:fe00:0003"),
        ("192.0.2.2", PORT),
        ("iqn.2026-01.example:a", "iqn.2026-01.example:t"),
    ],
)
def test_an_srp_session_of_another_name_or_port_is_not_the_login_s(login: Path, names: tuple[str, str]) -> None:
    one = looked(*readings(*names))
    assert one.served_ms("read") is None and any("the target's time" in text for text in one.missing)


def test_an_srp_login_by_address_has_the_one_session_that_did_its_requests(login: Path) -> None:
    """ib_srpt calls it by the target's own address, as it does every other initiator's."""
    (login / "dgid").unlink()
    assert looked(*readings("192.0.2.2", PORT)).served_ms("read") == pytest.approx(1)
    assert looked(*readings("fe80:0000:0000:0000:0200:00ff:fe00:0002", PORT)).served_ms("read") == pytest.approx(1)
    # Of two initiators that log in to one address the row has both.
    busier = looked(*readings("192.0.2.2", PORT), reads=50)
    assert busier.served_ms("read") is None and any("the target's time" in text for text in busier.missing)
    assert looked(*readings(GUID, PORT)).served_ms("read") is None, "a name that this connection manager does not give"


def test_of_several_srp_sessions_that_fit_none_is_taken(login: Path) -> None:
    whole = "0x" + SGID.replace(":", "")
    twice = looked(*(text + another(text, GUID, whole) for text in readings()))
    assert twice.served_ms("read") is None, "the login may have either name"
    (login / "dgid").unlink()
    both = [text + another(text, "192.0.2.2", "192.0.2.3") for text in readings("192.0.2.2")]
    many = looked(*both)
    assert many.served_ms("read") is None
    assert any("2 of its sessions may be the disk's; which cannot be told" in text for text in many.missing)


def test_a_session_s_gids_are_the_login_s(login: Path) -> None:
    (one,) = srp.srp_logins()
    look: Any = object.__new__(Look)
    look._ran_out = {"port-9:1": 0}
    session: SessionSeen = look._login(one, "")
    assert (session.gid, session.target_gid) == (SGID, DGID)

# SPDX-License-Identifier: GPL-2.0-or-later
"""Texts of the host that are not what they should be: said or passed over, never a traceback."""

import contextlib
import json
from pathlib import Path

import hosttree
import pytest

from fabtune import backends
from fabtune.backends import record
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError
from fabtune.facts import routes
from fabtune.facts.collect import Facts, collect
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import iproute, tree
from fabtune.host.links import Links
from fabtune.host.sessions import live_sessions
from fabtune.model.device import Device
from fabtune.model.path import NetworkPath
from fabtune.tune import memory, nextlogin, stranded
from fabtune.tune.carry import of as carried
from fabtune.tune.logins import preview_logins
from fabtune.tune.logout import sessions_wanted
from fabtune.tune.plan import make_plan, tunables_of

WAN = NetworkPath(0.05, 125e6)
TPG = Device("tpg", f"{hosttree.iqn(1)},tpgt_1", "t")
# No number, or one that no kernel has; int() takes some and fails at others.
NO_NUMBERS = {
    "nothing": "", "a word": "x", "a square": "²", "an Arabic 3": "٣", "400 digits": "9" * 400,
    "5000 digits": "9" * 5000, "5000 hex digits": "0x" + "f" * 5000,
}  # fmt: skip
NOT_JSON = {"deep list": "[" * 100_000, "deep object": '{"a":' * 100_000, "5000 digits": "9" * 5000, "half": "{"}


def named(cases: dict[str, str]) -> pytest.MarkDecorator:
    """Run a test with the `text` of each case; texts of 100,000 characters make no names."""
    return pytest.mark.parametrize("text", list(cases.values()), ids=list(cases))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = hosttree.make(tmp_path / "host", 1, 1)
    hosttree.enter(root, monkeypatch)
    return root


def says(host: Path, tool: str, text: str) -> None:
    """Let `tool` print `text` whatever it is asked."""
    hosttree.put(host / f"{tool}.out", text)
    hosttree.put(host / "bin" / tool, f"#!/bin/sh\ncat {host}/{tool}.out")


def spoil(host: Path, key: str, value: str) -> None:
    """Give `key` of the node record another value."""
    file = host / "records" / hosttree.iqn(1)
    lines = [line for line in file.read_text().splitlines() if not line.startswith(f"{key} = ")]
    file.write_text("\n".join([*lines, f"{key} = {value}"]) + "\n")
    record.BACKEND.forget()


def plan() -> Facts:
    """Plan `wan` on the host as `fabtune plan` does; return what was seen of it."""
    profile = load_profile("wan", shipped_catalog())
    wanted = tunables_of(profile)
    facts = collect([*wanted, *nextlogin.tunables_needed(one.name for one in wanted)])
    made = make_plan(profile, ("initiator", "target"), facts, WAN, {})
    nextlogin.guard(made, facts)
    memory.excess(made, memory.worst_case(made, facts))
    return facts


@named(NO_NUMBERS | {"0": "0", "-1": "-1"})
def test_a_record_that_has_no_number_where_a_login_needs_one(host: Path, text: str) -> None:
    for key in ("cmds_max", "queue_depth", "nr_sessions", *(f"iscsi.{one}" for one in hosttree.PARAMETERS)):
        spoil(host, f"node.session.{key}", text)
    facts = plan()
    (login,) = preview_logins(facts, facts, None, None)
    if text not in ("0", "-1"):
        # open-iscsi's own default.
        assert next(one.initiator for one in login.agreed if one.name == "FirstBurstLength") == 262144


def test_a_queue_of_no_command_fails_the_login_and_is_said(host: Path) -> None:
    spoil(host, "node.session.cmds_max", "0")
    facts = plan()
    (login,) = preview_logins(facts, facts, None, None)
    assert "leaves no command for data" in next(one.problem for one in login.agreed if one.name == "commands in flight")


@named(NO_NUMBERS)
def test_a_session_or_a_target_that_tells_no_number(host: Path, text: str) -> None:
    session = host / "sys/class/iscsi_session/session1"
    hosttree.put(session / "max_outstanding_r2t", text)
    for name in ("param/MaxOutstandingR2T", "param/FirstBurstLength", "attrib/default_cmdsn_depth"):
        hosttree.put(host / f"sys/kernel/config/target/iscsi/{hosttree.iqn(1)}/tpgt_1/{name}", text)
    hosttree.put(host / "proc/sys/net/ipv4/tcp_rmem", f"{text} {text} {text}")
    plan()
    carried(live_sessions()[0])
    assert stranded.why_not("lio.max_outstanding_r2t", TPG, text, "6") == ""
    assert sessions_wanted({"node.session.nr_sessions": text}) == 1


@named(NOT_JSON)
def test_json_that_nobody_can_read(host: Path, text: str) -> None:
    says(host, "ip", text)
    says(host, "tc", text)
    hosttree.put(host / "etc/target/saveconfig.json", text)
    plan()
    with pytest.raises(FabtuneError, match=r"saveconfig.json: not JSON"):
        backends.get("saveconfig").read(TPG, "param/FirstBurstLength")
    with pytest.raises(FabtuneError, match="not JSON"):
        iproute.read_json("ip", "address")
    with pytest.raises(FabtuneError, match="not JSON"):
        iproute.batch_json("ip", "-4", ["route get 10.2.0.1"])


SHAPES: list[object] = [
    {"targets": 3},
    {"targets": [3, None]},
    {"targets": [{"wwn": hosttree.iqn(1), "tpgs": "x"}]},
    {"targets": [{"wwn": hosttree.iqn(1), "tpgs": [{"tag": 1, "parameters": []}]}]},
    {"targets": [{"fabric": "srpt", "wwn": 3, "tpgs": [3]}]},
    {"storage_objects": [3]},
    {"storage_objects": {"name": "disk1"}},
]


def test_a_saved_target_of_another_shape(host: Path) -> None:
    others = {
        hosttree.iqn(1): "tpg",
        f"{hosttree.iqn(1)},tpgt_²": "tpg",
        "fileio/disk1,": "backstore",
        "0x1/0x2": "srpt-tpg",
    }
    for saved in SHAPES:
        hosttree.put(host / "etc/target/saveconfig.json", json.dumps(saved))
        for device in (TPG, *(Device(scope, identity, "d") for identity, scope in others.items())):
            with pytest.raises(FabtuneError):
                backends.get("saveconfig").read(device, "param/FirstBurstLength")
            with pytest.raises(FabtuneError):
                backends.get("saveconfig").write(device, "param/FirstBurstLength", "9" * 5000)


@pytest.mark.parametrize(
    "name", ["../../../etc", "a\0b", "x" * 300, "", ".."], ids=["path", "NUL", "long", "empty", "up"]
)
def test_an_interface_that_no_kernel_has(host: Path, name: str) -> None:
    says(host, "ip", json.dumps([{"ifname": name, "addr_info": [{"local": "10.2.0.9"}]}]))
    with pytest.raises(FabtuneError, match="interface"):
        _ = Links().all
    plan()


@pytest.mark.parametrize(
    "row",
    [
        {"dst": "10.2.0.1", "via": {}},
        {"dst": "10.2.0.1", "via": "x"},
        {"dst": "10.2.0.1", "gateway": None},
        {"dst": "10.2.0.1", "nexthops": None},
        {"dst": "10.2.0.1", "nexthops": [3, "dev", None]},
        {"dst": [], "dev": {}},
    ],
)
def test_a_route_without_its_gateway(host: Path, row: dict[str, object]) -> None:
    says(host, "ip", json.dumps([row]))
    routes.routes(HostSnapshot())
    for identity in ("10.2.0.1,direct,netns:init", "10.2.0.1", "x,y,z", ""):
        try:
            routes.locate(Device("route", identity, "r"), HostSnapshot())
        except FabtuneError as error:
            assert "route" in str(error)
    plan()


def test_a_route_whose_words_end_early(host: Path) -> None:
    device = Device("route", "r", "r", {"destination": "10.2.0.0/24", "family": "-4", "name": "eth0", "metric": ""})
    backend = backends.get("route")
    for rest in ("rto_min", "rto_min lock", "rto_min xs", "rto_min lock s", "rto_min 1e999s", "congctl", "nhid 3 via"):
        says(host, "ip", f"10.2.0.0/24 dev eth0 {rest}")
        for key in ("rto_min", "congctl"):
            backend.read(device, key)
            backends.why_not("route", device, key)
            with contextlib.suppress(FabtuneError):
                backend.write(device, key, "5")


def test_what_a_peer_is_called_asks_no_second_question(host: Path) -> None:
    hosttree.put(host / "bin/ip", f"#!/bin/sh\ncat >> {host}/asked; echo '[]'")
    iproute.batch_json("ip", "-4", ["route get 10.2.0.1\nroute flush table main"])
    assert (host / "asked").read_text().splitlines() == ["route get 10.2.0.1 route flush table main"]


def test_an_mtu_that_is_no_text(host: Path) -> None:
    mtu = host / "sys/class/net/eth0/mtu"
    mtu.parent.mkdir(parents=True)
    mtu.write_bytes(b"\xff\xfe")
    device = Device("nic", "eth0", "eth0", {"name": "eth0"})
    assert backends.get("mtu").read(device, "mtu") == "��"
    hosttree.put(host / "etc/target/saveconfig.json", "{}")
    (tree.ETC / "target/saveconfig.json").write_bytes(b"\xff{}")
    with pytest.raises(FabtuneError, match="saveconfig"):
        backends.get("saveconfig").read(TPG, "param/x")

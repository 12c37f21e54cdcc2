# SPDX-License-Identifier: GPL-2.0-or-later
"""`apply --again` writes nothing that `apply` would refuse by now."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import hosttree
import pytest
import tctree

from fabtune import backends
from fabtune.backends import Refusal
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import main
from fabtune.facts.collect import this_host
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import tree
from fabtune.host.links import Links
from fabtune.host.nics import nic_named
from fabtune.tune import journal
from fabtune.tune.apply import apply
from fabtune.tune.pending import Leave
from fabtune.tune.plan import CHANGE, Plan, Row


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = hosttree.make(tmp_path / "root")
    hosttree.enter(root, monkeypatch)
    tctree.make(root)
    return root


def applied(*values: tuple[str, str], overrides: tuple[str, ...] = ()) -> None:
    """Apply a plan that sets these tunables of the NIC, and let a boot undo it."""
    catalog, rows = shipped_catalog().tunables, []
    for name, wanted in values:
        now = backends.get(catalog[name].backend).read(tctree.NIC, catalog[name].key)
        rows.append(Row(catalog[name], "initiator", tctree.NIC, now, wanted, CHANGE, "a test"))
    plan = Plan("mine", ("initiator",), "", None, {}, rows)
    plan.overrides = overrides
    with journal.locked():
        assert len(apply(plan, this_host(), Leave(), print).written) == len(values)
    hosttree.put(tree.PROC / "sys/kernel/random/boot_id", "00000002-2222-3333-4444-555555555555")
    hosttree.put(tree.SYS / f"class/net/{tctree.NAME}/mtu", "1500")
    (tree.ROOT / "qdisc").write_text((tree.ROOT / "qdisc.kernel").read_text())


@pytest.fixture
def again(capsys: pytest.CaptureFixture[str]) -> Callable[[], tuple[list[str], list[str]]]:
    """Return what runs it, and returns what it wrote and why it left the rest alone."""

    def run() -> tuple[list[str], list[str]]:
        capsys.readouterr()
        main(["apply", "--again", "--json"])
        said = json.loads(capsys.readouterr().out)
        assert "error" not in said, said["error"]
        return [one["tunable"] for one in said["written"]], [one["why"] for one in said["left_alone"]]

    return run


Again = Callable[[], tuple[list[str], list[str]]]


def test_a_nic_that_has_become_a_port_of_a_bridge_keeps_its_mtu(host: Path, again: Again) -> None:
    applied(("nic.mtu", "9000"))
    tctree.make(host, linkinfo={"info_slave_kind": "bridge"})
    written, why = again()
    assert written == [] and "every port of a bridge needs the same MTU" in why[0]
    assert tree.read_text(host / f"sys/class/net/{tctree.NAME}/mtu") == "1500"


_ALONE, _OTHERS, _NOBODY = "", "connections to 192.0.2.9", "nothing"


@pytest.mark.parametrize(
    ("shared", "overrides", "why"),
    [
        (_ALONE, (), ""),
        (_OTHERS, (), _OTHERS),
        (_OTHERS, ("share_nic",), ""),
        # Storage's traffic goes another way by now: nobody has looked at who uses this one.
        (_NOBODY, (), "somebody, perhaps"),
    ],
)
def test_a_nic_that_others_use_by_now_is_not_paced_unless_that_was_asked_for(
    host: Path, again: Again, monkeypatch: pytest.MonkeyPatch, shared: str, overrides: tuple[str, ...], why: str
) -> None:
    applied(("qdisc.kind", "fq"), ("qdisc.maxrate", "125000000"), overrides=overrides)
    found = [] if shared == _NOBODY else [replace(nic_named(tctree.NAME, Links()), shared=shared)]
    monkeypatch.setattr(HostSnapshot, "nics", found)
    # What was answered for once is so at each boot, whose writes are a transaction of their own.
    for boot in (3, 4):
        hosttree.put(host / "proc/sys/kernel/random/boot_id", f"{boot:08}-2222-3333-4444-555555555555")
        (host / "qdisc").write_text((host / "qdisc.kernel").read_text())
        written, left = again()
        assert written == ["qdisc.kind", "qdisc.maxrate"][: 1 if why else 2]
        assert len(left) == bool(why) and all(why in one for one in left)


def test_whatever_a_backend_refuses_is_left_alone(host: Path, again: Again, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a route that expires by now."""
    applied(("nic.mtu", "9000"))
    monkeypatch.setattr(backends, "why_not", lambda *_: Refusal("this route expires"))
    assert again() == ([], ["this route expires"])

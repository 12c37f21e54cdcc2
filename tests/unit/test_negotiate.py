# SPDX-License-Identifier: GPL-2.0-or-later
"""The login preview's rules; the grid against a real LIO is tests/vm/negotiate.bats."""

from pathlib import Path

import hosttree
import pytest

from fabtune.backends import record
from fabtune.catalog.tunable import shipped_catalog
from fabtune.facts.collect import survey
from fabtune.model.negotiate import Value, preview
from fabtune.tune.logins import preview_logins


def agreed(name: str, initiator: dict[str, Value], target: dict[str, Value]) -> tuple[Value, str]:
    one = next(one for one in preview(initiator, target) if one.name == name)
    return one.result, one.problem


@pytest.mark.parametrize(("ours", "theirs", "result"), [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1)])
def test_initial_r2t_is_or(ours: int, theirs: int, result: int) -> None:
    assert agreed("InitialR2T", {"InitialR2T": bool(ours)}, {"InitialR2T": bool(theirs)})[0] is bool(result)


@pytest.mark.parametrize(("ours", "theirs", "result"), [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 1)])
def test_immediate_data_is_and(ours: int, theirs: int, result: int) -> None:
    assert agreed("ImmediateData", {"ImmediateData": bool(ours)}, {"ImmediateData": bool(theirs)})[0] is bool(result)


def test_defaults_of_open_iscsi_and_lio() -> None:
    found = {one.name: one.result for one in preview({}, {})}
    assert found["FirstBurstLength"] == 65536
    assert found["MaxBurstLength"] == 262144
    assert found["commands in flight"] == 32


def test_first_burst_stays_below_the_agreed_max_burst() -> None:
    ours: dict[str, Value] = {"FirstBurstLength": 65536, "MaxBurstLength": 262144}
    assert agreed("FirstBurstLength", ours, {"FirstBurstLength": 65536, "MaxBurstLength": 512})[0] == 512


def test_lengths_are_rounded_down_to_four() -> None:
    assert agreed("MaxRecvDataSegmentLength", {"MaxRecvDataSegmentLength": 9999}, {})[0] == 9996


def test_what_makes_a_login_fail_is_said() -> None:
    assert "not a power of two" in agreed("MaxOutstandingR2T", {"MaxOutstandingR2T": 6}, {"MaxOutstandingR2T": 16})[1]
    assert "no common digest" in agreed("HeaderDigest", {"HeaderDigest": "CRC32C"}, {"HeaderDigest": "None"})[1]
    assert agreed("MaxOutstandingR2T", {"MaxOutstandingR2T": 6}, {"MaxOutstandingR2T": 4}) == (4, "")


def test_command_window_is_the_smallest_of_three() -> None:
    ours: dict[str, Value] = {"cmds_max": 256, "queue_depth": 128}
    assert agreed("commands in flight", ours, {"cmdsn_depth": 64})[0] == 64
    assert agreed("commands in flight", ours, {"cmdsn_depth": 512})[0] == 128
    assert agreed("commands in flight", {"cmds_max": 100, "queue_depth": 128}, {"cmdsn_depth": 512})[0] == 49


def test_an_acl_gives_its_initiator_another_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = hosttree.make(tmp_path, 1, 1)
    hosttree.enter(host, monkeypatch)
    acls = host / f"sys/kernel/config/target/iscsi/{hosttree.iqn(1)}/tpgt_1/acls"
    hosttree.put(host / "etc/iscsi/initiatorname.iscsi", "InitiatorName=iqn.2026-01.test:me")
    hosttree.put(acls / "iqn.2026-01.test:other/cmdsn_depth", "8")
    assert window() == 64
    hosttree.put(acls / "iqn.2026-01.test:me/cmdsn_depth", "16")
    assert window() == 16
    # As iscsiadm shows a record without a name of its own.
    node = host / "records" / hosttree.iqn(1)
    node.write_text(node.read_text() + "iface.initiatorname = <empty>\n")
    record.BACKEND.forget()
    assert window() == 16
    node.write_text(node.read_text() + "iface.initiatorname = iqn.2026-01.test:other\n")
    record.BACKEND.forget()
    assert window() == 8


def window() -> Value | None:
    """Return the target's command window in the preview of this host's one login to its own target."""
    facts = survey(shipped_catalog().tunables.values())
    (login,) = preview_logins(facts, facts, None, None)
    return next(one.target for one in login.agreed if one.name == "commands in flight")

# SPDX-License-Identifier: GPL-2.0-or-later
"""What a profile has set is no danger that asks for more of the same, and what lint advises ends what it named."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import hosttree
import pytest
from test_lint import facts_with

from fabtune.backends.record import BACKEND
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import ROLES, shipped_catalog
from fabtune.cli.main import main
from fabtune.facts.collect import Facts, Reading, survey
from fabtune.lint.hazards import lint
from fabtune.lint.rule import Hazard, ToldPath
from fabtune.model.path import NetworkPath
from fabtune.tune.plan import make_plan

RTTS_MS = (0.1, 2, 20, 50, 150, 300)
RATES_MBIT = (1, 2, 5, 8, 9, 10, 21, 45, 100, 622, 1000, 10_000, 100_000)
PROFILES = ("wan", "wan-clean", "wan-lossy", "wan-satellite")
_ACL = f"sys/kernel/config/target/iscsi/{hosttree.iqn(1)}/tpgt_1/acls/iqn.i"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An initiator and a target as nobody tuned them."""
    root = hosttree.make(tmp_path, 1, 1)
    hosttree.put(root / "sys/block/sd1/device/queue_depth", "32")
    hosttree.put(root / _ACL / "cmdsn_depth", "64")
    hosttree.put(root / _ACL / "attrib/dataout_timeout", "3")
    hosttree.enter(root, monkeypatch)
    return root


def changed(facts: Facts, values: Mapping[str, str]) -> Facts:
    """Return the facts with other values of some tunables; a disk has its record's depth from the next login on."""
    found = replace(facts)
    found.readings = [replace(one, value=values.get(one.tunable, one.value)) for one in facts.readings]
    return found


def planned(name: str, facts: Facts, path: NetworkPath, **settings: float) -> Facts:
    """Return the facts after the profile was applied and the session logged in anew."""
    plan = make_plan(load_profile(name, shipped_catalog()), ROLES, facts, path, settings)
    values = {row.tunable.name: row.wanted or "" for row in plan.changes}
    if depth := values.get("iscsi.queue_depth"):
        values["block.queue_depth"] = depth
    return changed(facts, values)


def dangers(facts: Facts, path: NetworkPath, told: tuple[ToldPath, ...] = ()) -> list[Hazard]:
    return [one for one in lint(facts, shipped_catalog(), path, told) if one.severity == "danger"]


def advised(found: list[Hazard]) -> dict[str, str]:
    """Return the values that `found` asks for, each fix in the words of its rule."""
    words = [re.findall(r"([a-z]+\.[a-z_]+) to (?:at least |at most )?(\d+)", one.fix) for one in found]
    assert all(words), [one.fix for one in found]
    return dict(sorted({pair for one in words for pair in one}, reverse=True))


@pytest.mark.parametrize("name", PROFILES)
def test_what_a_profile_has_set_is_no_danger_that_asks_for_more(host: Path, name: str) -> None:
    as_is = survey(shipped_catalog().tunables.values())
    assert {"block.queue_depth", "lio.dataout_timeout"} <= {one.tunable for one in as_is.readings if one.value}
    spoken = set()
    for rtt_ms in RTTS_MS:
        for mbit in RATES_MBIT:
            path = NetworkPath(rtt_ms / 1e3, mbit * 1e6 / 8)
            facts = planned(name, as_is, path)
            found = dangers(facts, path)
            spoken |= {one.rule for one in found}
            for one in found:
                assert "at least" not in one.fix and "at most" in one.fix, (rtt_ms, mbit, one)
            assert dangers(changed(facts, advised(found)), path) == [], (rtt_ms, mbit)
    # At 1 Mb/s the 32 requests that nobody raised are too many for 30 s, and that is still said.
    assert spoken == {"scsi-timeout-short", "dataout-timeout-short"}


@pytest.mark.parametrize("mbit", [0.05, 1, 5, 45, 100])
@pytest.mark.parametrize("block_s", ["2", "30", "180"])
def test_what_lint_advises_ends_what_it_named(mbit: float, block_s: str) -> None:
    """An ACL of 128 commands was to have "at least 60 s", which it had, and a ping longer than SCSI waits."""
    path = NetworkPath(0.05, mbit * 1e6 / 8)
    for timeout in ("3", "30", "60"):
        facts = facts_with(iscsi__noop_timeout=timeout, lio__dataout_timeout=timeout, block__timeout=block_s)
        facts.readings.append(Reading("block.max_sectors_kb", facts.of("block.timeout")[0].device, "1024"))
        found = dangers(facts, path)
        assert len(found) == len({one.rule for one in found})
        values = advised(found)
        if "block.max_sectors_kb" in values:
            # So slow that one request alone takes too long: only a smaller one helps, which lint cannot see in a queue.
            assert mbit < 0.3 and int(values["block.max_sectors_kb"]) < 1024
            continue
        assert dangers(changed(facts, values), path) == [], (timeout, values)
        seconds = {name: int(value) for name, value in values.items() if name.endswith("timeout")}
        most = {"iscsi.noop_timeout": 30, "block.timeout": 30, "lio.dataout_timeout": 60}
        assert all(value <= most[name] for name, value in seconds.items()), values


def test_a_ping_is_no_danger_where_scsi_gives_up_first() -> None:
    path = NetworkPath(0.05, 5e6 / 8)
    facts = facts_with(iscsi__noop_timeout="30", lio__dataout_timeout="60", lio__cmdsn_depth="32")
    assert [one.rule for one in dangers(facts, path)] == ["scsi-timeout-short"]
    # Where udev gave disks 180 s it is the ping that ends the session, and only fewer requests help.
    patient = facts_with(block__timeout="180", iscsi__noop_timeout="30", lio__dataout_timeout="60",
                         lio__cmdsn_depth="32")  # fmt: skip
    (one,) = dangers(patient, path)
    assert one.rule == "ping-timeout-short" and one.fix.startswith("set iscsi.queue_depth to at most 17")


def test_time_limits_are_held_against_the_request_that_was_planned_for(
    host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """512 requests of 4 KiB were taken for as many of 1 MiB, which nobody had asked for."""
    words = ["--rtt", "50ms", "--rate", "100mbit"]
    main(["apply", "wan", *words, "--set", "io_size=4KiB"])
    capsys.readouterr()
    main(["lint", "--json", *words])
    seen = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["severity"] == "danger"]
    assert seen == []
    record = host / "records" / hosttree.iqn(1)
    assert "node.session.queue_depth = 512" in record.read_text()
    main(["revert"])
    record.write_text(record.read_text().replace("queue_depth = 32", "queue_depth = 512"))
    BACKEND.forget()
    capsys.readouterr()
    main(["lint", "--json", *words])
    assert "ping-timeout-short" in [one["hazard"] for one in json.loads(capsys.readouterr().out)["findings"]]


def test_of_several_plans_the_largest_request_counts() -> None:
    path = NetworkPath(0.05, 12.5e6)
    small, large, none = (ToldPath("p", 50, 1e8, size) for size in (4096, 262144, None))
    facts = facts_with(iscsi__queue_depth="128", lio__dataout_timeout="60")
    assert dangers(facts, path, (small, none)) == []
    for told in ((), (none,), (small, large)):
        assert [one.rule for one in dangers(facts, path, told)] == ["ping-timeout-short"]

# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""lint judges by the rate that a profile in force was planned for, where that can be no other path's, and says so."""

import json
from dataclasses import replace
from pathlib import Path

import hosttree
import pytest
from test_guard_portals import Connect, connect, host, over_tcp  # noqa: F401
from test_lint import CARD

from fabtune.backends import record
from fabtune.cli.main import main
from fabtune.facts.host_snapshot import HostSnapshot

_WAN = ("--rtt", "50ms", "--rate", "100mbit")


@pytest.fixture
def profile(host: Path, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose NIC tells no speed, with a window locked for 50 ms; a profile that leaves it so."""
    connect((1, 50.0))
    monkeypatch.setattr(HostSnapshot, "nics", [replace(CARD, driver="virtio_net", speed_bit_per_s=0)])
    file = tmp_path / "mine.toml"
    file.write_text('summary = "a test"\n[initiator."tcp.mtu_probing"]\nvalue = 1\nwhy = "a test"\n')
    return file


def applied(profile: Path, *path: str) -> None:
    """Apply `profile` for a path, and nothing else."""
    assert main(["revert"]) in (0, 4)
    assert main(["apply", str(profile), "--role", "initiator", *path]) in (0, 4)
    record.BACKEND.forget()


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[dict[str, list[dict[str, str]]], str]:
    """Return lint's JSON and its text."""
    capsys.readouterr()
    main(["lint", *words])
    shown = " ".join(capsys.readouterr().out.split())
    main(["lint", "--json", *words])
    return json.loads(capsys.readouterr().out), shown


def windows(told: dict[str, list[dict[str, str]]]) -> list[str]:
    return [one["consequence"].split(",")[0] for one in told["findings"] if one["hazard"] == "window-locked"]


def test_the_rate_that_was_told_to_a_profile_in_force_is_used_and_named(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It knew the path, and called the rate unknown."""
    told, shown = asked(capsys)
    assert told["unasked"] and not windows(told) and told["rate"] is None and "planned for" not in shown
    applied(profile, *_WAN[:3], "200mbit")
    told, shown = asked(capsys)
    assert told["unasked"] == []
    (window,) = windows(told)
    assert window.endswith("of 23.9 MB/s")
    assert told["rate"] == {"bit_per_s": 2e8, "of": "profile 'mine' in force"}
    assert "judged for 200 Mb/s, the rate that profile 'mine' in force was planned for; --rate tells another" in shown
    # What is told here goes first.
    told, shown = asked(capsys, "--rate", "1gbit")
    assert told["rate"] is None and "planned for" not in shown and windows(told) != [window]


def test_a_nic_that_is_faster_than_the_line_is_not_the_line(
    profile: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 1 Gb/s the locked window seemed to hold a session to an eighth of what the line never carried."""
    monkeypatch.setattr(HostSnapshot, "nics", [CARD])
    assert windows(asked(capsys)[0])
    applied(profile, *_WAN[:3], "20mbit")
    told, _ = asked(capsys)
    assert windows(told) == [] and told["rate"]
    # No faster than the NIC, either: what was told of that is a finding of its own.
    applied(profile, *_WAN[:3], "10gbit")
    told, _ = asked(capsys)
    named = {one["device"] for one in told["findings"] if one["hazard"] == "rate-above-nic"}
    assert named == {"profile 'mine' in force"}


def test_a_rate_that_nobody_told_or_that_is_another_path_s_is_not_used(
    profile: Path, host: Path, connect: Connect, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostSnapshot, "nics", [CARD])
    # By the NIC, and as an estimate.
    for rtt in ("1ms", "50ms"):
        applied(profile, "--rtt", rtt)
        assert asked(capsys)[0]["rate"] is None
    # The path has moved, or was told wrongly.
    applied(profile, "--rtt", "10ms", "--rate", "100mbit")
    assert asked(capsys)[0]["rate"] is None
    applied(profile, *_WAN)
    assert asked(capsys)[0]["rate"]
    assert asked(capsys, "--rtt", "10ms")[0]["rate"] is None
    # Of several paths it is not that of all.
    hosttree.log_in(host, 2)
    over_tcp(host, 2)
    record.BACKEND.forget()
    connect((1, 50.0), (2, 0.2))
    assert asked(capsys)[0]["rate"] is None

# SPDX-License-Identifier: GPL-2.0-or-later
"""What fabtune guard --json tells programs beside its sentences: what it is about, and the figures."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hosttree
import pytest
import test_guard
from test_guard import looked

from fabtune.cli.main import main
from fabtune.guard import rounds
from fabtune.guard.news import Told
from fabtune.guard.rounds import Guard
from fabtune.tune import journal

host = test_guard.host
path_ms = test_guard.path_ms
seconds = test_guard.seconds
_MINE: dict[str, Any] = {"profile": "mine", "roles": ["initiator"], "netns": ""}
_IDLE = "proc/sys/net/ipv4/tcp_slow_start_after_idle"
_PROBING = "proc/sys/net/ipv4/tcp_mtu_probing"


def abouts(told: list[Told]) -> dict[str, dict[str, Any]]:
    """Return what is told of each kind but for its sentence."""
    found = [(one, json.loads(json.dumps(one.as_json()))) for one in told]
    return {one.kind: {key: value for key, value in line.items() if key != "text"} for one, line in found}


def test_the_command_tells_which_value_drifted_and_from_what(
    host: Path, path_ms: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    hosttree.put(host / _PROBING, "2")
    capsys.readouterr()
    assert main(["guard", "--for", "1ms", "--json"]) == 3
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert line.pop("time_s") > 0 and "is 2, applied was 1" in line.pop("text") and line.pop("note")
    assert line == {
        "kind": "drift", "grade": "warning", "tunable": "tcp.mtu_probing", "device": "host",
        "identity": line["identity"], "expected": "1", "found": "2",
    }  # fmt: skip


def test_what_is_right_again_and_what_was_healed_is_named(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "VERIFY_EVERY_S", 0.0)
    guard = Guard(heal=True)
    hosttree.put(host / _PROBING, "2")
    looked(guard, 1)
    hosttree.put(host / _PROBING, "1")
    hosttree.put(host / _IDLE, "1")
    found = abouts(looked(guard, 1))
    assert found["as-applied"]["tunable"] == "tcp.mtu_probing" and found["as-applied"]["device"] == "host"
    (value,) = found["healed"]["values"]
    assert value == {"tunable": "tcp.slow_start_after_idle", "device": "host", "found": "1", "expected": "0"}
    assert found["healed"]["transaction"] == journal.transactions()[-1].name


def test_a_path_that_moved_is_told_with_both_round_trips_and_what_was_written_for_it(
    host: Path, path_ms: Callable[[float], None]
) -> None:
    path_ms(80)
    found = abouts(looked(Guard(heal=True), 4))
    figures: dict[str, Any] = {**_MINE, "rtt_ms": 80.0, "planned_rtt_ms": 40.0}
    assert found["path-moved"] == {"kind": "path-moved", "grade": "warning", "cannot_tell": False, **figures}
    assert found["followed"] == {
        "kind": "followed", "grade": "notice", **figures, "transaction": journal.transactions()[-1].name,
        "values": [{"tunable": "tcp.rmem_max", "device": "host", "found": "10000000", "expected": "20000000"}],
    }  # fmt: skip


def test_a_rate_that_moved_is_told_with_what_was_carried_and_what_is_not_known(
    host: Path, seconds: Callable[..., list[Told]]
) -> None:
    guard = Guard(heal=True)
    seconds(guard, 40, 11_900_000)
    found = abouts([*seconds(guard, 160, 2_970_000), *seconds(guard, 480, 2_970_000)])
    assert found["path-moved"]["cannot_tell"] is True
    assert found["rate-moved"] == {
        "kind": "rate-moved", "grade": "warning", **_MINE, "bytes_per_s": 2_970_000.0,
        "carried_bytes_per_s": 11_900_000.0, "rtt_ms": 480, "least_rtt_ms": 40, "planned_rtt_ms": 160.0,
        "cannot_tell": True,
    }  # fmt: skip
    back = abouts(seconds(guard, 160, 11_900_000))
    assert back["rate-back"] == {"kind": "rate-back", "grade": "notice", **_MINE, "bytes_per_s": 11_900_000.0}

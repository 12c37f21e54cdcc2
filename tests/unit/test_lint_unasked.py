# SPDX-License-Identifier: GPL-2.0-or-later
"""What lint could not ask for want of a path is said, with what would tell it, and is not nothing found."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from test_lint import CARD, SOCKET, facts_with
from test_lint_sessions import _locked

from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.facts import saved_facts
from fabtune.facts.collect import Facts
from fabtune.lint.hazards import lint
from fabtune.lint.rule import Unasked
from fabtune.tune import path_choice

_NEED_A_PATH = {"dataout-timeout-short", "ping-timeout-short", "scsi-timeout-short", "window-locked"}


def without_speed(**values: str) -> Facts:
    """Return the host of a virtio NIC, which tells no speed, with buffers locked that carry 15.5 MB/s."""
    locked = {"iscsi__tcp_window": "524288", "net__rmem_max": "4194304", "net__wmem_max": "4194304"}
    facts = facts_with(**{**locked, **values})
    facts.nics = [replace(CARD, driver="virtio_net", speed_bit_per_s=0)]
    return facts


def asked(
    facts: Facts, tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, dict[str, list[dict[str, str]]]]:
    """Return the exit code of lint on these facts, what it prints and its JSON."""
    path = tmp_path / "host.json"
    path.write_text(json.dumps(saved_facts.to_json(facts)))
    code = main(["lint", str(path), *words])
    shown = capsys.readouterr().out
    assert main(["lint", str(path), *words, "--json"]) == code
    return code, " ".join(shown.split()), json.loads(capsys.readouterr().out)


def test_rules_that_need_an_unknown_rate_are_named_and_lint_cannot_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was `0 findings`, exit 0, of a session that is held at an eighth of its path."""
    code, shown, told = asked(without_speed(iscsi__noop_timeout="2"), tmp_path, capsys)
    assert code == ExitCode.CANNOT_TELL and told["findings"] == []
    assert {one["hazard"] for one in told["unasked"]} == _NEED_A_PATH
    assert all(one["why"].startswith("rate unknown") and "give --rate" in one["why"] for one in told["unasked"])
    # lint measures none.
    assert "--rate measure" not in shown
    assert all(name in shown for name in _NEED_A_PATH) and shown.count("give --rate") == 1
    assert "0 findings" in shown and "4 rules not asked" in shown
    # What a window carries each round trip no line changes.
    (window,) = [one for one in told["unasked"] if one["hazard"] == "window-locked"]
    found = re.search(r"at most about ([0-9.]+) MB/s", window["known"])
    assert found and float(found[1]) == pytest.approx(15.5, rel=0.02)
    assert "50 ms" in window["known"] and window["known"] in shown


def test_with_the_rate_they_are_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, told = asked(without_speed(), tmp_path, capsys, "--rate", "1gbit")
    assert code == ExitCode.DRIFT and told["unasked"] == [] and "not asked" not in shown
    assert [one["hazard"] for one in told["findings"]] == ["window-locked"]


def test_what_is_found_goes_before_what_cannot_be_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, told = asked(without_speed(tcp__sack="0"), tmp_path, capsys)
    assert code == ExitCode.DRIFT and told["unasked"] and "give --rate" in shown
    # A notice is nothing that had to be changed.
    code, *_ = asked(without_speed(nic__tso="0"), tmp_path, capsys)
    assert code == ExitCode.CANNOT_TELL


@pytest.mark.parametrize(
    ("words", "speed", "missing"),
    [
        ((), 10**9, "round trip unknown: no live session tells it; give --rtt"),
        (("--rate", "1gbit"), 0, "round trip unknown"),
        (("--rtt", "50ms"), 0, "rate unknown"),
        ((), 0, "round trip and rate unknown"),
    ],
)
def test_the_half_that_is_missing_is_named(
    words: tuple[str, ...], speed: int, missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = without_speed()
    facts.nics, facts.sockets = [replace(CARD, speed_bit_per_s=speed)], []
    _, _, told = asked(facts, tmp_path, capsys, *words)
    assert told["unasked"] and all(one["why"].startswith(missing) for one in told["unasked"])
    # Whose round trip was told has its window's ceiling.
    assert any("MB/s at 50 ms" in one["known"] for one in told["unasked"]) is ("--rtt" in words)


def test_nothing_is_called_unasked_where_there_is_nothing_to_ask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Buffers that nothing locks, pings that are off, a host without disks or target."""
    facts = facts_with(iscsi__noop_timeout="0")
    facts.nics, facts.sessions, facts.sockets = [], [], []
    facts.readings = [one for one in facts.readings if one.tunable != "lio.dataout_timeout"]
    code, shown, told = asked(facts, tmp_path, capsys)
    assert (code, told["unasked"]) == (ExitCode.DONE, []) and "not asked" not in shown


def test_which_of_several_paths_a_portal_without_a_session_has_is_said_to_be_unknown() -> None:
    facts, unasked = _locked(0.3, 50.0, 0.0), list[Unasked]()
    found = lint(facts, shipped_catalog(), path_choice.choose(facts, None, None), unasked=unasked.append)
    assert [one.device for one in found if one.rule == "window-locked"] == ["50.0"]
    assert [(one.rule, one.device) for one in unasked] == [("window-locked", "0.0")]
    assert "which of this host's paths" in unasked[0].why and not unasked[0].known


def test_of_two_paths_each_window_has_its_own_ceiling() -> None:
    facts, unasked = _locked(1.0, 50.0), list[Unasked]()
    facts.nics = [replace(one, speed_bit_per_s=0) for one in facts.nics]
    half = path_choice.half(facts, None, None)
    lint(facts, shipped_catalog(), None, half=half, unasked=unasked.append)
    ceilings = {one.device: one.known for one in unasked if one.rule == "window-locked"}
    assert "1 ms" in ceilings["1.0"] and "50 ms" in ceilings["50.0"]
    facts.sockets = [replace(SOCKET, rtt_ms=0, min_rtt_ms=0)]
    unasked.clear()
    half = path_choice.half(facts, None, None)
    lint(facts, shipped_catalog(), None, half=half, unasked=unasked.append)
    assert {one.known for one in unasked} == {""}

# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""What `fabtune apply --dry-run` takes beside it, as `revert --dry-run` does, and what it says of new connections."""

import json
from pathlib import Path

import pytest
from test_guard_portals import Connect, connect, host, paces  # noqa: F401
from test_tune_carried import daemon  # noqa: F401

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.tune import journal

_APPLY = ["apply", "wan", "--role", "initiator", "--rtt", "50ms", "--rate", "1gbit"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def session(daemon: list[str], paces: dict[str, int], connect: Connect) -> None:
    """A host with one session, 50 ms away."""
    connect((1, 50.0))


@pytest.mark.parametrize("verb", [_APPLY, ["revert"]])
@pytest.mark.parametrize("option", ["--reconnect", "--allow-relogin"])
def test_what_becomes_of_a_session_shows_only_when_it_is_done(verb: list[str], option: str, capsys: Capture) -> None:
    """apply took them without a word, and showed nothing that it had not shown without them."""
    assert main([*verb, "--dry-run", option]) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert f"{verb[0]}: --dry-run tells whose re-login or new connection would be due" in told
    assert f"it cannot be combined with {option}" in told and journal.transactions() == []


def dry(capsys: Capture) -> tuple[int, dict[str, object] | None]:
    """Return how many values an apply would write, and what it says of a reconnect."""
    capsys.readouterr()
    assert main([*_APPLY, "--dry-run", "--json"]) == ExitCode.DONE
    told = json.loads(capsys.readouterr().out)
    return sum(one["state"] == "change" for one in told["rows"]), told["reconnect"]


def test_what_waits_for_a_new_connection_since_an_earlier_apply_is_said(daemon: list[str], capsys: Capture) -> None:
    """`apply --reconnect` brings it, with nothing to write: the dry run knew of no reconnect."""
    changes, told = dry(capsys)
    assert changes and told and told["sessions"] == 1
    assert main(_APPLY) == ExitCode.NEEDS_ACTION
    changes, told = dry(capsys)
    assert not changes and told and told["sessions"] == 1
    daemon[0] = "new"
    assert dry(capsys) == (0, None)


def test_what_would_be_written_for_a_boot_is_shown(host: Path, capsys: Capture) -> None:
    main([*_APPLY, "--dry-run", "--persist"])
    assert "persist" in capsys.readouterr().out and not list(host.rglob("*.conf"))

# SPDX-License-Identifier: GPL-2.0-or-later
"""What stands beside an unknown option: one that may have been meant, and the --help of what was typed."""

import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode


def _said(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(line.split()) == ExitCode.USAGE
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("apply wan --alow-relogin", "--allow-relogin"),
        ("plan wan --jsn", "--json"),
        ("plan wan --rat 1gbit", "--rate"),
        ("revert --reconect", "--reconnect"),
        ("lab run --suit trixie x", "--suite"),
        # One of the words of a longer name.
        ("tune --netns x", "--target-netns"),
        ("apply wan --confirm 60s", "--confirm-within"),
        ("lab run --timeout 60 x", "--timeout-s"),
    ],
)
def test_an_option_that_is_nearly_the_one_typed_is_named(
    line: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"(did you mean '{near}'?)" in _said(line, capsys)


@pytest.mark.parametrize(
    "line",
    [
        "revert --yes",
        "measure xdd --for 10s",
        "revert --confirm-within 60s",
        "whatif wan --rtt 5ms",
        "why --with xdd",
        "run demo --count 5",
        # What skips a question, overwrites or ends what is in use is typed by who knows it.
        "apply wan --yse",
        "revert --for 5s",
        "revert --forc",
        "apply wan --sessions 4",
    ],
)
def test_an_option_of_another_meaning_is_not_named(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown option '--" in (said := _said(line, capsys)) and "did you mean" not in said


@pytest.mark.parametrize("line", ["lab run --timeout 60 x", "lab --timeout run x"])
def test_the_help_of_the_sub_verb_is_named(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = _said(line, capsys)
    assert said.startswith("fabtune: lab run: unknown option '--timeout'") and "see `fabtune lab run --help`" in said

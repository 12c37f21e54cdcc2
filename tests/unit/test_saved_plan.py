# SPDX-License-Identifier: GPL-2.0-or-later
"""A saved plan fits the host it was made for, and no other state of it."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import hosttree
import pytest

from fabtune.backends import record
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import ExitCode, InputError
from fabtune.facts.collect import Facts, collect
from fabtune.host import run
from fabtune.host.run import finish
from fabtune.tune import saved_plan
from fabtune.tune.plan import SAME, Plan, Row

RECORD = "iscsi.cmds_max"
SESSION = f"{hosttree.iqn(1)},10.2.0.1:3260,default"


@pytest.fixture
def facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Facts:
    hosttree.enter(hosttree.make(tmp_path, 1), monkeypatch)
    record.BACKEND.forget()
    return collect([shipped_catalog().get(RECORD, "test")])


def kept(facts: Facts, path: Path, role: str = "initiator") -> saved_plan.SavedPlan:
    """Return a plan of one row, of a record, as it comes back from its file."""
    (reading,) = facts.of(RECORD)
    tunable = shipped_catalog().get(RECORD, "test")
    row = Row(tunable, role, reading.device, reading.value, reading.value, SAME, "a test")
    saved_plan.write(saved_plan.of(Plan("p", (role,), "", None, {}, [row]), facts, shipped_catalog()), path)
    return saved_plan.load(path, shipped_catalog())


def test_sessions_that_went_or_came_are_a_change_of_the_host_even_where_no_row_is_theirs(
    facts: Facts, tmp_path: Path
) -> None:
    plan = kept(facts, tmp_path / "a.plan")
    assert saved_plan.host_changes(plan, facts) == []
    away = replace(facts, sessions=[])
    assert saved_plan.host_changes(plan, away) == [f"gone: session {SESSION}"]
    assert saved_plan.host_changes(kept(away, tmp_path / "b.plan"), facts) == [f"new: session {SESSION}"]
    second = replace(facts.sessions[0], place=2)
    assert saved_plan.host_changes(plan, replace(facts, sessions=[*facts.sessions, second])) == [
        f"new: session {SESSION}#2"
    ]


@pytest.mark.parametrize("made", ["", "yesterday", "2026-13-01T00:00:00Z", "2026-11-22 08:00:00", None, 5])
def test_a_plan_says_when_it_was_made(facts: Facts, tmp_path: Path, made: object) -> None:
    path = tmp_path / "a.plan"
    assert kept(facts, path).made.endswith("Z")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"made": made}))
    with pytest.raises(InputError, match=r"a.plan: key 'made': found .*, allowed: (a time in UTC|text)"):
        saved_plan.load(path, shipped_catalog())


def test_a_binary_file_is_called_one(tmp_path: Path) -> None:
    path = tmp_path / "wan.plan"
    path.write_bytes(b"\x7fELF\xff\xfe")
    with pytest.raises(InputError, match="not a saved plan but binary"):
        saved_plan.load(path, shipped_catalog())


def test_a_standard_input_that_is_closed_holds_no_plan() -> None:
    words = ["sh", "-c", 'exec "$0" -m fabtune apply --plan - <&-', sys.executable]
    done = finish(words, env={**os.environ, "PYTHONPATH": str(Path(run.__file__).parents[2])})
    assert done.status == ExitCode.USAGE and "standard input: not JSON" in done.stderr
    assert "Traceback" not in done.stderr

# SPDX-License-Identifier: GPL-2.0-or-later
"""Completion offers what the parsers take and what this host has, and nothing else."""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtune.catalog import profile, tunable
from fabtune.cli import complete
from fabtune.cli.main import VERBS, verb_parser
from fabtune.experiment import definition
from fabtune.measure import workload
from fabtune.tune import journal

TOP = Path(__file__).resolve().parents[2]


def _words(*line: str) -> list[str]:
    return [one.partition("\t")[0] for one in complete.completions(line).splitlines()]


def _parsers(verb: str) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    """Yield the parser of a verb, or those of its sub-verbs, with the words that lead there."""
    parser = verb_parser(verb)
    subs = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not subs:
        yield [verb], parser
    for action in subs:
        yield from (([verb, name], one) for name, one in action.choices.items())


@pytest.mark.parametrize("verb", VERBS)
def test_every_argument_that_takes_a_value_has_said_what_it_takes(verb: str) -> None:
    silent = [
        action.dest for _, parser in _parsers(verb) for action in parser._actions
        if action.nargs != 0 and complete.provider(verb, action) is None
    ]  # fmt: skip
    assert silent == []


@pytest.mark.parametrize("verb", VERBS)
def test_the_options_offered_are_those_that_the_parser_takes(verb: str) -> None:
    for words, parser in _parsers(verb):
        flags = {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}
        assert set(_words(*words, "-")) == flags
        for action in parser._actions:
            if action.option_strings and action.choices is not None:
                assert _words(*words, action.option_strings[0], "") == list(map(str, action.choices))


def test_verbs_come_first_and_options_may_stand_before_them() -> None:
    assert _words("") == _words() == list(VERBS)
    assert _words("pl") == ["plan"] and _words("--rtt", "5ms", "pl") == ["plan"]
    assert _words("nosuch", "") == [] and _words("--ver") == ["--version"]


def test_an_option_is_offered_once_unless_it_may_stand_again() -> None:
    assert "--json" not in _words("plan", "--json", "-") and "--rtt" not in _words("plan", "--rtt=5ms", "wan", "-")
    assert "--set" in _words("plan", "--set", "a=1", "-")
    # Nothing else may follow.
    assert "--json" in _words("history", "")
    assert _words("plan", "--scope=h") == ["--scope=host"]
    assert _words("stat", "--diff", "a", "") == [":file"]


def test_names_are_those_that_the_verbs_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABTUNE_PROFILES", str(tmp_path))
    monkeypatch.setenv("FABTUNE_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "our-line.toml").write_text('summary = "our line"\n')
    assert complete.completions(("plan", "our")) == "our-line\tour line\n:file\n"
    assert set(_words("plan", "")) == {*profile.available(), ":file"}
    assert set(_words("workloads", "")) == set(workload.names())
    assert set(_words("explain", "")) == {*tunable.shipped_catalog().tunables, *workload.names()}
    assert set(_words("run", "")) == {*definition.names(), ":file"}
    (tmp_path / "state/journal").mkdir(parents=True)
    assert _words("revert", "--transaction", "") == []
    (journal.state_dir() / "journal/20260102T030405Z-000.jsonl").touch()
    # What steers a terminal is no candidate.
    (journal.state_dir() / "journal/\x1b[2J.jsonl").touch()
    assert _words("revert", "--transaction", "") == ["20260102T030405Z-000"]


def test_it_brings_nothing_that_takes_long_to_import() -> None:
    code = "import sys; from fabtune.cli.complete import run_complete; run_complete(['explain', '']); " \
           "print('|'.join(sys.modules), file=sys.stderr)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={"PYTHONPATH": str(TOP / "userspace")})  # fmt: skip
    assert "tcp.rmem_max\t" in done.stdout
    assert not {"attr", "attrs", "cattrs", "rich", "jinja2", "subprocess", "tomllib"} & set(
        done.stderr.strip().split("|")
    )

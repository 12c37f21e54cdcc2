# SPDX-License-Identifier: GPL-2.0-or-later
"""Every verb's words are known without what runs it: `--version` and `--help` are quick, man pages can be made."""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hosttree
import pytest

from fabtune.catalog import tunable
from fabtune.cli import arguments, parse_lab
from fabtune.cli.examples import EXAMPLES
from fabtune.cli.main import VERBS, handler, parse, verb_parser
from fabtune.lab import accel, recipe
from fabtune.model.untouched import refuse_default

# What may be there when the words of a command line have been understood.
LIGHT = (
    "fabtune",
    "fabtune.cli",
    "fabtune.errors",
    "fabtune.model",
    "fabtune.model.units",
    "fabtune.model.untouched",
    "fabtune.__main__",
)
HEAVY = ("rich", "jinja2", "attr", "attrs", "cattr", "cattrs", "rtslib_fb", "subprocess", "dataclasses", "tempfile")
LOADED = """
import sys
before = set(sys.modules)
from fabtune.cli.main import main
status = main(sys.argv[1:])
import json
import shlex
print(json.dumps([status, sorted(set(sys.modules) - before)]))
"""


def _loaded(*words: str, **environment: str) -> list[str]:
    """Return what a command brings into Python; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": "userspace", "PATH": "/usr/bin:/bin", **environment},
    )  # fmt: skip
    status, found = json.loads(done.stdout.splitlines()[-1])
    # lint finds something on most hosts.
    assert status == (3 if words == ("lint",) else 0) and done.stderr == ""
    return list(found)


@pytest.mark.parametrize("words", [("--version",), ("--help",), *((verb, "--help") for verb in VERBS)], ids=" ".join)
def test_what_is_only_told_brings_nothing_that_runs(words: tuple[str, ...]) -> None:
    found = _loaded(*words)
    assert not [name for name in found if name.partition(".")[0] in HEAVY]
    ours = [name for name in found if name.startswith("fabtune") and name not in LIGHT]
    assert not [name for name in ours if name.rpartition(".")[0] != "fabtune.cli"]
    assert not {name.rpartition(".")[2] for name in ours} & {
        "tune",
        "measure",
        "ab",
        "inspect",
        "vocabulary",
        "lab",
        "workloads",
    }


@pytest.mark.parametrize(
    ("words", "others"),
    [
        (("show",), ("lint", "tune.plan", "tune.logins", "catalog.profile", "report", "measure", "difflib")),
        (("lint",), ("tune.plan", "tune.logins", "catalog.profile", "report", "measure")),
        (("plan", "wan", "--rtt", "50ms", "--rate", "1gbit"), ("tune.apply", "tune.revert", "tune.verify", "lint")),
        (("verify",), ("tune.apply", "tune.undo", "lint", "report")),
        (("history",), ("tune.apply", "tune.revert", "tune.verify", "lint", "report")),
    ],
    ids=("show", "lint", "plan", "verify", "history"),
)
def test_a_verb_brings_nothing_that_others_alone_need(
    words: tuple[str, ...], others: tuple[str, ...], tmp_path: Path
) -> None:
    root = hosttree.make(tmp_path)
    found = _loaded(*words, FABTUNE_ROOT=str(root), FABTUNE_STATE_DIR=str(root / "state"))
    assert not [name for name in found for other in others if f"{name}.".startswith((f"fabtune.{other}.", f"{other}."))]


def _handlers(parser: argparse.ArgumentParser) -> Iterator[str]:
    found = parser.get_default("handler")
    if found:
        yield found
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _handlers(below)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_function_that_runs_it(verb: str) -> None:
    found = list(_handlers(verb_parser(verb)))
    assert found and all(callable(handler(name)) for name in found)


def test_choices_are_those_of_what_runs() -> None:
    assert arguments.ROLES == tunable.ROLES
    assert (parse_lab.SUITES, parse_lab.ACCELERATORS) == (recipe.SUITES, accel.ACCELERATORS)
    assert (parse_lab.DEBUG_KERNELS, parse_lab.UML_VIRTUAL) == (recipe.DEBUG_KERNELS, recipe.UML_VIRTUAL)


def test_no_example_of_ab_names_a_profile_that_ab_refuses() -> None:
    for words, _ in EXAMPLES["ab"]:
        args = parse(shlex.split(words))
        refuse_default(args.a, words)
        refuse_default(args.b, words)

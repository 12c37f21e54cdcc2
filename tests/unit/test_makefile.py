# SPDX-License-Identifier: GPL-2.0-or-later
"""The Makefile: what a target that gathers others says that it does, and that no file's name keeps one from running."""

import re
from pathlib import Path

TEXT = re.sub(r"\\\n\s*", " ", (Path(__file__).resolve().parents[2] / "Makefile").read_text())
TARGETS = set(re.findall(r"^([a-z][a-z-]*):(?!=)", TEXT, re.MULTILINE))
BENCHES = {name for name in TARGETS if name.startswith("bench-")}


def _expanded(text: str) -> list[str]:
    lists: dict[str, str] = dict(re.findall(r"^(\w+) := (.*)$", TEXT, re.MULTILINE))
    return re.sub(r"\$\((\w+)\)", lambda found: lists[found[1]], text).split()


def test_bench_is_every_bench() -> None:
    found = re.search(r"^bench: (.*?) ##", TEXT, re.MULTILINE)
    assert found and set(_expanded(found[1])) == BENCHES and len(BENCHES) > 10


def test_no_target_is_a_file_and_one_list_says_so() -> None:
    lists = re.findall(r"^\.PHONY: (.*)$", TEXT, re.MULTILINE)
    assert len(lists) == 1 and sorted(_expanded(lists[0])) == sorted(TARGETS)

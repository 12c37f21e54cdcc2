# SPDX-License-Identifier: GPL-2.0-or-later
"""What the documentation says of the tree is so: the tests that keep the promises of safety.md exist."""

import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
SAFETY = (TOP / "Documentation/safety.md").read_text()
NAMED = re.findall(r"`(tests/[a-z_/]+\.(?:bats|py))`(?:: \"([^\"]+)\")?", SAFETY)


def test_safety_names_tests() -> None:
    assert len(NAMED) > 30


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_promise_has_its_test(file: str, name: str) -> None:
    text = (TOP / file).read_text()
    assert not name or f'@test "{name}"' in text, f"safety.md: {file} has no test '{name}'"


@pytest.mark.parametrize("target", re.findall(r"`make ([a-z-]+)`", SAFETY))
def test_a_promise_has_its_make_target(target: str) -> None:
    assert re.search(rf"^{target}:", (TOP / "Makefile").read_text(), re.MULTILINE)

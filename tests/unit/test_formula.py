# SPDX-License-Identifier: GPL-2.0-or-later
"""The formula language of profiles."""

import pytest

from fabtune.errors import InputError
from fabtune.model.formula import evaluate, variables

PATH = {"rtt": 0.05, "rate": 125e6, "bdp": 6.25e6}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * bdp", 12.5e6),
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 4 - 3", 3),
        ("8 / 4 / 2", 1),
        ("max(4 * bdp, 6MiB)", 25e6),
        ("min(1MiB, 4KiB, 9)", 9),
        ("if(bdp > 256KiB, 0, 512KiB)", 0),
        ("if(bdp < 256KiB, 0, 512KiB)", 524288),
        ("pow2(100)", 128),
        ("pow2(128)", 128),
        ("pow2(0)", 1),
        ("full_queue(32, 256KiB, 8MiB)", 4),
        ("ceil(1.2) + floor(1.8)", 3),
        ("50ms + 1s", 1.05),
        ("1gbit", 125e6),
        ("1 < 2 and 3 < 2 or 1 == 1", 1),
        ("1 < 2 and 3 < 2", 0),
        ("1 != 1 or 2 >= 3", 0),
    ],
)
def test_value(text: str, value: float) -> None:
    assert evaluate(text, PATH) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2 *", "expected a number, a name or '('"),
        ("", "found 'nothing'"),
        ("2 bdp", "cannot read 'bdp'"),
        ("bpd", "unknown name 'bpd'; known here: bdp, rate, rtt"),
        ("1 / 0", "divides by zero"),
        ("full_queue(32, 256KiB, 0)", "divides by zero"),
        ("max(1)", "takes 2 to 16 arguments, found 1"),
        ("max(1, 2", "expected ')'"),
        ("5 parsec", "cannot read 'parsec'"),
        ("5parsec", "no known unit"),
        ("__import__(1)", "unknown name '__import__'"),
        ("(" * 100 + "1", "nested deeper"),
        ("1+" * 300 + "1", "at most 400"),
        ("9" * 309 + "* 9", "not a finite number"),
        ("-1", "expected a number"),
        (f"ceil({'9' * 155} * {'9' * 155})", "the result is too large"),
    ],
)
def test_error_names_the_place_and_the_problem(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        evaluate(text, PATH, "wan.toml: [both.x]")
    assert problem in str(caught.value)
    assert "wan.toml: [both.x]" in str(caught.value)


def test_names_leaves_out_functions_and_units() -> None:
    assert variables("if(bdp > 256KiB and rtt > 5ms, pow2(queue), 1)") == {"bdp", "rtt", "queue"}

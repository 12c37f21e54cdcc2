# SPDX-License-Identifier: GPL-2.0-or-later
"""A record that says what nothing can be is refused by its key, or reported: no number in it ends in a traceback."""

import copy
import gzip
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from run_records import make_record

from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError
from fabtune.measure import recordfile
from fabtune.model import runrecord
from fabtune.model.runrecord import RunRecord
from fabtune.report import compare, runs, suite, verdict_table

BEFORE = Path(__file__).parent / "data/record-1.run.json.gz"
ODD: tuple[Any, ...] = (
    0,
    -1,
    1,
    0.5,
    1e-300,
    1e300,
    -1e300,
    2**64,
    10**400,
    float("nan"),
    None,
    "",
    "x",
    "0",
    "-1",
    "1e999",
    [],
    {},
    True,
)
NUMBER = (int, float, str)


def made() -> Any:
    """A whole record: of a disk over a session with a path, whose counters are all there."""
    document = json.loads(gzip.decompress(BEFORE.read_bytes()))
    document["path"] = {"rtt_ms": 20.0, "rate_bytes_per_s": 1.25e8, "mtu": 1500, "framing_bytes": 14}
    document["environment"]["settings"] = {"seed": 1, "threads": 4, "loss": 0.1}
    negotiated = {"FirstBurstLength": "65536", "MaxBurstLength": "262144", "MaxXmitDataSegmentLength": "262144",
                  "MaxOutstandingR2T": "1", "ImmediateData": "Yes", "InitialR2T": "Yes"}  # fmt: skip
    for step in document["steps"]:
        for edge in ("before", "after"):
            step[edge]["negotiated"] = {"1": negotiated}
            step[edge]["iscsi"] = {"1": {"scsicmd_pdus": 5 if edge == "before" else 5000, "r2t_pdus": 9}}
    return document


def places(value: Any, here: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield where each plain value of a document stands."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*here, key))
    elif isinstance(value, NUMBER):
        yield here


def put(document: Any, place: tuple[str | int, ...], value: object) -> None:
    for key in place[:-1]:
        document = document[key]
    document[place[-1]] = value


def shown(sound: RunRecord, odd: RunRecord) -> None:
    """Let everything look at a record that is made up of sound and odd values."""
    others = [sound, odd, attrs.evolve(odd, label="other", file="c")]
    suite.render(others, [], [], ["fabtune"])
    json.dumps(runs.as_json(odd), allow_nan=False)
    for sides in (([sound, sound], [odd, odd]), ([odd, sound], [sound])):
        outcome = compare.compare_sets(*sides)
        verdict_table.as_json(outcome)
        verdict_table.verdict_tables(outcome)


@pytest.mark.parametrize("seed", range(4))
def test_no_value_of_a_record_ends_in_a_traceback(seed: int) -> None:
    whole, draw = made(), random.Random(seed)
    sound = attrs.evolve(runrecord.read(whole, "made"), file="a")
    alike = defaultdict(list)
    for place in places(whole):
        alike[tuple("#" if isinstance(key, int) else key for key in place)].append(place)
    kinds = list(alike.values())
    for _ in range(60):
        odd = copy.deepcopy(whole)
        changes = [(draw.choice(draw.choice(kinds)), draw.choice(ODD)) for _ in range(draw.choice((1, 1, 2, 3)))]
        for place, value in changes:
            put(odd, place, value)
        try:
            record = attrs.evolve(runrecord.read(odd, "odd"), file="b")
            shown(sound, record)
        except FabtuneError:
            continue
        except Exception as error:
            pytest.fail(f"{changes}: {error!r}")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("path", "rate_bytes_per_s"), 0), (("path", "rate_bytes_per_s"), -1), (("path", "rtt_ms"), -5),
        (("path", "mtu"), 52), (("path", "framing_bytes"), -1500), (("steps", 0, "depth"), -1),
        (("steps", 0, "parameters", "block_bytes"), 0), (("steps", 0, "parameters", "block_bytes"), "x"),
        (("steps", 0, "parameters", "total_bytes"), "1e999"), (("environment", "settings", "threads"), float("nan")),
    ],
)  # fmt: skip
def test_what_a_bound_divides_by_is_refused_by_its_key(
    place: tuple[str | int, ...], value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rate of 0 was a ZeroDivisionError in `report` and in `compare`."""
    odd = made()
    put(odd, place, value)
    paths = [tmp_path / f"{name}{recordfile.SUFFIX}" for name in "ab"]
    recordfile.write(make_record(100.0), paths[0])
    paths[1].write_bytes(gzip.compress(json.dumps(odd).encode()))
    assert main(["report", str(tmp_path)]) == ExitCode.FAILED
    assert f"b.run.json.gz: key '{place[0]}" in capsys.readouterr().err
    assert main(["compare", *map(str, paths)]) == ExitCode.USAGE


@pytest.mark.parametrize("key", ["MaxBurstLength", "MaxOutstandingR2T", "FirstBurstLength"])
def test_a_burst_of_nothing_is_none(key: str) -> None:
    odd = made()
    for step in odd["steps"]:
        step["before"]["negotiated"]["1"][key] = "0"
    shown(runrecord.read(made(), "made"), runrecord.read(odd, "odd"))


@pytest.mark.parametrize("mtu", ["0", "52", "-1", "1e9", "70000"])
def test_what_would_not_be_read_is_not_measured(mtu: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "xdd", "--on", str(tmp_path), "--mtu", mtu]) == ExitCode.USAGE
    assert "expected bytes from 68 to 65536, such as 1500" in capsys.readouterr().err

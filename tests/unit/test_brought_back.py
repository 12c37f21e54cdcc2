# SPDX-License-Identifier: GPL-2.0-or-later
"""What somebody has set stays as he has it where the kernel moves it beside a value that is written or goes back."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hosttree
import pytest
from processes import in_child

from fabtune import backends
from fabtune.cli.main import main
from fabtune.errors import UnsupportedError
from fabtune.host import tree
from fabtune.model.device import Device
from fabtune.tune import journal

_QUEUE = "sys/block/sd1/queue"
_TAGS = 113
_BOUND = '[initiator."block.{}"]\n{} = {}\nwhy = "a test"\n'
_ROWS = (("scheduler", "value", '"none"'), ("max_sectors_kb", "value", "512"), ("add_random", "value", "false"))
_BY_HAND = {"nr_requests": "64", "read_ahead_kb": "4096", "wbt_lat_usec": "75000"}
_BEFORE = {"max_sectors_kb": "1280", "add_random": "1", **_BY_HAND}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tree of a host whose kernel sets values of a disk anew when others are written, as it does."""
    root = hosttree.make(tmp_path / "root", 1)
    hosttree.enter(root, monkeypatch)
    hosttree.put(root / "sys/block/sd1/mq/0/nr_tags", str(_TAGS))
    for name, value in _BEFORE.items():
        hosttree.put(root / _QUEUE / name, value)
    attributes = backends.get("attribute")
    real = attributes.write

    def write(device: Device, key: str, value: str) -> None:
        name = key.removeprefix("queue/")
        scheduler = tree.read_text(root / _QUEUE / "scheduler") or ""
        if name == "nr_requests" and "[none]" in scheduler and int(value) > _TAGS:
            raise UnsupportedError(f"the kernel refuses {key}={value}")
        if name == "scheduler":
            hosttree.put(root / _QUEUE / name, f"[{value}] {'mq-deadline' if value == 'none' else 'none'}")
            put(root, nr_requests=str(_TAGS if value == "none" else 2 * _TAGS), wbt_lat_usec="2000")
        else:
            real(device, key, value)
        if name in ("max_sectors_kb", "add_random"):
            put(root, read_ahead_kb="128")

    monkeypatch.setattr(attributes, "write", write)
    return root


def put(host: Path, **values: str) -> None:
    for name, value in values.items():
        hosttree.put(host / _QUEUE / name, value)


def now(host: Path, *names: str) -> dict[str, str]:
    return {name: tree.read_text(host / _QUEUE / name) or "" for name in names or ("nr_requests", "read_ahead_kb")}


def apply(host: Path, *more: tuple[str, str, str], rows: tuple[tuple[str, str, str], ...] = _ROWS) -> int:
    profile = host.parent / "mine.toml"
    profile.write_text('summary = "a test"\n' + "".join(_BOUND.format(*row) for row in (*rows, *more)))
    return main(["apply", str(profile), "--role", "initiator", "--rtt", "1ms", "--rate", "1gbit", "--json"])


def told(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str, str]]:
    """Return what apply remarks: tunable, its value, and why."""
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return [(one["tunable"], one["now"], one["note"]) for one in found["remarks"]]


def test_what_was_set_by_hand_is_there_after_apply_and_after_revert(
    host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert apply(host) == 0
    assert now(host) == {"nr_requests": "64", "read_ahead_kb": "4096"}
    assert told(capsys) == []
    assert main(["verify"]) == 0
    assert main(["revert"]) == 0
    assert now(host, *_BEFORE) == _BEFORE
    assert [one.state for one in journal.transactions()] == ["taken back"]


def test_what_cannot_go_back_is_said(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(host, nr_requests="1024")
    assert apply(host) == 0
    assert told(capsys) == [
        ("block.nr_requests", "113", "was 1024 before block.scheduler was written, and reads 113: "
         "the kernel refuses queue/nr_requests=1024")
    ]  # fmt: skip
    assert main(["revert"]) == 0
    assert now(host)["nr_requests"] == "1024"


@pytest.mark.parametrize(("before", "after"), [("mq-deadline", "none"), ("none", "mq-deadline")])
def test_what_nobody_has_set_is_left_to_the_kernel(
    host: Path, capsys: pytest.CaptureFixture[str], before: str, after: str
) -> None:
    depths = {"none": str(_TAGS), "mq-deadline": str(2 * _TAGS)}
    put(host, scheduler=f"[{before}] {after}", nr_requests=depths[before])
    assert apply(host, rows=(("scheduler", "value", f'"{after}"'),)) == 0
    assert told(capsys) == []
    assert now(host, "nr_requests", "wbt_lat_usec") == {"nr_requests": depths[after], "wbt_lat_usec": "2000"}


@pytest.mark.parametrize(
    ("row", "found"),
    [(("nr_requests", "value", "32"), "32"), (("nr_requests", "at_least", "100"), "113"),
     (("nr_requests", "at_most", "64"), "64"), (("nr_requests", "at_most", "256"), "64")],
)  # fmt: skip
def test_what_the_profile_sets_is_as_it_says(host: Path, row: tuple[str, str, str], found: str) -> None:
    assert apply(host, row) == 0
    assert now(host)["nr_requests"] == found
    assert main(["revert"]) == 0
    assert now(host, *_BEFORE) == _BEFORE


def test_what_somebody_set_since_is_his_after_a_revert(host: Path) -> None:
    apply(host)
    put(host, nr_requests="96", read_ahead_kb="8192")
    assert main(["revert"]) == 3
    assert now(host, "add_random", "nr_requests", "read_ahead_kb") == {
        "add_random": "1", "nr_requests": "96", "read_ahead_kb": "8192",
    }  # fmt: skip
    assert main(["revert", "--force"]) == 0
    assert now(host, *_BEFORE) == _BEFORE


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_a_kill_at_any_point_leaves_what_a_revert_puts_right(host: Path, verb: str) -> None:
    def does(action: Callable[[], object], killed: int) -> bool:
        return in_child(action, f"kill:{killed}") == -signal.SIGKILL

    killed = 1
    while does(lambda: apply(host) if verb == "apply" else main(["revert"]), killed) or (
        verb == "revert" and killed == 1
    ):
        main(["revert"])
        assert now(host, *_BEFORE) == _BEFORE, killed
        assert "[mq-deadline]" in (host / _QUEUE / "scheduler").read_text(), killed
        if verb == "revert":
            apply(host)
        killed += 1
    assert killed > 10

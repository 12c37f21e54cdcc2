# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""What `fabtune tune` says it wrote, what takes exactly that back, and what it found of the path."""

import contextlib
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from test_trial import host
from tuned_looks import Make, climber, no_path, paced_line, seen

from fabtune.autotune import path_found as finding
from fabtune.autotune import step as stepping
from fabtune.autotune.climb import climb
from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.made import Made, take_back_commands
from fabtune.autotune.path_found import path_found
from fabtune.autotune.view import View
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli import autotune as cli
from fabtune.cli import console
from fabtune.cli.main import main
from fabtune.errors import FabtuneError
from fabtune.measure import own_load
from fabtune.model import typed
from fabtune.model.device import Device
from fabtune.model.observation import Observation
from fabtune.tune.plan import CHANGE, Row

__all__ = ["climber", "host", "no_path"]


def made(end: str, transaction: str, where: str = "", **values: str) -> Made:
    """A transaction that wrote these windows, by device."""
    window = shipped_catalog().tunables["iscsi.tcp_window"]
    rows = [
        Row(window, end, Device("record", device, device), "524288", new, CHANGE, "why")
        for device, new in values.items()
    ]
    return Made(end, where, transaction, tuple(rows))


def test_exactly_the_steps_that_stay_are_taken_back_the_newest_first_and_other_hosts_before_this_one() -> None:
    first = (made("target", "T1", "storage.example"), made("initiator", "I1"))
    second = (made("target", "T2"), made("initiator", "I2"))
    assert take_back_commands([first, second]) == [
        "ssh storage.example fabtune revert --transaction T1",
        "fabtune revert --transaction T2",
        "fabtune revert --transaction I2",
        "fabtune revert --transaction I1 --reconnect",
    ]
    assert take_back_commands([]) == []


def test_new_connections_come_with_what_takes_steps_back_only_where_one_of_them_is_felt_by_such() -> None:
    """A pace that stayed was taken back with a pause of all sessions, and with what others had left due."""
    pace = shipped_catalog().tunables["connection.pacing"]
    row = Row(pace, "initiator", Device("connection", "portal", "portal"), "0", "1", CHANGE, "why")
    paced, windows = (Made("initiator", "", "I1", (row,)),), (made("target", "T2", "storage.example", eth0="1"),)
    assert take_back_commands([paced]) == ["fabtune revert --transaction I1"]
    assert take_back_commands([paced, windows])[-1] == "fabtune revert --transaction I1 --reconnect"


def test_a_step_says_what_it_wrote_where_and_what_that_was_before(
    climber: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    climber([seen(10, "receive-window"), seen(20, "line")])

    def write(self: stepping.TuningStep) -> None:
        self.ends += [made("target", "T1", "storage.example"), made("initiator", "I1", sda="0")]

    monkeypatch.setattr(stepping.TuningStep, "_write", write)
    said: list[str] = []
    found = climb(ClimbAsked((), None, None, 4.0, 8), said.append)
    told = cli._as_json(found)
    (step,) = found.steps
    assert step.as_json()["transactions"] == [
        {"end": "target", "host": "storage.example", "transaction": "T1"},
        {"end": "initiator", "host": None, "transaction": "I1"},
    ]
    assert step.as_json()["values"] == [
        {"end": "initiator", "host": None, "tunable": "iscsi.tcp_window", "device": "sda", "old": "524288", "new": "0"}
    ]
    both = ["ssh storage.example fabtune revert --transaction T1", "fabtune revert --transaction I1 --reconnect"]
    assert told["take_back"] == both
    assert f"step 1 stays; `{both[0]}` and `{both[1]}` take it back" in said
    cli._show(found)
    shown = capsys.readouterr().out
    assert all(f"\n    {one}\n" in shown for one in both) and "`fabtune revert --reconnect`" not in shown


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("error", "kind"), [(FabtuneError("nothing moves"), "failed"), (KeyboardInterrupt(), "interrupted")]
)
def test_what_is_interrupted_is_one_document_with_its_error(
    climber: Make, capsys: pytest.CaptureFixture[str], error: BaseException, kind: str
) -> None:
    climber([seen(10, "receive-window"), seen(20, "send-buffer"), error])
    code = main(["tune", "--yes", "--json", "--for", "4s"])
    told = json.loads(capsys.readouterr().out)
    assert (told["error"]["kind"], told["error"]["exit_code"]) == (kind, code)
    assert [one["kept"] for one in told["steps"]] == [True]


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("error", [FabtuneError("the load has ended by itself"), KeyboardInterrupt()])
def test_what_stays_is_told_though_the_load_of_its_own_is_found_dead_at_the_end(
    climber: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    climber([seen(10, "receive-window"), seen(20, "line")])

    @contextlib.contextmanager
    def loaded(_: object) -> Iterator[None]:
        yield
        raise error

    monkeypatch.setattr(cli, "_own_load", lambda _: object())
    monkeypatch.setattr(own_load, "loaded", loaded)
    main(["tune", "--yes", "--json", "--for", "4s", "--on", "sda", "--with", "xdd"])
    told = json.loads(capsys.readouterr().out)
    assert told["error"] and [one["kept"] for one in told["steps"]] == [True] and "take_back" in told


@pytest.mark.parametrize(("answer", "code"), [("n\n", 0), ("", 130)])
def test_an_answer_of_no_and_none_at_all_are_documents_too(
    host: Path, climber: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    answer: str, code: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(console, "interactive", lambda: True)
    monkeypatch.setattr(console, "ask", lambda _: answer)
    words = [str(host.parent / "mine.toml"), "--role", "initiator", "--rtt", "1ms", "--rate", "1gbit"]
    told = []
    for verb in (["tune", "--for", "4s"], ["apply", *words]):
        assert main([*verb, "--json"]) == code
        said = capsys.readouterr()
        told.append(json.loads(said.out))
        assert "nothing was changed" in said.err
    if code:
        assert [one["error"]["message"] for one in told] == 2 * ["no answer; nothing was changed"]
        return
    assert told[0]["ended"] == "nothing was changed" and (told[1]["transaction"], told[1]["written"]) == (None, [])
    # The keys are those of a tune, and of an apply, that was agreed to.
    climber([seen(10, "line")])
    for verb, one in zip((["tune", "--for", "4s"], ["apply", *words]), told, strict=True):
        main([*verb, "--json", "--yes"])
        assert json.loads(capsys.readouterr().out).keys() == one.keys()


def test_what_a_look_shows_of_the_path_is_said_with_how_far_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = json.loads(gzip.decompress((Path(__file__).parent / "data/observations.json.gz").read_bytes()))
    observed = typed.STRICT.read(Observation, kept["wan-read"], "wan-read")
    view = attrs.evolve(paced_line(None), seen=(observed,), sent_again_shares=(0.05, 0.06))
    monkeypatch.setattr(View, "shown", finding_shown(view))
    found = path_found(view)
    assert found.of == observed.device and found.rtt_least_ms == observed.rtt_ms
    assert (found.rtt_least_ms or 0) <= (found.rtt_median_ms or 0) <= (found.rtt_most_ms or 0)
    assert (found.arrived_bit_per_s or 0) <= (found.arrived_most_bit_per_s or 0)
    assert (found.sent_again_least_share, found.sent_again_most_share) == pytest.approx((0.0, 0.01))
    assert found.mss_bytes and f"MSS {found.mss_bytes} bytes" in found.in_words
    assert set(found.as_json()) == {one.name for one in attrs.fields(finding.PathFound)}


def finding_shown(view: View) -> object:
    """Return what the senders of a view show, which `no_path` keeps from it."""
    from fabtune.autotune.shown_line import shown_line

    return shown_line(view.main_ways)


def test_what_no_look_shows_of_the_path_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    found = path_found(seen(10, "line"))
    assert found.in_words == "" and set(found.as_json().values()) == {"sda", None}


def test_below_each_step_stands_what_was_written_with_what_it_was_before(
    climber: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table had names alone: what tune had chosen stood in --json, and nowhere else."""
    monkeypatch.setenv("COLUMNS", "80")
    climber([seen(10, "receive-window"), seen(20, "line")])
    most = Row(
        shipped_catalog().tunables["tcp.rmem_max"], "initiator", Device("netns", "init", "this host"), "6291456",
        "33554432", CHANGE, "why",
    )  # fmt: skip
    four = made("initiator", "I1", sda="0", sdb="0", sdc="0", sdd="0")

    def write(self: stepping.TuningStep) -> None:
        self.ends += [made("target", "T1", "storage.example", tpg="0"), attrs.evolve(four, rows=(*four.rows, most))]
        self.written += ["target: iscsi.tcp_window", "initiator: iscsi.tcp_window", "initiator: tcp.rmem_max"]
        self.pause_s = 1.3

    monkeypatch.setattr(stepping.TuningStep, "_write", write)
    cli._show(climb(ClimbAsked((), None, None, 4.0, 8), lambda _: None))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and lines[2].split()[:2] == ["1", "receive-window"]
    assert lines[3:6] == [
        "    target, storage.example: iscsi.tcp_window 512 KiB -> 0 bytes (tpg)",
        "    initiator: iscsi.tcp_window 512 KiB -> 0 bytes (sda, sdb, sdc and 1 more)",
        "    initiator: tcp.rmem_max 6 MiB -> 32 MiB",
    ]

# SPDX-License-Identifier: GPL-2.0-or-later
"""What the module tells of single requests: stuck ones, the slowest, and what is recorded on demand."""

import json
import time
from pathlib import Path

import pytest
from test_stat import bucket, reading

from fabtune.cli import stat_output
from fabtune.cli.main import main
from fabtune.cli.slow_output import print_recorded, recorded_json
from fabtune.errors import InputError
from fabtune.stat import Waiting, diff, parse, since_seen
from fabtune.stat.slowest import parse_slowest, slowest
from fabtune.stat.stuck import parse_stuck, stuck

DETAIL = (
    "detail id=4 op=read time=wait sum_ns=3000 count=2 {}:2\n"
    "detail id=4 op=read size=4KiB sum_ns=0 count=2 {}:2\n"
    "detail id=4 op=read size=64MiB sum_ns=0 count=2 3:2\n"
)


def test_details_are_read_and_subtract(capsys: pytest.CaptureFixture[str]) -> None:
    plain = parse(reading([1500, 1500]))
    told = parse(reading([1500, 1500], time_ns=3_000_000_000) + DETAIL.format(bucket(1500), bucket(9000)))
    assert dict(plain.devices[0].ops["read"].details) == {}
    details = told.devices[0].ops["read"].details
    assert details["wait"].count == 2 == details["4KiB"].count
    # Switched on between two readings, and on at both.
    assert diff(plain, told).device("sda").ops["read"].details["wait"].count == 2
    assert diff(told, told).device("sda").ops["read"].details["wait"].count == 0
    print_recorded(since_seen(told).device("sda"), None, asked=False)
    shown = capsys.readouterr().out
    assert "before issue" in shown and "up to 4 KiB" in shown


def test_of_what_took_longer_than_the_last_bucket_s_begin_that_is_all_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A write of two hours took "1.1e+06" ms, "at most 3.2 % off", in each table but one."""
    hours_ns = 7_200_000_000_000
    found = parse(reading([hours_ns]) + DETAIL.format(bucket(1500), bucket(hours_ns)))
    one = since_seen(found).device("sda")
    print_recorded(one, None, asked=False)
    assert "> 1099512" in capsys.readouterr().out
    stat_output.print_table(since_seen(found), [one], found)
    assert capsys.readouterr().out.count("> 1099512") == 3
    told = recorded_json(one, None)["detail"]["read"]["4KiB"]
    assert told["max"] == pytest.approx(2**40 / 1e6) and told["max_error"] is None


SLOW = (
    "# fabstat-slowest 1\nlist kept=16 time_ns=9\n"
    "slow id=4 disk=sda op=read time_ns=5 total_ns=301000000 device_ns=1000000 wait_ns=20000 sector=8 bytes=4096 "
    "queue=0 cpu=1 error=- sent_back=2 reasons=target_busy,task_set_full\n"
    "slow id=4 disk=sda op=write time_ns=6 total_ns=200 device_ns=200 wait_ns=0 sector=16 bytes=4096 "
    "queue=0 cpu=- error=error_medium sent_back=0 reasons=-\n"
)


def test_the_slowest_requests_say_what_refused_them(capsys: pytest.CaptureFixture[str]) -> None:
    found = parse_slowest(SLOW)
    first, second = found.requests
    assert first.reasons == ("target_busy", "task_set_full") and first.cpu == 1 and first.error == ""
    assert second.cpu is None and second.error == "error_medium" and second.reasons == ()
    one = since_seen(parse(reading([1500]))).device("sda")
    print_recorded(one, found, asked=False)
    shown = capsys.readouterr().out
    assert "sent back 2 times: target_busy" in shown and "error_medium" in shown
    assert [row["total_ms"] for row in recorded_json(one, found)["slowest"]] == [301.0, 0.0002]
    for cut in (SLOW[:30], SLOW.replace("sector=8", "sector=x"), SLOW.replace("-slowest 1", "-slowest 2")):
        with pytest.raises(InputError):
            parse_slowest(cut)


def test_the_slowest_requests_say_when_they_were_and_how_many_refusals_are_not_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Yesterday's stood there as if it were today's, and of 3,000 refusals the first eight as if they were all."""
    text = SLOW.replace("time_ns=9\n", "time_ns=7205000000000\n")
    text = text.replace("op=read time_ns=5 ", "op=read time_ns=5000000000 ").replace(
        "op=write time_ns=6 ", "op=write time_ns=7202500000000 "
    )
    text = text.replace("sent_back=2 reasons=target_busy,task_set_full", "sent_back=3000 reasons=" + 8 * ",busy")
    kept = parse_slowest(text.replace("=,busy", "=busy").replace("sent_back=0 reasons=-", "sent_back=1 reasons=-"))
    monkeypatch.setattr("fabtune.cli.stat.snapshot", lambda: parse(reading([1500])))
    monkeypatch.setattr("fabtune.cli.stat.slowest", lambda: kept)
    assert main(["stat", "sda"]) == 0
    shown = capsys.readouterr().out
    told = " ".join(shown.split())
    assert "Slowest requests while detail was on" in told and "first seen" not in told
    assert "sent back, first 8 of 3000: 8 x busy" in told and "error_medium; sent back once" in told
    ago = [line.split()[0] for line in shown.splitlines() if " read 8 " in " ".join(line.split()) or " write " in line]
    assert ago == ["7200", "2.5"]
    assert main(["stat", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["devices"][0]["slowest"]
    assert [one["age_s"] for one in found] == [7200, 2.5]


def test_a_module_without_a_list_of_the_slowest_has_none(tmp_path: Path) -> None:
    (tmp_path / "stats").write_text(reading([1500]))
    assert slowest(tmp_path) is None


def test_a_request_from_before_load_may_be_of_unknown_age() -> None:
    text = (
        "# fabstat-stuck 1\nlist time_ns=9 threshold_ns=60000000000 requests=1\n"
        "stuck id=0 disk=sda dev=8:0 op=read sector=8 bytes=4096 age_ns={} state=before_load issue_age_ns=0 "
        "sent_back=0\n"
    )
    assert [one.age_ns for one in parse_stuck(text.format(0)).requests] == [None]
    assert [one.age_ns for one in parse_stuck(text.format(5)).requests] == [5]
    assert [one.age_ns for one in parse_stuck(text.format(0).replace("before_load", "in_flight")).requests] == [0]


def test_the_stuck_list_is_read_and_a_damaged_one_refused() -> None:
    text = (
        "# fabstat-stuck 1\nlist time_ns=9 threshold_ns=60000000000 requests=1\n"
        "stuck id=4 disk=sda dev=8:0 op=read sector=8 bytes=4096 age_ns=61000000000 state=sent_back issue_age_ns=0 "
        "sent_back=2\n"
    )
    (one,) = parse_stuck(text).requests
    assert (one.disk, one.sector, one.sent_back, one.state) == ("sda", 8, 2, "sent_back")
    for cut in (text[:30], text.replace("age_ns=6", "age_ns=x"), "# other 1\n"):
        with pytest.raises(InputError):
            parse_stuck(cut)


def test_a_blank_in_a_disk_s_name_takes_nothing_away() -> None:
    """The module does not escape it in these lists, and neither of them could be read any more."""
    text = (
        "# fabstat-stuck 1\nlist time_ns=9 threshold_ns=1 requests=2\n"
        "stuck id=4 disk=my own\\302\\240disk dev=8:0 op=read sector=8 bytes=4096 age_ns=6 state=sent_back "
        "issue_age_ns=0 sent_back=2\nstuck id=5 disk=sda dev=8:0 op=read sector=8 bytes=4096 age_ns=5 "
        "state=sent_back issue_age_ns=0 sent_back=2\n"
    )
    assert [one.disk for one in parse_stuck(text).requests] == ["my own\\240disk", "sda"]
    assert [one.disk for one in parse_slowest(SLOW.replace("disk=sda", "disk=my disk", 1)).requests] == [
        "my disk",
        "sda",
    ]
    with pytest.raises(InputError):
        parse_stuck(text.replace("stuck id=4 ", "stuck 4 "))


def test_a_request_of_unknown_age_is_listed_if_it_is_there_for_longer_than_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a queue without I/O statistics one that just ended was "before load", for an unknown time."""
    line = "stuck id=4 disk=sda dev=8:0 op=read sector={} bytes=4096 age_ns={} state={} issue_age_ns=0 sent_back=0\n"
    head = "# fabstat-stuck 1\nlist time_ns=9 threshold_ns=60000000000 requests=3\n"
    known, hangs = line.format(0, 61_000_000_000, "before_load"), line.format(8, 0, "before_load")
    path = tmp_path / "stuck"
    path.write_text(head + known + hangs + line.format(16, 0, "before_load"))
    monkeypatch.setattr(time, "sleep", lambda seconds: path.write_text(head + line.format(24, 0, "untracked") + hangs))
    assert [one.sector for one in stuck(tmp_path).requests] == [0, 8]
    # What is known is not asked for twice.
    path.write_text(head + known)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("nothing was to be waited for"))
    assert [one.sector for one in stuck(tmp_path).requests] == [0]


def test_of_a_stuck_request_only_what_is_known_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One from before the load was "issued 0.0 s" ago and "sent back 0" times; one that was sent back, issued now."""
    states = {"in_flight": ("61.5", "2"), "sent_back": ("-", "2"), "before_load": ("-", "-"), "untracked": ("-", "-")}
    text = "# fabstat-stuck 1\nlist time_ns=9 threshold_ns=60000000000 requests=4\n" + "".join(
        f"stuck id=4 disk=sda dev=8:0 op=read sector={number} bytes=4096 age_ns=62000000000 state={state} "
        f"issue_age_ns={61_500_000_000 if state == 'in_flight' else 0} sent_back={2 if told[1] == '2' else 0}\n"
        for number, (state, told) in enumerate(states.items())
    )
    found = parse_stuck(text)
    monkeypatch.setattr("fabtune.cli.stat.snapshot", lambda: parse(reading([1500])))
    monkeypatch.setattr("fabtune.cli.stat.stuck", lambda: found)
    monkeypatch.setattr("fabtune.cli.stat.unsent", lambda *asked: Waiting())
    assert main(["stuck"]) == 0
    rows = [line.replace("_", " ") for line in capsys.readouterr().out.splitlines() if " 4096 " in line]
    assert [
        tuple(row.split(state.replace("_", " "))[1].split()[:2]) for row, state in zip(rows, states, strict=True)
    ] == [*states.values()]
    assert main(["stuck", "--json"]) == 0
    told = [(one["issue_age_ms"], one["sent_back"]) for one in json.loads(capsys.readouterr().out)["requests"]]
    assert told == [(61_500.0, 2), (None, 2), (None, None), (None, None)]

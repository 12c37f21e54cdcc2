# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of a time: means of LUNs that came at different times, limits that came meanwhile, and counters that wrap."""

import json
from pathlib import Path

import pytest
from test_stat import reading
from test_stat_target import INITIATOR, served

from fabtune.cli.main import main
from fabtune.errors import InputError
from fabtune.stat import diff, host_loads, parse, since_seen

S = 10**9


def other(number: int, **told: object) -> str:
    """The records of one more LUN of the same host."""
    lun = f"disk=sd{number} dev=8:{number} diskseq={number} hctl=2:0:0:{number} driver=iscsi_tcp parent=session3"
    text = reading([1000], number=number, identity=lun, **told)  # type: ignore[arg-type]
    return text[text.index("device id=") :]


def test_a_host_is_not_fuller_than_full(tmp_path: Path) -> None:
    """100 commands for an hour, and 110 of another LUN in its last 10 s alone, were 210 of 128."""
    place = tmp_path / "class/scsi_host/host2"
    place.mkdir(parents=True)
    (place / "can_queue").write_text("128\n")
    first = reading([1000], time_ns=3601 * S, depth_ns=360_000 * S).replace("ns=1000000000000 ", "ns=0 ")
    second = other(5, time_ns=3601 * S, depth_ns=1100 * S).replace("seen_ns=1000000000 ", f"seen_ns={3591 * S} ")
    (load,) = host_loads(since_seen(parse(first + second)).devices, tmp_path)
    assert load.mean_depth == pytest.approx(361_100 / 3600) and not load.full


def test_hardware_queues_that_appear_between_two_readings_do_not_bring_their_whole_past() -> None:
    """A disk was at its limit for 180,000 % of a second."""
    before = reading([1000], time_ns=3601 * S).replace("at_limit_ns=0", f"at_limit_ns={1800 * S} limit_of=device")
    after = before.replace(f"time_ns={3601 * S}", f"time_ns={3602 * S}").replace("limit_of=device", "limit_of=queue")
    queues = "".join(
        f"queue id=4 queue={number} in_flight=0 highest=3 limit=32 at_limit_ns={at_limit_ns}\n"
        for number, at_limit_ns in ((0, 1800 * S + S // 4), (1, S // 2))
    )
    one = diff(parse(before), parse(after.replace("events id=4", f"{queues}events id=4"))).device("sda")
    assert one.at_limit == 0.5 and [queue.at_limit_ns for queue in one.queues] == [S // 4, S // 2]


@pytest.mark.parametrize("queues", [0, 3])
def test_a_mean_depth_whose_integral_may_have_wrapped_is_not_told(queues: int) -> None:
    """900 in flight for 40 days were a mean depth of 0."""
    days = 40 * 86400 * S
    modulus = int(2**64 * 0.3333)
    text = reading([1000], time_ns=days + S, depth_ns=900 * days)
    text = text.replace("depth_modulus_ns=1000000000000", f"depth_modulus_ns={modulus}").replace(
        "highest=3", "highest=901"
    )
    if queues:
        text = text.replace("highest=901", "highest=301").replace("at_limit_ns=0\n", "at_limit_ns=0 limit_of=queue\n")
        text += "".join(
            f"queue id=4 queue={one} in_flight=0 highest=301 limit=400 at_limit_ns=0\n" for one in range(queues)
        )
    one = since_seen(parse(text)).device("sda")
    assert one.mean_depth is None and one.depth_error_ns is not None
    # Of a short time it is.
    later = text.replace(f"time_ns={days + S}", f"time_ns={days + 2 * S}")
    later = later.replace(f"depth_ns={900 * days}", f"depth_ns={900 * days + 90 * S}")
    assert diff(parse(text), parse(later)).device("sda").mean_depth == pytest.approx(90)


def test_sums_of_times_go_on_at_nothing_behind_the_last_word_of_64_bits() -> None:
    """They were refused as damage."""
    before = reading([1000]).replace("device_ns=1000 total_ns=1000", f"device_ns={2**64 - 5} total_ns={2**64 - 5}")
    after = reading([1000] * 2, time_ns=3 * S).replace("device_ns=2000 total_ns=2000", "device_ns=995 total_ns=995")
    read = diff(parse(before), parse(after)).device("sda").ops["read"]
    assert read.device_ns == read.total_ns == 1000
    with pytest.raises(InputError, match="device_ns.*smaller in the second reading"):
        diff(parse(reading([1000])), parse(reading([1000], time_ns=3 * S).replace("device_ns=1000", "device_ns=999")))


def test_disks_that_went_and_are_not_kept_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 40 LUNs that were logged out together the last 16 are kept; 24 vanished without a word."""
    first = reading([1000]) + "".join(other(number) for number in range(10, 13))
    last = first[: first.index("device id=12")].replace("state=live", "state=gone")
    last = last[: last.index("device id=4")] + last[last.index("device id=11") :]
    paths = [tmp_path / name for name in ("a", "b")]
    for path, text in zip(paths, (first, last.replace("time_ns=2000000000", "time_ns=3000000000")), strict=True):
        path.write_text(text)
    assert main(["stat", "--diff", *map(str, paths)]) == 0
    assert "3 disks of the first reading have gone and are not in the second" in " ".join(
        capsys.readouterr().out.split()
    )
    assert main(["stat", "--json", "--diff", *map(str, paths)]) == 0
    assert json.loads(capsys.readouterr().out)["vanished"] == 3
    # Of what had gone before nothing can be missing.
    interval = diff(parse(first.replace("state=live", "state=gone")), parse(last.replace("time_ns=2", "time_ns=3")))
    assert interval.vanished == 0


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_what_happened_before_the_first_reading_is_none_of_the_interval_s_events(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recovery of last month was an error handler's wake-up in each interval since."""
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path, (forgotten, wakeups), time_ns in zip(paths, ((7, 5), (7, 5), (8, 6)), (2, 3, 4), strict=True):
        text = reading([1000], time_ns=time_ns * S)
        path.write_text(text.replace("forgotten=0 eh_wakeups=0", f"forgotten={forgotten} eh_wakeups={wakeups}"))
    for between, count in ((paths[:2], 0), (paths[1:], 1)):
        assert main(["stat", "sda", *words, "--diff", *map(str, between)]) == 0
        out = capsys.readouterr().out
        if words:
            (told,) = json.loads(out)["devices"]
            assert (told["forgotten"], told["eh_wakeups"]) == (count, count)
        else:
            assert f"events: {f'forgotten {count}, eh_wakeups {count}' if count else 'none'}" in out
    with pytest.raises(InputError, match="eh_wakeups smaller"):
        diff(parse(paths[2].read_text()), parse(paths[1].read_text().replace(f"time_ns={3 * S}", f"time_ns={5 * S}")))


def test_a_device_that_came_in_mid_interval_says_over_what_time_its_rates_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """10 requests of its last second were 10 IOPS above a footer of an hour."""
    before, after = tmp_path / "a", tmp_path / "b"
    before.write_text(reading([1000]))
    late = other(5, time_ns=3602 * S).replace("seen_ns=1000000000 ", f"seen_ns={3601 * S} ")
    idle = other(6, time_ns=3602 * S).replace("completed=1 ", "completed=0 ").split("op id=")[0]
    last = reading([1000] * 9, time_ns=3602 * S)
    for more, told in (
        (late, "3600 s; rates are over less of it for what was first seen later, or went: sd5 1 s."),
        ("", "3600 s."),
    ):
        after.write_text(last + more + idle.replace("seen_ns=1000000000 ", f"seen_ns={3601 * S} "))
        assert main(["stat", "--all", "--diff", str(before), str(after)]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert f" {told} Times are in ms" in out
    many = "".join(
        late.replace("id=5", f"id={number}").replace("disk=sd5", f"disk=sd{number}") for number in range(10, 16)
    )
    after.write_text(last + many)
    assert main(["stat", "--diff", str(before), str(after)]) == 0
    assert "sd13 1 s, and 2 more." in " ".join(capsys.readouterr().out.split())


def test_a_lun_that_came_in_mid_interval_says_over_what_time_its_rates_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = tmp_path / "a", tmp_path / "b"
    before.write_text(served(0).split("nexus ")[0])
    after.write_text(served(10, time_ns=12 * S).replace("seen_ns=1000000000", f"seen_ns={7 * S}"))
    assert main(["stat", "--target", "--diff", str(before), str(after)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert (
        f" 10 s; rates are over less of it for what was first seen later, or went: LUN 3 of {INITIATOR} 5 s. " in told
    )

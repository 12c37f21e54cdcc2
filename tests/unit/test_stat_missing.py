# SPDX-License-Identifier: GPL-2.0-or-later
"""What fabstat could not count for want of memory: said wherever it matters, and no figure made of the rest."""

import json
from typing import Any

import pytest
from test_stat import bucket, reading
from test_stat_target import served

from fabtune.cli import stat_output, target_output, unseen_output
from fabtune.cli.main import main
from fabtune.stat import (
    DeviceInterval,
    Histogram,
    diff,
    parse,
    parse_target,
    served_since_seen,
    since_seen,
)

MS = 1_000_000
REFUSED = 300 * MS


def refused_unseen(reads: int, *, again: int = 0, time_ns: int = 2 * 10**9, torn: int = 0) -> str:
    """`reads` of 1 ms, each refused for 300 ms before, and `again` more that were issued twice, in 30 s.

    At its ceiling the module has room for the first times alone, and says no_histogram=0 (kmod/show_histograms.c).
    """
    done = reads + again
    text = reading([MS] * done, time_ns=time_ns)
    text = text.replace("refused=0 refused_ns=0", f"refused={reads} refused_ns={reads * REFUSED}")
    text = text.replace("at_limit_ns=0", f"at_limit_ns=0 depth_error_ns=0 torn={torn}")
    direct = f"time=total count={done} {bucket(MS)}:{done}"
    assert direct in text
    if not again:
        return text
    text = text.replace(f"total_ns={done * MS}", f"total_ns={done * MS + again * 30_000 * MS}")
    return text.replace(direct, f"time=total count={reads} {bucket(MS)}:{reads}")


def shown(text: str, capsys: pytest.CaptureFixture[str], disk: str = "") -> str:
    found = parse(text)
    interval = since_seen(found)
    if disk:
        unseen_output.print_unseen(interval, interval.devices, found)
        stat_output.print_details(interval.device(disk))
    else:
        stat_output.print_table(interval, interval.devices, found)
    return " ".join(capsys.readouterr().out.split())


def percentile(one: DeviceInterval, time: str) -> float | None:
    found = one.percentile(99, "read", time)
    return found.value_ms if found else None


def test_no_percentile_is_made_of_the_times_that_were_left_over(capsys: pytest.CaptureFixture[str]) -> None:
    """Of 5,100 reads, 5,000 of which took 30 s, the total p99 was 1 ms."""
    one = since_seen(parse(refused_unseen(100, again=5000))).device("sda")
    assert percentile(one, "device") == pytest.approx(1, rel=0.04)
    assert percentile(one, "total") is None and percentile(one, "refused") is None
    histograms = one.ops["read"].histograms
    assert [histograms[time].lacking for time in ("device", "total", "refused")] == [0, 5000, 100]
    told = shown(refused_unseen(100, again=5000), capsys, "sda")
    assert "in none are: sda, read: 5000 of 5100 total times and 100 of 100 refused times" in told
    row = told[told.index("read total") :].split()[:8]
    assert row == ["read", "total", "100", "?", "?", "?", "?", "?"]
    assert "read: 5000 of 5100 total times" in shown(refused_unseen(100, again=5000), capsys)
    found = parse(refused_unseen(100, again=5000))
    stat_output.print_interval_json(since_seen(found), since_seen(found).devices, found, None, one_line=False)
    read = json.loads(capsys.readouterr().out)["devices"][0]["ops"]["read"]
    assert read["total_ms"]["p99"] is None and read["total_ms"]["missing"] == 5000
    assert read["device_ms"]["p99"] == pytest.approx(1, rel=0.04) and read["device_ms"]["missing"] == 0
    assert read["refused_ms"]["mean"] == 300


def test_total_times_that_are_left_out_are_the_device_times_only_where_their_sums_are_the_same() -> None:
    """Where each request was issued twice, and there was memory for the device times alone, there is no record."""
    text = refused_unseen(0, again=50)
    lines = [line for line in text.splitlines(keepends=True) if "time=total" not in line]
    one = since_seen(parse("".join(lines))).device("sda")
    assert percentile(one, "total") is None and one.ops["read"].histograms["total"].lacking == 50


def test_what_a_torn_reading_may_lack_is_no_want_of_memory() -> None:
    text = refused_unseen(100, torn=2).replace("refused=100", "refused=2")
    assert since_seen(parse(text)).device("sda").ops["read"].histograms["refused"].lacking == 0


def test_once_there_is_memory_again_percentiles_are_told_of_the_time_since() -> None:
    def refused(reads: int, told: int, second: int) -> str:
        histogram = f"histogram id=4 op=read time=refused count={told} {bucket(REFUSED)}:{told}\n" if told else ""
        return refused_unseen(reads, time_ns=second * 10**9) + histogram

    first, second, third = (parse(refused(*each)) for each in ((100, 0, 2), (200, 0, 3), (1200, 1000, 4)))
    assert percentile(diff(first, second).device("sda"), "refused") is None
    assert percentile(diff(second, third).device("sda"), "refused") == pytest.approx(300, rel=0.04)
    assert percentile(since_seen(third).device("sda"), "refused") is None
    # Those that ended while one of the two was read.
    late = parse(refused(1201, 1000, 4))
    assert percentile(diff(second, late).device("sda"), "refused") == pytest.approx(300, rel=0.04)


def test_two_histograms_together_lack_what_each_of_them_lacks() -> None:
    whole, short = Histogram((0, 64), {0: 5}), Histogram((0, 64), {0: 5}, 2)
    assert (whole + short).lacking == 2 and (short + whole).percentile(50) is None
    assert whole.percentile(50) is not None and (short - short).lacking == 0


def test_where_many_disks_lack_times_the_first_are_named_and_the_rest_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = refused_unseen(100)
    device = text[text.index("device id=") :]
    more = "".join(device.replace("id=4", f"id={number}").replace("sda", f"sd{number}") for number in range(10, 16))
    assert shown(text + more, capsys).count(" of 100 refused times") == 4
    assert "; and 3 more" in shown(text + more, capsys)


def test_a_target_s_times_that_are_in_no_histogram_are_no_percentiles_either(
    capsys: pytest.CaptureFixture[str],
) -> None:
    short = parse_target(served(1000).replace("count=1000 2:1000", "count=600 2:600"))
    target_output.print_served(served_since_seen(short), short, everything=False)
    told = " ".join(capsys.readouterr().out.split())
    assert "in none are 400 times" in told and " ? ? " in told
    # One a CPU that was answered while the reading was taken.
    late = parse_target(served(1000).replace("count=1000 2:1000", "count=998 2:998"))
    target_output.print_served(served_since_seen(late), late, everything=False)
    assert "in none are" not in " ".join(capsys.readouterr().out.split())


def test_requests_that_could_be_given_to_no_disk_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    text = reading([MS]).replace("untracked=0", "untracked=5000000").replace("memory_refused=0", "memory_refused=7")
    for disk in ("", "sda"):
        told = shown(text, capsys, disk)
        assert "5000000 issues, completions and requeues since fabstat was loaded were given to no disk" in told
        assert "got no memory 7 times" in told and "memory_limit_mib" in told
    assert "no requests counted" in shown(text[: text.index("device id=")], capsys)
    assert "no disk" not in shown(reading([MS]), capsys) and "no memory" not in shown(reading([MS]), capsys)


def test_no_commands_seen_is_not_said_where_they_could_not_be_counted(capsys: pytest.CaptureFixture[str]) -> None:
    for untracked, says in ((0, "no commands seen"), (500000, "no commands counted 500000 commands since")):
        text = served(0).split("nexus ")[0].replace(" untracked=0", f" untracked={untracked}")
        target_output.print_served(served_since_seen(parse_target(text)), parse_target(text), everything=False)
        assert says in " ".join(capsys.readouterr().out.split())


def test_probes_that_are_not_attached_are_no_kernel_without_tracepoints(capsys: pytest.CaptureFixture[str]) -> None:
    for missing in (" missing=-", ""):
        text = reading([MS]).replace("scsi=1", f"scsi=0{missing}")
        told = shown(text, capsys)
        assert "refusals of SCSI devices are not seen: its probes are not all attached" in told
        assert "this kernel has no" not in told


def in_detail(waits: int, small: int, *, reads: int = 10, refused: int = 3, time_ns: int = 2 * 10**9) -> str:
    """A reading of 10 reads of a disk for which memory for histograms was refused, some of their details among them."""
    text = reading([MS] * reads, time_ns=time_ns).replace("held_other timeout", "held_other no_histogram timeout")
    text = text.replace("events id=4", f"events id=4 no_histogram={refused}" if refused else "events id=4")
    text += f"detail id=4 op=read time=wait sum_ns=1 count={waits} 1:{waits}\n"
    return text + f"detail id=4 op=read size=4KiB sum_ns=0 count={small} {bucket(MS)}:{small}\n"


def details(text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, Any]:
    """Return what the verb says of one disk, and its details in JSON."""
    monkeypatch.setattr("fabtune.cli.stat.snapshot", lambda: parse(text))
    monkeypatch.setattr("fabtune.cli.stat.slowest", lambda: None)
    assert main(["stat", "sda"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert main(["stat", "--json"]) == 0
    return said, json.loads(capsys.readouterr().out)["devices"][0]["detail"].get("read")


def test_waits_and_sizes_that_may_be_in_no_histogram_make_no_percentiles(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of waits that there was no room for, the percentiles were of the rest."""
    said, told = details(in_detail(10, 4), capsys, monkeypatch)
    assert "read up to 4 KiB 4 ? ? ?" in said and "read before issue 10 0.0000960" in said
    assert "some may be in no histogram: read: up to 6 of 10 times by size" in said
    assert told["4KiB"]["p99"] is None and told["4KiB"]["missing_at_most"] == 6
    assert told["wait"]["p99"] is not None and told["wait"]["missing_at_most"] == 0
    said, told = details(in_detail(7, 10), capsys, monkeypatch)
    assert "read before issue 7 ? ? ?" in said and "up to 4 KiB 10 0.999" in said
    assert "read: up to 3 of 10 waits" in said and told["wait"]["p50"] is None
    # Where no memory was refused, the rest is of the time in which nobody asked for details.
    said, told = details(in_detail(7, 4, refused=0), capsys, monkeypatch)
    assert "?" not in said and "no histogram" not in said and told["wait"]["missing_at_most"] == 0


def test_details_without_a_single_histogram_are_said_to_be_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the ceiling nothing at all was printed, as if nothing had waited."""
    text = in_detail(1, 1)
    text = text[: text.index("detail id=4")]
    assert "no room" not in details(text, capsys, monkeypatch)[0], "nobody asked for them"
    said, _ = details(text.replace(" memory_bytes", " detail=1 memory_bytes"), capsys, monkeypatch)
    assert "waits and times by size are not shown, or not all of them: there was no room for histograms" in said


def test_once_there_is_memory_again_details_are_told_of_the_time_since() -> None:
    first, second = parse(in_detail(7, 4)), parse(in_detail(27, 24, reads=30, time_ns=3 * 10**9))
    found = diff(first, second).device("sda").ops["read"].details
    assert [found[name].lacking for name in ("wait", "4KiB")] == [0, 0]
    assert found["wait"].percentile(99) is not None

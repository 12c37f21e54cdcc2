# SPDX-License-Identifier: GPL-2.0-or-later
"""Readings of what a host served as a target: parsing, differences, and the verb that shows them."""

import json
from pathlib import Path

import pytest

from fabtune.cli import target_output
from fabtune.cli.main import main
from fabtune.errors import FabtuneError, InputError
from fabtune.stat import parse_target, served_since_seen, target_diff, target_snapshot

INITIATOR = "iqn.2026-01.example:a"


def served(
    reads: int, *, time_ns: int = 2_000_000_000, loaded_ns: int = 1, target: int = 1, wanted: int = 1, more: str = ""
) -> str:
    """A reading as the module prints it: one LUN with `reads` reads of 4 KiB, 1 ms each (bucket 2 of 3)."""
    return (
        "# fabstat-target 1\n"
        f"module version=0.2.0 enabled=1 wanted={wanted} target={target} loaded_ns={loaded_ns} time_ns={time_ns} "
        "untracked=0 crowded=0 most=16384 most_nexuses=4096 memory_refused=0\n"
        "buckets from_ns 0 1000 1000000 2000000\n"
        f"nexus id=1 fabric=iSCSI initiator={INITIATOR} isid=00023d01 target=iqn.2026-01.example:t tpg=tpgt_1 lun=3 "
        f"seen_ns=1000000000 time_ns={time_ns} at_target=2 oldest_ns=5000000 unmatched=1 untracked=0 check_condition=4 "
        "busy=0 task_set_full=5 reservation_conflict=0 task_aborted=0 other_status=0\n"
        f"op id=1 op=read started={reads + 2} completed={reads} forgotten=0 bytes={4096 * reads} "
        f"target_ns={1000000 * reads}\n"
        f"histogram id=1 op=read time=target count={reads} 2:{reads}\n" + more
    )


def test_the_difference_of_two_readings_is_what_was_served_between_them() -> None:
    interval = target_diff(parse_target(served(10)), parse_target(served(110, time_ns=3_000_000_000)))
    (lun,) = interval.luns
    assert (lun.elapsed_ns, interval.elapsed_ns) == (10**9, 10**9)
    read = lun.ops["read"]
    assert (read.started, read.completed, read.bytes, read.target_ns) == (100, 100, 409600, 10**8)
    assert read.histogram.count == 100 and lun.answers["check_condition"] == 0
    assert (lun.lun.initiator, lun.lun.isid, lun.lun.lun, lun.lun.at_target) == (INITIATOR, "00023d01", 3, 2)


def test_a_lun_that_came_between_two_readings_counts_from_its_first_command() -> None:
    before = served(0).split("nexus ")[0]
    (lun,) = target_diff(parse_target(before), parse_target(served(10))).luns
    assert lun.elapsed_ns == 10**9 and lun.ops["read"].completed == 10 and lun.answers["task_set_full"] == 5


def test_what_a_newer_module_adds_is_passed_over_and_a_damaged_text_refused() -> None:
    text = served(10, more="window id=1 granted=3\nhistogram id=1 op=read time=backstore count=1 0:1\n")
    text = text.replace(" lun=3", " lun=3 new=1").replace("count=10 2", "count=10 sum_ns=3 2")
    assert parse_target(text).luns == parse_target(served(10)).luns
    for broken in ("", "# fabstat 1\n", served(10).replace("isid=00023d01 ", ""), served(10)[:100]):
        with pytest.raises(InputError):
            parse_target(broken)
    with pytest.raises(InputError, match="different loads"):
        target_diff(parse_target(served(10)), parse_target(served(10, loaded_ns=2)))
    with pytest.raises(InputError, match="older"):
        target_diff(parse_target(served(10, time_ns=3 * 10**9)), parse_target(served(10)))


def test_a_module_that_counts_no_commands_says_so(tmp_path: Path) -> None:
    (tmp_path / "stats").write_text("# fabstat 1\n")
    with pytest.raises(FabtuneError, match="too old"):
        target_snapshot(tmp_path)
    (tmp_path / "target").write_text(served(1))
    assert target_snapshot(tmp_path).luns[0].id == 1


def test_the_table_names_initiator_and_lun_and_what_it_cannot_tell(capsys: pytest.CaptureFixture[str]) -> None:
    now = parse_target(served(10))
    target_output.print_served(served_since_seen(now), now, everything=False)
    shown = capsys.readouterr().out
    row = next(line for line in shown.splitlines() if " read " in line)
    assert row.split()[:11] == ["3", "read", "10", "0.0", "1.00", "-", "-", "1.50", "1.50", "2", "-"]
    assert INITIATOR in shown and "is told after echo Y > " in " ".join(shown.split())
    seen = parse_target(served(10).replace(" untracked=0 crowded", " parts=1 untracked=0 crowded"))
    target_output.print_served(served_since_seen(seen), seen, everything=False)
    assert "it is told for a time in which it was" in " ".join(capsys.readouterr().out.split())
    none = parse_target(served(0, target=0).split("nexus ")[0])
    target_output.print_served(served_since_seen(none), none, everything=False)
    assert "target_core_mod) is not loaded" in capsys.readouterr().out
    off = parse_target(served(0, target=0, wanted=0).split("nexus ")[0])
    target_output.print_served(served_since_seen(off), off, everything=False)
    assert "not being counted: echo Y > /sys/module/fabstat/parameters/target" in capsys.readouterr().out


def in_parts(reads: int, writes: int, *, time_ns: int = 2_000_000_000) -> str:
    """A reading of a module that tells parts: 0.1 of a read's 1 ms and 3 of a write's 5 before the backstore has it."""
    told = f"ready={reads} ready_ns={10**5 * reads} done={reads} done_ns={9 * 10**5 * reads}\n"
    write = (
        f"op id=1 op=write started={writes} completed={writes} forgotten=0 bytes={65536 * writes} "
        f"target_ns={5 * 10**6 * writes} ready={writes} ready_ns={3 * 10**6 * writes} done={writes} "
        f"done_ns={45 * 10**5 * writes}\nhistogram id=1 op=write time=target count={writes} 2:{writes}\n"
        "nexus id=2 fabric=iSCSI initiator=iqn.2026-01.example:a isid=00023d01 target=iqn.2026-01.example:t tpg=tpgt_1 "
        f"lun=4 seen_ns=1 time_ns={time_ns} at_target=3 oldest_ns=5 unmatched=0 untracked=0 window=128 "
        "check_condition=0 busy=0 task_set_full=0 reservation_conflict=0 task_aborted=0 other_status=0\n"
    )
    read = f"target_ns={10**6 * reads}"
    text = served(reads, time_ns=time_ns, more=write).replace(f"{read}\n", f"{read} {told}")
    return text.replace("untracked=0 check_condition=4", "untracked=0 window=128 check_condition=4")


def test_where_the_module_tells_them_the_parts_of_the_time_and_the_window_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for path, text in zip(paths, (in_parts(10, 5), in_parts(110, 55, time_ns=3 * 10**9)), strict=True):
        path.write_text(text)
    assert main(["stat", "--target", "--json", "--diff", *map(str, paths)]) == 0
    lun, other = json.loads(capsys.readouterr().out)["luns"]
    read, write = lun["ops"]["read"], lun["ops"]["write"]
    # Only a write waits for an R2T.
    assert read["r2t_wait_ms"] is None and read["backstore_ms"] == pytest.approx(0.8)
    assert parse_target(in_parts(10, 5).replace("done=10 ", "done=2 ")).luns[0].ops["read"].backstore_ms is None
    # Most of them came before anybody looked.
    (lun_now, _) = parse_target(in_parts(10, 5).replace("ready=5 ", "ready=4 ")).luns
    assert lun_now.ops["write"].ready_ms is None and lun_now.ops["read"].ready_ms is not None
    assert write["r2t_wait_ms"] == pytest.approx(3) and write["backstore_ms"] == pytest.approx(1.5)
    # One window for all LUNs of a session.
    assert lun["window_granted"] == other["window_granted"] == 128 and lun["window_used"] == other["window_used"] == 5
    assert main(["stat", "--target", "--diff", *map(str, paths)]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if " write " in line)
    assert row.split()[1:6] == ["50", "3.3", "5.00", "3.00", "1.50"]


def test_two_saved_readings_are_compared_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for path, text in zip(paths, (served(10), served(110, time_ns=3 * 10**9)), strict=True):
        path.write_text(text)
    assert main(["stat", "--target", "--json", "--diff", *map(str, paths)]) == 0
    found = json.loads(capsys.readouterr().out)
    (lun,) = found["luns"]
    assert found["interval_s"] == 1 and found["module"]["target"] is True
    read = lun["ops"]["read"]
    assert read["iops"] == 100 and read["target_ms"]["mean"] == 1 and read["mean_at_target"] == pytest.approx(0.1)
    assert read["backstore_ms"] is None and read["r2t_wait_ms"] is None and lun["oldest_ms"] == 5
    assert lun["window_granted"] is None and found["module"]["parts"] is False, "a module that does not tell"
    assert main(["stat", "--target", "sda"]) == 2
    assert "not disks such as 'sda'" in capsys.readouterr().err
    assert main(["stat", "--diff", *map(str, paths)]) == 2


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"iqn.2026-01.example:caf\xe9", r"iqn.2026-01.example:caf\xe9"),
        ("iqn.2026-01.example:caf\u00e9".encode(), "iqn.2026-01.example:caf\u00e9"),
        (b"iqn.2026-01.example:a\rb", r"iqn.2026-01.example:a\015b"),
        ("iqn.2026-01.example:a\u0085b".encode(), r"iqn.2026-01.example:a\205b"),
        (rb"iqn.2026-01.example:a\040\134b", r"iqn.2026-01.example:a \b"),
    ],
)
def test_an_initiator_s_name_of_any_bytes_takes_nothing_away(name: bytes, shown: str, tmp_path: Path) -> None:
    """A portal group in demo mode takes every name, and the module kept one until it was unloaded: a traceback."""
    (tmp_path / "stats").write_text("# fabstat 1\n")
    (tmp_path / "target").write_bytes(served(10).encode().replace(INITIATOR.encode(), name))
    (lun,) = served_since_seen(target_snapshot(tmp_path)).luns
    assert lun.lun.initiator == shown and lun.ops["read"].completed == 10

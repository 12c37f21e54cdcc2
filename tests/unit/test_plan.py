# SPDX-License-Identifier: GPL-2.0-or-later
"""Plans on a copied host tree: what would change, by how much, in which order."""

import math
import platform
import time
from pathlib import Path

import hosttree
import pytest

from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import InputError
from fabtune.facts.collect import Reading, collect
from fabtune.host.sockets import TcpSocket
from fabtune.model.device import Device
from fabtune.model.path import NetworkPath
from fabtune.tune import memory, sizing
from fabtune.tune.memory import worst_case
from fabtune.tune.plan import CHANGE, KEPT, NO_DEVICE, NOT_NEEDED, SAME, UNSUPPORTED, Plan, Row, make_plan, tunables_of
from fabtune.tune.request import request

WAN = NetworkPath(0.05, 125e6)
BOTH = ("initiator", "target")


def plan_of(name: str, path: NetworkPath | None = WAN, **overrides: float) -> Plan:
    profile = load_profile(name, shipped_catalog())
    return make_plan(profile, BOTH, collect(tunables_of(profile)), path, overrides)


def row(plan: Plan, tunable: str) -> Row:
    return next(one for one in plan.rows if one.tunable.name == tunable)


def test_windows_follow_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path, 1, 1), monkeypatch)
    plan = plan_of("wan")
    assert row(plan, "tcp.rmem_max").wanted == "25000000"
    assert row(plan, "iscsi.tcp_window").wanted == "0"
    assert row(plan, "lio.first_burst").wanted == "262144"
    assert row(plan, "iscsi.first_burst").state == SAME
    assert row(plan, "iscsi.max_burst").state == KEPT


def test_a_short_path_keeps_the_kernels_buffers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path, 1, 1), monkeypatch)
    plan = plan_of("wan", NetworkPath(0, 125e6))
    assert row(plan, "iscsi.tcp_window").wanted == "0"
    for name in ("tcp.rmem_max", "tcp.wmem_max", "tcp.rmem_default", "tcp.slow_start_after_idle"):
        assert row(plan, name).state == NOT_NEEDED


def test_raise_only_never_lowers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path), monkeypatch)
    (tmp_path / "proc/sys/net/ipv4/tcp_rmem").write_text("4096 131072 99999999\n")
    assert row(plan_of("wan"), "tcp.rmem_max").state == KEPT


def test_a_limit_is_raised_before_and_lowered_after_what_it_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosttree.enter(hosttree.make(tmp_path / "host", 0, 1), monkeypatch)
    names = [one.tunable.name for one in plan_of("wan").changes]
    assert names.index("lio.max_burst") < names.index("lio.first_burst")
    low = tmp_path / "low.toml"
    low.write_text(
        'summary = "low"\n[target."lio.max_burst"]\nvalue = 4096\nwhy = "x"\n'
        '[target."lio.first_burst"]\nvalue = 4096\nwhy = "x"\n'
    )
    names = [one.tunable.name for one in plan_of(str(low)).changes]
    assert names.index("lio.first_burst") < names.index("lio.max_burst")


def test_without_a_path_the_error_says_what_to_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path), monkeypatch)
    with pytest.raises(InputError, match="--rtt and --rate"):
        plan_of("wan", None)


def test_the_missing_half_of_the_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path, 1, 1), monkeypatch)
    profile = load_profile("wan", shipped_catalog())
    facts = collect(tunables_of(profile))
    facts.sockets = []
    with pytest.raises(InputError, match="round trip and rate unknown: .*give --rtt and --rate.*profile .wan."):
        make_plan(profile, BOTH, facts, None, {})
    facts.sockets = [TcpSocket("10.1.0.1", "10.2.0.1", 4000, 3260, 50, 50, 0, 10, 1448, 0, "cubic", 0, 0)]
    with pytest.raises(InputError, match="no NIC tells its speed; give --rate"):
        make_plan(profile, BOTH, facts, None, {})


def test_an_estimated_rate_sizes_buffers_and_holds_nobody_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path, 1, 1), monkeypatch)
    guess = plan_of("wan", NetworkPath(0.05, 125e6, estimated=True))
    assert row(guess, "tcp.rmem_max").wanted == "25000000"
    assert row(guess, "qdisc.kind").wanted == "fq"
    assert row(guess, "qdisc.maxrate").state == NOT_NEEDED
    # Just below what an Ethernet of 1 Gb/s carries: 24 of its 1538 bytes a packet are not Linux's to count.
    assert row(plan_of("wan"), "qdisc.maxrate").wanted == str(math.ceil(125000000 * 1514 / 1538))
    assert row(plan_of("wan", wire_overhead=0), "qdisc.maxrate").wanted == "125000000"


def test_buffers_that_memory_bounds_divide_among_the_initiators_that_a_target_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosttree.enter(hosttree.make(tmp_path, 0, 1), monkeypatch)
    profile = load_profile("wan", shipped_catalog())
    facts = collect(tunables_of(profile))
    guess = NetworkPath(0.05, 1250e6, estimated=True)
    for count, most in ((0, 250e6), (4, (16 << 30) / 64 / 4), (1000, 8 << 20)):
        facts.sockets = [
            TcpSocket("10.2.0.1", f"10.1.0.{number}", 3260, 4000, 50, 50, 0, 10, 1448, 0, "cubic", 0, 0)
            for number in range(count)
        ]
        assert row(make_plan(profile, ("target",), facts, guess, {}), "tcp.wmem_max").wanted == f"{most:.0f}"


def test_a_host_without_sessions_still_has_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path), monkeypatch)
    plan = plan_of("wan")
    assert row(plan, "iscsi.tcp_window").state == NO_DEVICE
    assert row(plan, "tcp.rmem_max").state == CHANGE


def test_a_parameter_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path, 0, 1), monkeypatch)
    assert row(plan_of("wan", io_size=float(1 << 20)), "lio.first_burst").wanted == str(1 << 20)
    with pytest.raises(InputError, match=r"unknown parameter 'io_siz' \(did you mean 'io_size'\?\)"):
        plan_of("wan", io_siz=1.0)


def test_a_name_that_is_no_parameter_is_named_before_its_value_is_judged() -> None:
    with pytest.raises(InputError, match="unknown parameter 'a'"):
        request("wan", None, "", None, None, ["a=b"])


def profile_file(directory: Path, text: str) -> str:
    path = directory / "mine.toml"
    path.write_text('summary = "x"\n' + text)
    return str(path)


def test_parameters_may_stand_in_any_order(tmp_path: Path) -> None:
    known = {"queue": '"4 * io"', "io": '"2KiB"'}
    text = "".join(f'[parameters.{name}]\nsummary = "x"\ndefault = {value}\n' for name, value in known.items())
    profile = load_profile(profile_file(tmp_path, text), shipped_catalog())
    assert profile.values({}, {}) == {"queue": 8192, "io": 2048}


def test_a_parameter_may_use_those_of_an_included_profile(tmp_path: Path) -> None:
    text = 'include = ["lan"]\n[parameters.mine]\nsummary = "x"\ndefault = "2 * io_size"\n'
    profile = load_profile(profile_file(tmp_path, text), shipped_catalog())
    assert profile.values({"io_size": 4096}, {"rate": 1e6, "bdp": 1e6})["mine"] == 8192


def test_parameters_that_need_each_other_are_named(tmp_path: Path) -> None:
    text = '[parameters.a]\nsummary = "x"\ndefault = "b + rtt"\n[parameters.b]\nsummary = "x"\ndefault = "2 * a"\n'
    profile = load_profile(profile_file(tmp_path, text), shipped_catalog())
    # One of them needs the path besides, and says so once it is known.
    assert profile.values({}, {}) == {}
    with pytest.raises(InputError, match=r"mine.toml: \[parameters.a\]: needs b, which cannot be known before 'a' is"):
        profile.values({}, {"rtt": 0.05})


def test_a_value_that_an_included_profile_cannot_use_is_told_with_the_users_file(tmp_path: Path) -> None:
    text = 'include = ["lan"]\n[parameters.io_size]\nsummary = "x"\ndefault = 0\n'
    profile = load_profile(profile_file(tmp_path, text), shipped_catalog())
    with pytest.raises(InputError, match=r"mine.toml: .*lan.toml: .*divides by zero"):
        profile.values({}, {"rtt": 0.05, "rate": 125e6, "bdp": 6.25e6})


def test_an_include_that_no_file_can_be_called_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mine.toml: key 'include'"):
        load_profile(profile_file(tmp_path, f'include = ["{"9" * 300}"]\n'), shipped_catalog())


def test_a_value_beyond_its_range_is_limited_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path, 0, 1), monkeypatch)
    one = row(plan_of("wan", NetworkPath(10, 125e9), io_size=float(16 << 20)), "tcp.rmem_max")
    assert one.wanted == "2147483647"
    assert "limited to 2147483647" in one.note


def test_units_are_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path / "host", 1), monkeypatch)
    (tmp_path / "host/sys/block/sd1/queue/max_sectors_kb").write_text("128\n")
    (tmp_path / "host/sys/block/sd1/queue/max_hw_sectors_kb").write_text("512\n")
    mine = tmp_path / "mine.toml"
    mine.write_text('summary = "x"\n[initiator."block.max_sectors_kb"]\nat_least = "256KiB"\nwhy = "x"\n')
    assert row(plan_of(str(mine)), "block.max_sectors_kb").wanted == "256"
    mine.write_text('summary = "x"\n[initiator."block.max_sectors_kb"]\nat_least = "1MiB"\nwhy = "x"\n')
    assert row(plan_of(str(mine)), "block.max_sectors_kb").wanted == "512"
    mine.write_text('summary = "x"\n[initiator."block.max_sectors_kb"]\nvalue = "max"\nwhy = "x"\n')
    assert row(plan_of(str(mine)), "block.max_sectors_kb").wanted == "512"


def test_memory_at_worst_counts_every_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path, 4, 1), monkeypatch)
    profile = load_profile("wan", shipped_catalog())
    facts = collect(tunables_of(profile))
    cost = worst_case(make_plan(profile, BOTH, facts, WAN, {}), facts)
    assert cost.sessions == 4
    assert cost.socket_bytes == 4 * 2 * 25000000
    assert cost.unsolicited_bytes == 4 * 128 * 262144
    assert cost.host_bytes == 16 << 30


def test_the_cost_of_a_plan_grows_no_faster_than_its_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {}
    for count in (16, 64):
        with monkeypatch.context() as patch:
            hosttree.enter(hosttree.make(tmp_path / str(count), count, 1), patch)
            took = []
            # The least of some turns: what other processes do to caches and clocks only ever adds.
            for _ in range(5):
                started = time.process_time()
                plan = plan_of("wan-satellite")
                took.append(time.process_time() - started)
            seconds[count] = min(took)
            assert sum(one.tunable.name == "iscsi.tcp_window" for one in plan.changes) == count
    assert seconds[64] < 8 * seconds[16]


def test_read_ahead_covers_the_path_twice_on_the_disk_and_what_lies_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = hosttree.make(tmp_path, 1)
    hosttree.enter(host, monkeypatch)
    block = host / "sys/block"
    for name, uuid, slaves in (("dm-0", "mpath-3600", ["sd1"]), ("dm-1", "LVM-aaa", ["dm-0"]),
                               ("dm-2", "LVM-mixed", ["dm-0", "vda"])):  # fmt: skip
        hosttree.put(block / name / "dm/uuid", uuid)
        hosttree.put(block / name / "dm/name", f"the-{name}")
        hosttree.put(block / name / "queue/read_ahead_kb", "128")
        for slave in slaves:
            (block / name / "slaves").mkdir(exist_ok=True)
            (block / name / "slaves" / slave).symlink_to(block / slave)
    (block / "vda").mkdir()
    for name, slave in (("md0", "dm-0"), ("md1", "vda"), ("bcache0", "md0")):
        hosttree.put(block / name / "queue/read_ahead_kb", "128")
        (block / name / "slaves").mkdir()
        (block / name / "slaves" / slave).symlink_to(block / slave)
    hosttree.put(block / "md0/md/uuid", "aa:bb")
    hosttree.put(block / "sd1/queue/read_ahead_kb", "128")
    path = NetworkPath(0.037, 622e6 / 8)
    rows = {one.device.identity: one for one in plan_of("wan", path).rows
            if one.tunable.name == "block.read_ahead_kb" and one.device}  # fmt: skip
    disk = f"naa.6001405000000001,{hosttree.iqn(1)},10.2.0.1:3260,default"
    assert rows.keys() == {disk, "dm:mpath-3600", "dm:LVM-aaa", "md:aa:bb", "name:bcache0"}
    assert {one.wanted for one in rows.values()} == {str(math.ceil(2 * path.bdp_bytes / 1024))}
    hosttree.put(block / "sd1/queue/read_ahead_kb", "0")
    off = next(one for one in plan_of("wan", path).rows if one.device and one.device.label == "sd1"
               and one.tunable.name == "block.read_ahead_kb")  # fmt: skip
    assert (off.state, off.wanted) == (KEPT, "0")


def test_an_estimated_rate_is_bounded_by_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path, 4, 1), monkeypatch)
    fast = plan_of("wan", NetworkPath(0.1, 12.5e9, estimated=True))
    assert row(fast, "tcp.rmem_max").wanted == str((16 << 30) // 64 // 4)
    assert row(fast, "qdisc.maxrate").state == NOT_NEEDED


def test_buffers_beyond_a_share_of_memory_are_refused_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = hosttree.make(tmp_path, 1, 1)
    hosttree.put(host / "proc/meminfo", "MemTotal:       1468006 kB")
    hosttree.enter(host, monkeypatch)
    profile = load_profile("wan", shipped_catalog())
    facts = collect(tunables_of(profile))
    told = r"11\d\d MiB, 8\d % of this host's 1434 MiB, allowed: 50 %; "
    # A NIC's speed, or what a few reads showed, may be far above the path's rate; what was told is that.
    for path, advice in (
        (NetworkPath(0.1, 12.5e9, by_nic=True), "give the path's own rate with --rate, or --set memory_percent="),
        (NetworkPath(0.1, 12.5e9), "--set memory_percent=8. takes it all the same$"),
    ):
        with pytest.raises(InputError, match=told + advice):
            memory.check_memory(make_plan(profile, BOTH, facts, path, {}), facts)
        memory.check_memory(make_plan(profile, BOTH, facts, path, {"memory_percent": 400}), facts)
    memory.check_memory(make_plan(profile, BOTH, facts, WAN, {}), facts)


@pytest.mark.parametrize(
    ("path", "settings", "buffer"),
    [
        # What the queue has in flight at most, with requests of 256 KiB and of more.
        (NetworkPath(0.3, 1.25e9), {}, 4 * 512 * 262144),
        (NetworkPath(0.3, 1.25e9), {"io_size": 512 * 1024.0}, 4 * 512 * 524288),
        (NetworkPath(0.3, 1.25e9), {"io_size": 1048576.0}, 4 * 375e6),
        (NetworkPath(0.3, 1.25e9, estimated=True), {}, (16 << 30) // 64),
        # A queue that fills the path: four BDP. Beside small requests, which do not fill it, larger ones may come.
        (NetworkPath(0.1, 1.25e9), {}, 4 * 125e6),
        (WAN, {"io_size": 4096.0}, 25e6),
        # What the kernel has in flight already stays there.
        (WAN, {"queue": 1.0}, 25e6),
    ],
)
def test_a_buffer_holds_no_more_than_the_queue_has_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: NetworkPath, settings: dict[str, float], buffer: float
) -> None:
    hosttree.enter(hosttree.make(tmp_path, 1, 1), monkeypatch)
    assert row(plan_of("wan", path, **settings), "tcp.wmem_max").wanted == f"{buffer:.0f}"


def test_the_plan_says_which_requests_its_queue_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path, 1, 1), monkeypatch)
    path = NetworkPath(0.037, 622e6 / 8)
    said = sizing.in_words(plan_of("wan", path))
    assert said.startswith("sized for requests of 256 KiB, 128 of them in flight; a full queue takes 451 ms")
    assert said.endswith(
        "to fill this path with requests of 4 KiB, 702 are needed (a target takes at most 512): --set io_size=4KiB"
    )
    small = plan_of("wan", path, io_size=4096.0)
    assert small.parameters["queue"] == 512
    assert "--set" not in sizing.in_words(plan_of("wan", NetworkPath(0.001, 125e6)))
    assert plan_of("wan", path, io_size=float(1 << 20)).parameters["queue"] == 32


def test_the_plan_says_that_its_queue_cannot_fill_a_long_fat_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosttree.enter(hosttree.make(tmp_path, 1, 1), monkeypatch)
    fat = NetworkPath(0.3, 1.25e9)
    assert sizing.in_words(plan_of("wan", fat)).endswith(
        "a full queue takes 112 ms to pass; 512 x 256 KiB fill 36 % of this path, and a target takes at most 512: "
        "larger requests (--set io_size=1024KiB) or more sessions fill it"
    )
    assert "--set io_size=512KiB" in sizing.in_words(plan_of("wan", NetworkPath(0.2, 1.25e9)))
    assert " fill " not in sizing.in_words(plan_of("wan", fat, io_size=float(1 << 20))).replace("to fill this path", "")
    # No disk has requests so large.
    assert sizing.in_words(plan_of("wan", NetworkPath(0.3, 12.5e9))).endswith("at most 512: more sessions fill it")
    # No smaller size makes a queue longer that is as long as it may be.
    long = sizing.in_words(plan_of("wan", NetworkPath(0.1, 1.25e9)))
    assert long.endswith("to fill this path with requests of 4 KiB, 30518 are needed (a target takes at most 512)")
    # A queue that was told is not sized by anything.
    assert sizing.in_words(plan_of("wan", fat, queue=64.0)).endswith("; 64 x 256 KiB fill 4 % of this path")


@pytest.mark.parametrize(("memory_kib", "state"), [(2 << 20, UNSUPPORTED), (4 << 20, UNSUPPORTED), (8 << 20, CHANGE)])
def test_a_default_that_the_kernel_makes_from_its_memory_is_known_where_there_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_kib: int, state: str
) -> None:
    host = hosttree.make(tmp_path, 1, 1)
    hosttree.enter(host, monkeypatch)
    hosttree.put(host / "proc/meminfo", f"MemTotal: {memory_kib} kB")
    monkeypatch.setattr(platform, "release", lambda: "6.18.0")
    hosttree.put(host / "proc/sys/net/ipv4/tcp_rmem", "4096 131072 16279744")
    found = row(plan_of("default"), "tcp.rmem_max")
    assert found.state == state, found


@pytest.mark.parametrize(("rtt_s", "mbit"), [(0.02, 2), (0.02, 8), (0.02, 45), (0.1, 100), (0.6, 2), (0.6, 50)])
def test_on_a_slow_path_a_full_queue_leaves_before_scsi_gives_up_and_a_dead_path_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rtt_s: float, mbit: float
) -> None:
    hosttree.enter(hosttree.make(tmp_path, 1, 1), monkeypatch)
    path = NetworkPath(rtt_s, mbit * 1e6 / 8)
    for name, patience_s in (("wan", 30), ("wan-satellite", 60)):
        plan = plan_of(name, path)
        queue = plan.parameters["queue"]
        assert queue == 1 or queue * 262144 / path.rate_bytes_per_s <= 2
        assert int(row(plan, "iscsi.noop_timeout").wanted or 0) <= patience_s


@pytest.mark.parametrize("name", ["lan", "low-latency", "wan", "wan-clean", "wan-lossy", "wan-satellite"])
def test_a_short_queue_is_not_raised_beyond_what_leaves_in_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    hosttree.enter(hosttree.make(tmp_path, 1, 1), monkeypatch)
    depths = [Reading("iscsi.queue_depth", Device("record", depth, depth), depth) for depth in ("8", "32")]
    for mbit, wanted in ((1, [None, None]), (16, ["15", None]), (622, ["128", "128"])):
        profile = load_profile(name, shipped_catalog())
        facts = collect(tunables_of(profile))
        facts.readings = [one for one in facts.readings if one.tunable != "iscsi.queue_depth"] + depths
        plan = make_plan(profile, BOTH, facts, NetworkPath(0.04, mbit * 1e6 / 8), {})
        rows = [one for one in plan.rows if one.tunable.name == "iscsi.queue_depth"]
        assert [one.wanted if one.state == CHANGE else None for one in rows] == wanted, mbit


@pytest.mark.parametrize(("rtt_s", "mbit"), [(0.037, 622), (0.05, 1000), (0.1, 1000), (0.1, 622)])
def test_a_fast_path_has_its_32_mib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rtt_s: float, mbit: float) -> None:
    hosttree.enter(hosttree.make(tmp_path, 1, 1), monkeypatch)
    plan = plan_of("wan", NetworkPath(rtt_s, mbit * 1e6 / 8))
    assert plan.parameters["queue"] == 128
    assert row(plan, "iscsi.noop_timeout").wanted == "5"

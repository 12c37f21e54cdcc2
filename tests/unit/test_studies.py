# SPDX-License-Identifier: GPL-2.0-or-later
"""Experiments that re-make a study's have the study's values; Documentation/studies.md says where they differ."""

import re
from pathlib import Path

import pytest

from fabtune.experiment import clients, definition, tuners
from fabtune.experiment.settings import OF_WORKLOAD, parse_settings
from fabtune.host.targets.lio import KIND
from fabtune.lab import iscsi_initiator, topology
from fabtune.measure import workload
from fabtune.model.capacity import loss_bytes_per_s
from fabtune.model.path import MATHIS, SANDIAS, NetworkPath, reno_bytes_per_s

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / "Documentation/studies.md").read_text()
KIB_TO_16_MIB = ["1KiB", "4KiB", "16KiB", "64KiB", "256KiB", "1MiB", "4MiB", "16MiB"]


@pytest.mark.parametrize(
    ("name", "factor", "values"),
    [
        ("scale-clients", "clients", ["1", "2", "4", "8", "16"]),
        ("fabric-size", "size", KIB_TO_16_MIB),
        ("fabric-cpu", "depth", ["1", "4"]),
        ("lun-stress-128", "clients", ["8", "32", "128"]),
        ("lan-frames", "size", ["4KiB", "8KiB", "32KiB"]),
        ("lan-frames", "mtu", ["1500", "9000"]),
        ("lan-hosts", "clients", ["1", "2", "4"]),
        ("kernels", "kernel", ["bookworm", "trixie", "sid"]),
        ("wan-rtt", "rtt", ["0ms", "2ms", "10ms", "20ms", "50ms", "100ms", "150ms"]),
    ],
)
def test_what_varies_is_what_the_study_varied(name: str, factor: str, values: list[str]) -> None:
    assert list(definition.load(name).factors[factor]) == values


def test_what_is_said_of_a_range_is_asked_of_each_value_in_it() -> None:
    """Of all round trips up to 50 ms the statement left out 2 ms."""
    wanted = definition.load("wan-rtt")
    (said,) = (one for one in wanted.expect if "up to 50 ms" in one.says)
    inside = [text for text, rtt_ms in wanted.numbers("rtt").items() if rtt_ms <= 50]
    assert said.where["rtt"].split(",") == inside


def test_one_lun_gives_128_connections_what_the_study_s_gave_them() -> None:
    """D.3.6, in cache, 8 clients of 1 process and 16 of 8: writes 196.33 and 190.43 MB/s, reads 189.77 and 186.60."""
    shares = {"write": 190.43 / 196.33, "read": 186.60 / 189.77}
    found = {one.where["op"]: one.at_least for one in definition.load("lun-stress-128").expect if one.to}
    assert found == {op: round(share, 2) for op, share in shares.items()} == {"write": 0.97, "read": 0.98}


def test_scaling_is_limited_by_the_target_not_by_the_round_trip() -> None:
    for cell in definition.load("scale-clients").combinations():
        assert cell.settings.rtt_ms == 0 and cell.settings.target_mib_per_s


def test_the_stress_of_one_lun_is_of_one_mebibyte_a_process() -> None:
    for cell in definition.load("lun-stress-128").combinations():
        assert (cell.settings.size_bytes, cell.settings.queue_depth) == (1 << 20, 1)


@pytest.mark.parametrize("name", definition.names())
def test_a_row_says_where_no_result_of_its_experiment_is_kept(name: str) -> None:
    rows = [row for row in PAGE.splitlines() if row.startswith("|") and f"`{name}`: " in row]
    kept = (TOP / f"Documentation/results/{name}.json").exists()
    assert all(("no result is kept" in row) is not kept for row in rows)


def test_each_read_ahead_is_more_than_what_one_read_asks_for() -> None:
    """The kernel's window is the larger of both: of reads of 1000 KiB, 16 and 128 KiB were the same experiment."""
    for cell in definition.load("read-ahead").combinations():
        assert cell.settings.size_bytes <= cell.settings.read_ahead_bytes


def test_mptio_s_eight_processes_run_in_all_three_places() -> None:
    wanted = {cell.settings.workload: cell.settings.threads for cell in definition.load("mptio").combinations()}
    assert wanted == dict.fromkeys(("mptio", "mptio-files", "mptio-shared"), 8)
    assert all("processes" in workload.load(name).parameters for name in wanted) and OF_WORKLOAD["jobs"] == "threads"


def daq_step(op: str, **changes: str) -> dict[str, dict[str, object]]:
    settings = parse_settings({"clients": "4", "stream_rate": "2MB", **changes}, "test")
    step = clients._step(["sda", "sdb", "sdc", "sdd"], 1 << 30, op, settings, Path("/gate"))
    return {name: dict(job) for name, job in step.jobs.items()}


def test_half_of_the_daq_s_clients_write_at_a_rate_and_the_others_read_freely() -> None:
    jobs = daq_step("mixed")
    assert [(job["rw"], job.get("rate")) for job in jobs.values()] == [
        ("write", 2_000_000), ("write", 2_000_000), ("read", None), ("read", None),
    ]  # fmt: skip


def test_clients_that_share_a_lun_have_a_part_each() -> None:
    jobs = daq_step("read")
    assert [(job["offset"], job["size"]) for job in jobs.values()] == [(n << 28, 1 << 28) for n in range(4)]
    assert not any("offset" in job for job in daq_step("read", lun="own").values())


def test_sandias_settings_are_those_that_it_published(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    for name in ("run", "write_sysctl"):
        monkeypatch.setattr(tuners, name, lambda *words, **_: said.append(str(words)))
    monkeypatch.setattr(iscsi_initiator, "update_node", lambda key, value: said.append(f"node {key}={value}"))
    monkeypatch.setattr(type(KIND), "set_everywhere", lambda _, key, value: said.append(f"lio {key}={value}"))
    tuners.apply_tuner("sandia")
    text = "\n".join(said)
    assert "net.ipv4.tcp_rmem', '4096 10485760 10485760'" in text and "netdev_max_backlog', '2500'" in text
    for line in (
        "lio param/InitialR2T=No", "lio param/ImmediateData=Yes", "lio attrib/default_cmdsn_depth=64",
        "node node.session.iscsi.InitialR2T=No", "node node.session.queue_depth=64",
        "node node.conn[0].tcp.window_size=10485760",
    ):  # fmt: skip
        assert line in said
    assert text.count("'txqueuelen', '1000'") == 2


def test_mathis_as_in_sandia_s_formula() -> None:
    path = NetworkPath(0.05, 25e6)
    assert path.sandias_reno_bytes_per_s(1e-4) == pytest.approx(0.7 * 1448 / (0.05 * 0.01))
    assert path.sandias_reno_bytes_per_s(0) == float("inf") == NetworkPath(0, 25e6).sandias_reno_bytes_per_s(1e-4)


@pytest.mark.parametrize("loss", [1e-4, 1e-3, 0.01])
def test_sandia_s_line_and_the_model_s_are_one_law_and_differ_by_its_constant_alone(loss: float) -> None:
    """A page's "one Reno connection (Mathis)" lay at 57 % of what `whatif` has for one, and did not say why."""
    sandias, models = NetworkPath(0.05, 25e6).sandias_reno_bytes_per_s(loss), loss_bytes_per_s(1448, 0.05, loss, "reno")
    assert (sandias, models) == tuple(reno_bytes_per_s(1448, 0.05, loss, constant) for constant in (SANDIAS, MATHIS))
    assert sandias / models == pytest.approx(0.7 / 1.22)
    told = (TOP / "Documentation/wan.md").read_text()
    assert f"{SANDIAS:g} MSS / (RTT √p)" in told and f"{MATHIS:g} in the place of {SANDIAS:g}" in told


def test_without_offloads_no_device_joins_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[list[str]] = []
    monkeypatch.setattr(topology, "run", lambda words, what: said.append(words))
    monkeypatch.setattr(topology, "tc_batch", lambda *_: None)
    for path, wanted in (
        (topology.EmulatedPath(), "on"),
        (topology.EmulatedPath(offloads=False), "off"),
        (topology.EmulatedPath(loss=0.01), "off"),
    ):
        said.clear()
        topology.shape(path)
        assert said and all(words[words.index("tso") + 1] == wanted for words in said)


def test_the_page_names_every_experiment_and_workload_that_a_study_is_the_source_of() -> None:
    of_studies = re.compile("GUPFS|CASPUR|Sandia")
    names = [name for name in definition.names() if of_studies.search(definition.load(name).source)]
    names += [name for name in workload.names() if of_studies.search(workload.load(name).source)]
    assert len(names) > 25 and not [name for name in names if f"`{name}`" not in PAGE]

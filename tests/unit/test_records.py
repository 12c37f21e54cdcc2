# SPDX-License-Identifier: GPL-2.0-or-later
"""Run records of every producer: what is written is read again as it was, and records from before stay readable."""

import contextlib
import gzip
import json
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from run_records import make_record, said

from fabtune.cli import measure as measure_cli
from fabtune.cli.main import main
from fabtune.errors import ExitCode, InputError
from fabtune.experiment import clients, combination, raw
from fabtune.experiment.settings import parse_settings
from fabtune.lab import iperf3, topology
from fabtune.measure import (
    blktrace,
    capture,
    checks,
    fio,
    network,
    proof,
    recordfile,
    replay,
    target,
    workload,
    workload_run,
)
from fabtune.measure.arrivals import Arrival
from fabtune.model import runrecord
from fabtune.model.factors import Settings
from fabtune.model.outputs import FioOutput, Iperf3Output, Qdisc
from fabtune.model.runrecord import Edge, Event, PathTold, Readings, RunRecord, SessionTurn
from fabtune.report import suite
from fabtune.stat.stuck import StuckList, StuckRequest

Patch = pytest.MonkeyPatch
Producer = Callable[[target.Target, Patch], RunRecord]
BEFORE = Path(__file__).parent / "data/record-1.run.json.gz"
MOVED = {"total_ios": 100, "io_bytes": 409600, "runtime": 1000, "clat_ns": {"bins": {"1000": 100}},
         "lat_ns": {"mean": 1000.0, "N": 100, "max": 2000}}  # fmt: skip
SAID = said(FioOutput, {"jobs": [{"read": MOVED, "write": MOVED}]})
NIC = tuple(f"{way}_{what}" for way in ("rx", "tx") for what in ("bytes", "packets", "dropped", "errors"))
IPERF3 = {"end": {"sum_received": {"bits_per_second": 8e8}}}


class Load:
    """Stands for fio: ready at once, ended after one look."""

    def __init__(self, command: Sequence[str], scratch: Path) -> None:
        self.command = list(command)
        jobs = (scratch / "job.fio").read_text().splitlines() if scratch.exists() else []
        for name in (line[1:-1] for line in jobs if line.startswith("[")):
            (scratch / f"{name}.prerun.txt").touch()

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, tick: Callable[[], None], interval_s: float, measured_s: float = 0) -> None:
        tick()

    def measures_since_s(self, ramp_s: float) -> float:
        return ramp_s

    def before_drain(self) -> FioOutput:
        return SAID

    def document(self) -> FioOutput:
        return SAID


@pytest.fixture
def host(monkeypatch: Patch, tmp_path: Path) -> target.Target:
    """What the producers would run or read, made up; the records are real."""
    place = target.Target(tmp_path, "directory", 1 << 40, None, "", "", 512, (3,))
    edge = Edge(
        {"eth0": dict.fromkeys(NIC, 1)}, {"3": "eth0"}, (said(Qdisc, {"kind": "fq", "dev": "eth0", "drops": 0}),),
        {"3": {"InitialR2T": "Yes"}}, {"3": ("sdb",)}, {"3": {"r2t_pdus": 2}},
        ({"cwnd_segments": 10, "rtt_ms": 20.5, "congestion_control": "cubic"},),
    )  # fmt: skip
    monkeypatch.setattr(fio, "find", lambda: ("/bin/true", "fio-3.33"))
    monkeypatch.setattr(fio, "Load", Load)
    monkeypatch.setattr(target, "find", lambda name: place)
    monkeypatch.setattr("fabtune.measure.counters.edges", lambda at: edge)
    monkeypatch.setattr(network, "require", lambda *words: "/bin/true")
    monkeypatch.setattr(network, "round_trips_ms", lambda peer: [10.0, 10.5])
    monkeypatch.setattr(network, "path_mtu", lambda peer: network.PathMtu(9000, 1500, told=True))
    monkeypatch.setattr(network, "_iperf3", lambda command: said(Iperf3Output, IPERF3))
    return place


def settings(**texts: str) -> Settings:
    return parse_settings({"runtime": "1s", "ramp": "0s", **texts}, "test")


def of_run(place: target.Target, _: Patch) -> RunRecord:
    work = workload.load("xdd").with_parameters(["op=read"])
    path = measure_cli.path_of(Namespace(rtt=20.3, rate=1e9, mtu=1500))
    return workload_run.measure(
        work, place, label="wan", path=path, runtime_s=1, ramp_s=0, environment={"a of host": "1"}
    )


def of_ab(place: target.Target, monkeypatch: Patch) -> RunRecord:
    return attrs.evolve(of_run(place, monkeypatch), session=SessionTurn("s-pairs", 0, "B"), command=("fabtune", "ab"))


def of_failed_run(place: target.Target, monkeypatch: Patch) -> RunRecord:
    def fail(load: Load) -> None:
        raise fio.FioError("fio ended with status 1: no", SAID)

    monkeypatch.setattr(Load, "document", fail)
    with pytest.raises(workload_run.IncompleteError) as caught:
        of_run(place, monkeypatch)
    return caught.value.record


def of_capture(place: target.Target, monkeypatch: Patch) -> RunRecord:
    monkeypatch.setattr(capture, "observe", lambda load, at: proof.Seen(writes=(), window=64, closures=0, most_tasks=2))
    monkeypatch.setattr(capture, "_session", lambda at: Namespace(negotiated={"ImmediateData": "Yes"}))
    return capture.prove(of_run(place, monkeypatch), workload.load("xdd"), place, {"CommandWindow": "64"})


def of_net(place: target.Target, monkeypatch: Patch) -> RunRecord:
    return network.measure("127.0.0.1", port=1, seconds=1, windows=(0, 65536), streams=(1,), label="wan")


def of_stopped_net(place: target.Target, monkeypatch: Patch) -> RunRecord:
    monkeypatch.setattr(network, "path_mtu", lambda peer: network.PathMtu(9000, 1500, told=False))
    with pytest.raises(workload_run.IncompleteError) as caught:
        of_net(place, monkeypatch)
    return caught.value.record


def of_raw(place: target.Target, monkeypatch: Patch) -> RunRecord:
    """The network of a lab guest, which leaves its record itself."""
    monkeypatch.setattr(iperf3, "listening", lambda *words: contextlib.nullcontext(0))
    assert raw.measure(settings(workload="net", streams="1"), place.path)[0] == ("write", {"mb_per_s": 100.0})
    return recordfile.read(place.path / "net.run.json.gz")


def of_clients(place: target.Target, monkeypatch: Patch, requests: tuple[StuckRequest, ...] = ()) -> RunRecord:
    monkeypatch.setattr(clients, "read_file", lambda name: "reading")
    monkeypatch.setattr(clients, "stuck", lambda: StuckList(0, 10**9, requests))
    monkeypatch.setattr(clients, "check_judge", lambda stuck_after_s: None)
    monkeypatch.setattr(clients, "measured_part", lambda *words: [])
    return clients.measure(["sda", "sdb"], "read", settings(clients="2", rtt="10ms"))[0]


def of_hanging_clients(place: target.Target, monkeypatch: Patch) -> RunRecord:
    age_ns = 61 * 10**9
    hanging = StuckRequest(1, "sda", "8:0", "read", 8, 4096, age_ns, "in_flight", age_ns, 0)
    return of_clients(place, monkeypatch, (hanging,))


class Bed:
    """A lab's testbed whose load is the only thing that is real."""

    path = topology.EmulatedPath(rtt_ms=20.0)
    fabric = Namespace(CROSSES_PATH=True, figures=dict)

    def __init__(self, wanted: Settings) -> None:
        self.settings = wanted

    def faults(self) -> Any:
        return contextlib.nullcontext([Event(1.0, "the second path is cut")])


def of_combination(place: target.Target, monkeypatch: Patch) -> RunRecord:
    """One combination in a lab guest, which leaves its record itself."""
    monkeypatch.setattr(topology, "qdisc_counters", lambda: {"s0": {"packets": 1}})
    monkeypatch.setattr(topology, "assert_clean", lambda *words: None)
    monkeypatch.setattr(combination, "RESULTS", place.path)
    (point,) = combination.measure_op(cast(Any, Bed(settings(rtt="20ms"))), ["sda"], "read", {"target: a": "1"})
    assert point.number("bound_mb_per_s") > 100 and point["mb_per_s"] == 0.4096
    kept = recordfile.read(place.path / "read.run.json.gz")
    assert kept.events == (Event(1.0, "the second path is cut"),)
    return kept


def of_the_tests(place: target.Target, monkeypatch: Patch) -> RunRecord:
    return make_record(100, "wan", 3, seconds=5, path={"rtt_ms": 0.3, "rate_bytes_per_s": 1.25e8})


def _disk(place: target.Target, monkeypatch: Patch) -> target.Target:
    """A file in a disk's place, loaded by our own generator as it is."""
    monkeypatch.undo()
    path = place.path / "disk"
    path.write_bytes(bytes(1 << 20))
    return attrs.evolve(place, path=path, kind="device", size_bytes=1 << 20)


def of_open_loop(place: target.Target, monkeypatch: Patch) -> RunRecord:
    work = workload.load("openloop").with_parameters(["total_bytes=1048576", "requests_per_s=100"])
    return workload_run.measure(work, _disk(place, monkeypatch), label="wan", path=PathTold(), runtime_s=1, ramp_s=0)


def of_replay(place: target.Target, monkeypatch: Patch) -> RunRecord:
    trace = blktrace.Trace("t.bin", "ab", "8,16", tuple(Arrival(n * 10**7, 0, 4096, False) for n in range(50)), 1)
    disk = _disk(place, monkeypatch)
    return replay.Replay(trace, disk, PathTold(), blktrace.fit(trace, disk.size_bytes, 512)).measure("wan", {})


PRODUCERS = (
    of_run, of_ab, of_failed_run, of_capture, of_net, of_stopped_net, of_raw, of_clients, of_hanging_clients,
    of_combination, of_the_tests, of_open_loop, of_replay,
)  # fmt: skip


def raw_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


@pytest.mark.parametrize("producer", PRODUCERS)
def test_what_is_written_is_read_again_and_reported(
    host: target.Target, monkeypatch: Patch, producer: Producer, tmp_path: Path
) -> None:
    taken = producer(host, monkeypatch)
    path = recordfile.write(attrs.evolve(taken, file=""), tmp_path / "kept" / "a.run.json.gz")
    again = recordfile.read(path)
    assert attrs.evolve(again, file="") == attrs.evolve(taken, file="")
    # Every producer's record has what every reader may ask for, under the keys of old.
    assert raw_of(path).keys() >= raw_of(BEFORE).keys() - {"pcp_archive", "ended_unix_s", "command"}
    assert raw_of(path)["versions"]["fabtune"]
    assert main(["report", str(path.parent)]) == ExitCode.DONE
    assert main(["report", str(path.parent), "--json"]) == ExitCode.DONE
    assert taken.workload.name in (path.parent / "report.html").read_text()


def test_the_peer_of_a_network_run_may_have_a_name(host: target.Target, monkeypatch: Patch) -> None:
    asked = []

    def path_mtu(peer: str) -> network.PathMtu:
        asked.append(peer)
        return network.PathMtu(9000, 1500, told=True)

    monkeypatch.setattr(network, "path_mtu", path_mtu)
    taken = network.measure("localhost", port=1, seconds=1, windows=(0,), streams=(1,))
    # ip(8), which is asked for the way there, knows no names.
    assert asked[0] in ("127.0.0.1", "::1") and taken.target.path == "localhost"


def test_a_network_run_of_no_time_is_refused_before_anything_runs(
    host: target.Target, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    """iperf3 takes --time 0 for no end."""
    asked: list[Sequence[str]] = []
    monkeypatch.setattr(network, "_iperf3", asked.append)
    words = ["measure", "net", "--peer", "127.0.0.1", "--streams", "1", "--out", str(host.path)]
    assert main([*words, "--runtime", "0s"]) == ExitCode.USAGE and not asked
    assert "--runtime 0s: expected more than 0" in capsys.readouterr().err
    # Less than a second is one.
    main([*words, "--runtime", "200ms"])
    assert asked and all(one[list(one).index("--time") + 1] == "1" for one in asked)


@pytest.mark.parametrize(
    ("rtt_ms", "seconds", "omitted_s"),
    [(150.0, 5.0, 3), (10.0, 2.0, 1), (0.1, 5.0, 0), (10.0, 60.0, 0), (9000.0, 5.0, 60)],
)
def test_raw_tcp_is_measured_after_its_slow_start(
    host: target.Target, monkeypatch: Patch, rtt_ms: float, seconds: float, omitted_s: int
) -> None:
    """At 150 ms slow start is 1.5 s of a test's 5: what a path carries was told as less, the longer it is."""
    asked: list[Sequence[str]] = []

    def iperf3_of(command: Sequence[str]) -> Iperf3Output:
        asked.append(command)
        return said(Iperf3Output, IPERF3)

    monkeypatch.setattr(network, "round_trips_ms", lambda peer: [rtt_ms, rtt_ms, 20 * rtt_ms])
    monkeypatch.setattr(network, "_iperf3", iperf3_of)
    taken = network.measure("127.0.0.1", port=1, seconds=seconds, windows=(0,), streams=(1,))
    assert taken.complete and taken.ramp_s == omitted_s and taken.runtime_s == seconds
    # What is asked for is measured whole.
    words = ["--time", str(round(seconds)), *(["--omit", str(omitted_s)] if omitted_s else [])]
    assert len(asked) == 2 and all(" ".join(words) in " ".join(one) for one in asked)
    assert omitted_s or not any("--omit" in one for one in asked)


def test_a_record_keeps_the_keys_and_units_of_its_file(host: target.Target, monkeypatch: Patch) -> None:
    raw_record: dict[str, Any] = runrecord.as_json(of_run(host, monkeypatch))
    assert raw_record["path"] == {"rtt_ms": 20.3, "rate_bytes_per_s": 1.25e8, "mtu": 1500}
    old = raw_of(BEFORE)
    for part in ("workload", "target", "host", "versions"):
        assert raw_record[part].keys() - {"primary"} == old[part].keys()
    # Since then fio is asked once more before its end, and the idle host is looked at.
    assert raw_record["steps"][0].keys() == old["steps"][0].keys() | {"before_drain", "idle"}
    assert raw_record["steps"][0]["before"].keys() == old["steps"][0]["before"].keys()
    told = {"rate_bytes_per_s": 1.25e8}
    assert (
        runrecord.as_json(make_record(1, path=told))["path"] == told and runrecord.as_json(make_record(1))["path"] == {}
    )


def test_a_record_from_before_is_read_as_it_was(tmp_path: Path) -> None:
    """Made by the fabtune that had no types for records."""
    taken = recordfile.read(BEFORE)
    assert json.loads(json.dumps(runrecord.as_json(attrs.evolve(taken, file="")))) == raw_of(BEFORE)
    assert taken.complete and taken.label == "wan" and taken.path.rtt_s == pytest.approx(5e-5)
    assert [step.name for step in taken.steps] == ["read", "write"] and len(taken.steps[0].samples) == 4
    assert not checks.failed(taken)
    (tmp_path / "a.run.json.gz").write_bytes(BEFORE.read_bytes())
    assert main(["report", str(tmp_path)]) == ExitCode.DONE


def test_a_record_without_its_maker_is_reported(tmp_path: Path) -> None:
    """Records of several clients were written without ``versions.fabtune``, some steps without a phase."""
    old = raw_of(BEFORE)
    del old["versions"]["fabtune"], old["steps"][0]["phase"]
    (tmp_path / "a.run.json.gz").write_bytes(gzip.compress(json.dumps(old).encode()))
    assert main(["report", str(tmp_path)]) == ExitCode.DONE
    assert suite.load(tmp_path)[0][0].versions.fabtune == ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda old: old["steps"][0].pop("name"), "key 'steps[0].name' is missing"),
        (lambda old: old["steps"][1].update(samples=5), "key 'steps[1].samples': found 5 (integer), allowed: array"),
        (lambda old: old["steps"][1]["samples"][2].update({"time.unix": "now"}),
         "key 'steps[1].samples[2].time.unix': found 'now' (text), allowed: number"),
        (lambda old: old["path"].update(rtt_ms="far"), "key 'path.rtt_ms': found 'far' (text), allowed: number"),
        (lambda old: old.update(host=[]), "key 'host': found [] (array), allowed: a table with the keys name, kernel"),
    ],
)  # fmt: skip
def test_a_damaged_record_is_refused_by_its_key(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    old = raw_of(BEFORE)
    change(old)
    path = tmp_path / "a.run.json.gz"
    path.write_bytes(gzip.compress(json.dumps(old).encode()))
    with pytest.raises(InputError) as error:
        recordfile.read(path)
    assert str(error.value).startswith(str(path)) and says in str(error.value)


def of_fio(key: str, value: object) -> Callable[[dict[str, Any]], object]:
    """A change of what fio said of reading in the first step."""
    return lambda old: old["steps"][0]["fio"]["jobs"][0]["read"].update({key: value})


def of_step(**keys: object) -> Callable[[dict[str, Any]], object]:
    return lambda old: old["steps"][0].update(keys)


def kept(old: dict[str, Any], path: Path) -> None:
    path.write_bytes(gzip.compress(json.dumps(old).encode()))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (of_step(fio=[]), "key 'steps[0].fio': found [] (array), allowed: a table with the keys jobs"),
        (of_step(fio={"version": 3}), "key 'steps[0].fio.jobs' is missing"),
        (of_step(fio={"jobs": "x"}), "key 'steps[0].fio.jobs': found 'x' (text), allowed: array"),
        (of_step(fio={"jobs": [{}]}), "key 'steps[0].fio.jobs[0].read' is missing"),
        (of_step(fio={"jobs": [None]}), "key 'steps[0].fio.jobs[0]': found None (null), allowed: a table"),
        (of_step(fio={"jobs": [[1]]}), "key 'steps[0].fio.jobs[0]': found [1] (array), allowed: a table"),
        (lambda old: old["steps"][0]["fio"]["jobs"][0].update(read={}), "fio.jobs[0].read.total_ios' is missing"),
        (lambda old: old["steps"][0]["fio"]["jobs"][0].update(read="x"), "fio.jobs[0].read': found 'x' (text)"),
        (of_fio("io_bytes", "many"), "read.io_bytes': found 'many' (text), allowed: integer"),
        (of_fio("io_bytes", 10**400), "(integer), allowed: 0 to 18446744073709551615"),
        (of_fio("total_ios", -1), "read.total_ios': found -1 (integer), allowed: 0 to"),
        (of_fio("runtime", None), "read.runtime': found None (null), allowed: integer"),
        (of_fio("clat_ns", []), "read.clat_ns': found [] (array), allowed: a table"),
        (of_fio("clat_ns", {"bins": {"x": 1}}), "clat_ns.bins': found {'x': 1} (table), allowed: a table of nanosec"),
        (of_fio("clat_ns", {"bins": {"5": 10**400}}), "read.clat_ns.bins': found {'5': 1"),
        (of_fio("clat_ns", {"bins": {"5": "x"}}), "read.clat_ns.bins.5': found 'x' (text), allowed: integer"),
        (of_fio("lat_ns", {"N": 1}), "read.lat_ns.mean' is missing"),
        (of_step(iperf3="x"), "key 'steps[0].iperf3': found 'x' (text), allowed: a table with the keys end"),
        (of_step(iperf3={"error": {}}), "key 'steps[0].iperf3.end' is missing"),
        (of_step(iperf3={"end": {}}), "key 'steps[0].iperf3.end.sum_received' is missing"),
        (of_step(iperf3={"end": {"sum_received": {"bits_per_second": "fast"}}}),
         "key 'steps[0].iperf3.end.sum_received.bits_per_second': found 'fast' (text), allowed: number"),
        (lambda old: old.update(label="\ud800"), "key 'label': found '\\ud800' (text), allowed: text of whole"),
    ],
)  # fmt: skip
def test_an_odd_record_is_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], object], says: str
) -> None:
    kept(raw_of(BEFORE), tmp_path / "a.run.json.gz")
    odd = raw_of(BEFORE)
    change(odd)
    kept(odd, tmp_path / "b.run.json.gz")
    with pytest.raises(InputError) as error:
        recordfile.read(tmp_path / "b.run.json.gz")
    assert str(error.value).startswith(str(tmp_path / "b.run.json.gz")) and says in str(error.value)
    assert main(["report", str(tmp_path)]) == ExitCode.FAILED
    assert "b.run.json.gz" in capsys.readouterr().err
    assert "Not used" in (tmp_path / "report.html").read_text()
    assert main(["compare", *(str(tmp_path / f"{name}.run.json.gz") for name in "ab")]) == ExitCode.USAGE


def of_sample(number: int, **keys: object) -> Callable[[dict[str, Any]], object]:
    """A change of a sample of the first step, one of None taken from it."""

    def change(old: dict[str, Any]) -> None:
        sample = old["steps"][0]["samples"][number]
        sample.update({name.replace("__", "."): value for name, value in keys.items()})
        for name in [name for name, value in sample.items() if value is None]:
            del sample[name]

    return change


def of_idle(*places: int) -> Callable[[dict[str, Any]], object]:
    """As idle host's samples those of the load at `places`; below 0 one with nothing in it."""
    return lambda old: old["steps"][0].update(
        idle=[old["steps"][0]["samples"][place] if place >= 0 else {} for place in places]
    )


def of_edge(**keys: object) -> Callable[[dict[str, Any]], object]:
    return lambda old: [old["steps"][0][edge].update(keys) for edge in ("before", "after")]


WHOLE_NIC, WHOLE_SOCKET = dict.fromkeys(NIC, 1), {"cwnd_segments": 10, "rtt_ms": 20.5}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (of_sample(1, time__monotonic=None), "key 'steps[0].samples[1]': found {"),
        (of_sample(1, time__unix=None), "allowed: a table with time.unix, time.monotonic, and all or none of disk.d"),
        (of_sample(2, disk__dev__write_bytes=None), "key 'steps[0].samples[2]': found {"),
        (of_sample(0, kernel__all__cpu__irq__soft=None), "key 'steps[0].samples[0]': found {"),
        (of_sample(1, time__monotonic=0), "key 'steps[0].samples': found [{"),
        (of_sample(1, time__monotonic=0), "allowed: samples, each later by time.monotonic"),
        (of_idle(0, -1), "key 'steps[0].idle[1]': found {} (table), allowed: a table with time.unix, time.monotonic"),
        (of_idle(0), "key 'steps[0].idle': found [{"),
        (of_idle(0, 1, 2), "allowed: none or two samples, the second later"),
        (of_idle(1, 1), "key 'steps[0].idle': found [{"),
        (of_edge(nics={"e": WHOLE_NIC, "f": {"rx_dropped": 0}}), "key 'steps[0].before.nics.f': found {'rx_dropped"),
        (of_edge(nics={"e": {}}), "allowed: a table with rx_bytes, rx_packets, rx_dropped, tx_bytes, tx_packets"),
        (of_edge(sockets=[WHOLE_SOCKET, {}]), "key 'steps[0].before.sockets[1]': found {} (table), allowed: a table w"),
        (of_edge(sockets=[WHOLE_SOCKET | {"rtt_ms": "x"}]), "key 'steps[0].before.sockets[0]': found {"),
    ],
)  # fmt: skip
def test_readings_without_what_their_readers_need_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], object], says: str
) -> None:
    """A record was read that `report` then ended on with an error of our own."""
    odd = raw_of(BEFORE)
    # What is whole is read.
    of_idle(0, 1)(odd)
    of_edge(nics={"e": WHOLE_NIC}, sockets=[WHOLE_SOCKET], iscsi={"1": {}})(odd)
    kept(odd, tmp_path / "whole.run.json.gz")
    assert main(["report", str(tmp_path)]) == ExitCode.DONE
    change(odd)
    kept(odd, tmp_path / "odd.run.json.gz")
    with pytest.raises(InputError) as error:
        recordfile.read(tmp_path / "odd.run.json.gz")
    assert str(error.value).startswith(str(tmp_path / "odd.run.json.gz")) and says in str(error.value)
    assert main(["report", str(tmp_path)]) == ExitCode.FAILED
    assert "odd.run.json.gz" in capsys.readouterr().err


def nothing_moved(old: dict[str, Any]) -> None:
    old["path"] = {"rtt_ms": 10.0, "rate_bytes_per_s": 1.25e8}
    for step in old["steps"]:
        for op in ("read", "write"):
            step["fio"]["jobs"][0][op]["runtime"] = 0


@pytest.mark.parametrize(
    "change",
    [
        nothing_moved,
        lambda old: old["workload"].update(name="net"),
        lambda old: old.update(workload={"name": "net"}, steps=[]),
        lambda old: old.update(
            workload={"name": "net"}, steps=[old["steps"][0] | {"parameters": {}, "iperf3": IPERF3, "fio": None}]
        ),
        lambda old: old["steps"][0]["fio"].update(jobs=[]),
        lambda old: old["steps"][0].update(fio=None),
    ],
)  # fmt: skip
def test_a_record_that_says_little_is_reported(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    little = raw_of(BEFORE)
    change(little)
    for number, name in enumerate("ab"):
        kept(little | {"started_unix_s": float(number)}, tmp_path / f"{name}.run.json.gz")
    assert main(["report", str(tmp_path)]) == ExitCode.DONE
    assert main(["report", str(tmp_path), "--json"]) == ExitCode.DONE


def test_keys_of_a_later_fabtune_are_kept() -> None:
    old = raw_of(BEFORE)
    old["weather"], old["steps"][0]["mood"] = {"rain": True}, "good"
    assert json.loads(json.dumps(runrecord.as_json(runrecord.read(old, "made")))) == old


def test_readings_of_fabstat_belong_to_the_step() -> None:
    step = attrs.evolve(make_record(1).steps[0], fabstat=Readings("a", "b"))
    written: dict[str, Any] = runrecord.as_json(attrs.evolve(make_record(1), steps=(step,)))
    assert written["steps"][0]["fabstat"] == {"before": "a", "after": "b"}

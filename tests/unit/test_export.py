# SPDX-License-Identifier: GPL-2.0-or-later
"""The metrics: read back by prometheus_client's own parsers, held against what the host shows, and served."""

import contextlib
import dataclasses
import gzip
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hosttree
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from fabtune.cli.main import main
from fabtune.errors import FabtuneError, InputError
from fabtune.export import gather, kept, reader, verified, web
from fabtune.export.exposition import LATENCIES, METRICS, render
from fabtune.export.families import BUCKETS_NS, OPENMETRICS, PROMETHEUS, labels
from fabtune.export.gather import Gathered, Gatherer
from fabtune.host import sessions
from fabtune.host.sockets import TcpSocket
from fabtune.stat import Endpoint, Snapshot, parse, snapshot
from fabtune.stat.stuck import parse_stuck
from fabtune.tune.verify import Drift

TOP = Path(__file__).resolve().parents[2]
# The module's bounds: every ns below 16, then sixteenths of octaves (kmod/histogram.h).
FROM_NS = [*range(16), *(((16 + step) << shift) for shift in range(36) for step in range(16))]


def stats(devices: str, enabled: int = 1) -> Snapshot:
    """Return a reading with `devices`, as the module would print them."""
    head = (
        f"# fabstat 1\nmodule version=0.2.0 enabled={enabled} scsi=1 clock=counter loaded_ns=5 time_ns=9000000000 "
        "stuck_ms=60000 depth_modulus_ns=0 memory_bytes=4096 memory_limit_bytes=8192 memory_refused=0 untracked=3 "
        f"missing=-\nbuckets from_ns {' '.join(map(str, FROM_NS))}\n"
        "event_names task_set_full busy target_busy timeout error_io error_medium\n"
    )
    return parse(head + devices)


def device(number: int, disk: str, buckets: str = "", state: str = "live", parent: str = "-") -> str:
    """Return a device's records; `buckets` are those of its reads."""
    count = sum(int(one.partition(":")[2]) for one in buckets.split())
    return (
        f"device id={number} state={state} disk={disk} dev=8:{number} diskseq={number} hctl=2:0:0:{number} "
        f"driver=iscsi_tcp parent={parent} seen_ns=6 time_ns=9000000000 in_flight=2 highest=7 limit=32 forgotten=0 "
        "eh_wakeups=1 depth_ns=1500000000 at_limit_ns=250000000\nevents task_set_full=4\n"
        f"op id={number} op=read issued={count} completed={count} sent_back=1 bytes=4096 errors=1 device_ns=2000000000 "
        f"total_ns=3000000000 refused=0 refused_ns=0\nerrors id={number} op=read error_medium=1\n"
        f"histogram id={number} op=read time=device count={count}{buckets and ' ' + buckets}\n"
    )


def gathered(reading: Snapshot | None, **more: object) -> Gathered:
    """Return what is gathered of a host with nothing but `reading`."""
    watched = [gather.WatchedDevice(one, Endpoint("iscsi", 'iqn.x:"a"', "[::1]:3260"), "") for one in reading.devices] \
        if reading else []  # fmt: skip
    whole = Gathered(1.5, reading, tuple(watched), 0, None, (), None, None, {}, 0.25)
    return dataclasses.replace(whole, **more)


# Not every prometheus_client has types.
PARSERS: dict[str, Callable[[str], Iterator[Any]]] = {PROMETHEUS: parse_prometheus, OPENMETRICS: parse_openmetrics}
Found = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(found: Gathered) -> Found:
    """Return every sample by name and labels, the same from both forms."""
    both: list[Found] = []
    for form, parser in PARSERS.items():
        families = list(parser("".join(render(found, form))))
        both.append({
            (one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples
        })  # fmt: skip
        assert all(family.documentation and family.type != "unknown" for family in families)
    assert both[0] == both[1]
    return both[0]


def value(found: Found, name: str, **wanted: str) -> float:
    """Return the one sample of `name` that has the labels `wanted`."""
    (only,) = [one for (other, has), one in found.items() if other == name and wanted.items() <= dict(has).items()]
    return only


def test_buckets_are_bounds_of_the_module_so_that_nothing_is_counted_in_a_wrong_one() -> None:
    assert set(BUCKETS_NS) <= set(FROM_NS) and len(BUCKETS_NS) == 16
    # One request in each of the module's buckets.
    reading = stats(device(1, "sda", " ".join(f"{index}:1" for index in range(len(FROM_NS)))))
    found = samples(gathered(reading))
    for bound in BUCKETS_NS:
        ends = sum(end <= bound for end in FROM_NS[1:])
        assert value(found, "fabtune_device_latency_seconds_bucket", le=repr(bound / 1e9)) == ends
    assert value(found, "fabtune_device_latency_seconds_bucket", le="+Inf") == len(FROM_NS)
    assert value(found, "fabtune_device_latency_seconds_count") == len(FROM_NS)
    assert value(found, "fabtune_device_latency_seconds_sum") == 2.0


def test_a_device_s_counters_are_in_base_units_with_its_target_and_portal() -> None:
    found = samples(gathered(stats(device(1, "sda", "300:3"))))
    mine = {"device": "sda", "target": 'iqn.x:"a"', "portal": "[::1]:3260"}
    assert value(found, "fabtune_in_flight_seconds", **mine) == 1.5
    assert value(found, "fabtune_at_limit_seconds_total", **mine) == 0.25
    assert value(found, "fabtune_refusals_total", kind="task_set_full", **mine) == 4
    assert value(found, "fabtune_refusals_total", kind="busy", **mine) == 0
    assert value(found, "fabtune_request_errors_total", **{"class": "medium"}, **mine) == 1
    # Each request was issued once: the total times would be the device times again.
    assert not [name for name, _ in found if name.startswith("fabtune_total")]
    retried = stats(device(1, "sda", "300:3") + "histogram id=1 op=read time=total count=3 300:2 310:1\n")
    assert value(samples(gathered(retried)), "fabtune_total_latency_seconds_sum", op="read", **mine) == 3.0
    assert value(found, "fabtune_module_untracked_total") == 3 and value(found, "fabtune_stuck_threshold_seconds") == 60
    # Nothing was refused: no series of refused times.
    assert not [name for name, _ in found if name.startswith("fabtune_refused")]


def test_the_first_burst_of_failures_is_an_increase_of_a_series_that_was_there() -> None:
    """The series of a class of errors begins with its first error, and `rate` sees no increase in what begins."""
    well = device(1, "sda", "300:3").replace("errors=1 ", "errors=0 ")
    well = well.replace("errors id=1 op=read error_medium=1\n", "")
    before = samples(gathered(stats(well)))
    after = samples(gathered(stats(well.replace("errors=0 ", "errors=500 "))))
    failed = [value(found, "fabtune_failed_requests_total", device="sda", op="read") for found in (before, after)]
    assert failed == [0, 500] and not [name for name, _ in before if name == "fabtune_request_errors_total"]


def test_no_counter_falls_where_the_integral_of_the_depth_was_off() -> None:
    """It fell by 2 ms, as of a counter that had begun anew: to Prometheus a mean depth of 1.498 s more."""
    busy, idle = (
        device(1, "sda", "300:3").replace("depth_ns=1500000000", f"depth_ns={depth_ns} depth_error_ns={error_ns}")
        for depth_ns, error_ns in ((1_500_000_000, 2_000_000), (1_498_000_000, 0))
    )
    before, after = (samples(gathered(stats(one))) for one in (busy, idle))
    counters = {family.name for family in METRICS if family.kind == "counter"}
    fallen = [name for name, has in before if name in counters and after[name, has] < before[name, has]]
    assert not fallen and value(after, "fabtune_in_flight_seconds") == pytest.approx(1.498, abs=1e-5)
    rules = (MONITORING / "fabtune.rules.yml").read_text()
    counted = set(re.findall(r"(?:rate|increase|resets)\((fabtune_\w+)", rules))
    assert counted <= counters | {f"{one.name}_{part}" for one in LATENCIES.values() for part in ("bucket", "count")}


def test_an_integral_that_may_be_off_by_any_time_is_not_exported() -> None:
    torn = device(1, "sda").replace("at_limit_ns=", "torn=1 at_limit_ns=")
    found = samples(gathered(stats(torn + device(2, "sdb"))))
    assert [dict(has)["device"] for name, has in found if name == "fabtune_in_flight_seconds"] == ["sdb"]


@pytest.mark.parametrize("state", ["live", "dying"])
def test_a_request_that_hangs_on_a_disk_that_is_being_removed_stays_in_the_metrics(
    state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "stuck id={} disk=sda dev=8:0 op=read sector=8 bytes=4096 age_ns={} state={} issue_age_ns=0 sent_back=0\n"
    head = "# fabstat-stuck 1\nlist time_ns=9 threshold_ns=60000000000 requests=3\n"
    # One of a disk that had the name before, one of this one, and one of a disk that nothing was counted of yet.
    hung = [(3, 99 * 10**9, "in_flight"), (4, 90 * 10**9, "in_flight"), (0, 80 * 10**9, "before_load")]
    monkeypatch.setattr(gather, "snapshot", lambda: stats(device(4, "sda", state=state)))
    monkeypatch.setattr(gather, "stuck", lambda: parse_stuck(head + "".join(line.format(*one) for one in hung)))
    monkeypatch.setattr(gather, "live_sessions", list)
    found = samples(Gatherer().gather())
    assert value(found, "fabtune_stuck_oldest_seconds", device="sda") == 90
    assert value(found, "fabtune_stuck_requests", device="sda") == 2


def test_stuck_requests_are_counted_at_their_disk_with_the_age_of_the_oldest() -> None:
    text = "# fabstat-stuck 1\nlist time_ns=9 threshold_ns=60000000000 requests=2\n" + "".join(
        f"stuck id={number} disk=sda dev=8:0 op=read sector=8 bytes=4096 age_ns={age}000000000 state=in_flight "
        f"issue_age_ns={age}000000000 sent_back=0\n" for number, age in ((1, 70), (0, 65))
    )  # fmt: skip
    found = samples(gathered(stats(device(1, "sda") + device(2, "sdb")), stuck=parse_stuck(text)))
    assert [value(found, "fabtune_stuck_requests", device=disk) for disk in ("sda", "sdb")] == [2, 0]
    assert [value(found, "fabtune_stuck_oldest_seconds", device=disk) for disk in ("sda", "sdb")] == [70, 0]


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tree of a host with two sessions and without the module."""
    hosttree.enter(hosttree.make(tmp_path, 2), monkeypatch)
    monkeypatch.setattr(gather, "snapshot", lambda: snapshot(tmp_path / "fabstat"))
    monkeypatch.setenv("FABTUNE_RUNTIME_DIR", str(tmp_path / "run/fabtune"))
    return tmp_path


def test_without_the_module_the_metrics_say_so(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = samples(Gatherer().gather())
    assert value(found, "fabtune_up") == 1
    assert value(found, "fabtune_source_up", source="fabstat") == 0
    assert value(found, "fabtune_session_state", target=hosttree.iqn(2), state="LOGGED_IN") == 1
    assert main(["export", "--textfile", str(bare / "metrics.prom")]) == 0
    # What is missing for one reason is said once.
    said = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in said] == ["fabstat, stuck", "verify"][: len(said)], said
    assert (bare / "metrics.prom").stat().st_mode & 0o777 == 0o644


def test_nothing_but_metrics_of_fabtune_is_replaced_by_a_textfile(
    bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whose = bare / "whose.prom"
    whose.write_text("# HELP node_load1 somebody else's\n")
    pipe, link, elsewhere = bare / "pipe", bare / "link", bare / "elsewhere"
    os.mkfifo(pipe)
    link.symlink_to(elsewhere)
    for path in (whose, pipe, link, bare, bare / "missing/x.prom"):
        assert main(["export", "--textfile", str(path)]) in (1, 2), path
        # Of drafts nobody knows.
        assert str(path) in capsys.readouterr().err
    assert whose.read_text().endswith("somebody else's\n") and pipe.is_fifo() and link.is_symlink()
    assert not elsewhere.exists()
    assert main(["export", "--textfile", str(bare / "own.prom")]) == 0
    (bare / "empty.prom").touch()
    assert main(["export", "--textfile", str(bare / "empty.prom")]) == 0
    assert main(["export", "--textfile", str(bare / "own.prom")]) == 0


def test_a_disk_that_is_gone_or_has_lost_its_session_keeps_no_series_under_other_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = {1: Endpoint("iscsi", "iqn.x:one", "p"), 2: Endpoint("iscsi", "", ""), 3: Endpoint()}
    readings = [stats(device(1, "sda") + device(2, "sdb") + device(3, "vda") + device(4, "sdc", state="gone"))]
    monkeypatch.setattr(gather, "snapshot", lambda: readings[-1])
    monkeypatch.setattr(gather, "endpoint", lambda one: ends[one.id])
    watcher = Gatherer()
    assert [one.device.disk for one in watcher.gather().devices] == ["sda", "vda"]
    # Its session goes between two looks: it keeps its labels as long as the module has it.
    ends[1] = Endpoint("iscsi", "", "")
    assert watcher.gather().devices[0].endpoint.target == "iqn.x:one"
    # A later disk by its name is another one.
    readings.append(stats(device(1, "sda") + device(3, "vda") + device(9, "sda")))
    ends[9] = Endpoint("iscsi", "iqn.x:two", "p")
    assert {one.device.id for one in watcher.gather().devices} == {9, 3}


def test_beyond_the_most_devices_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "snapshot", lambda: stats("".join(device(n, f"sd{n}") for n in range(5))))
    monkeypatch.setattr(gather, "endpoint", lambda one: Endpoint())
    found = Gatherer(most_devices=3).gather()
    assert (len(found.devices), found.left_out) == (3, 2)


def _socket(port: int, local_port: int, **more: int) -> TcpSocket:
    return TcpSocket("10.0.0.9", "10.0.0.1", local_port, port, 1.5, 1.0, 0, 10, 1448, 7, "cubic", 100, 200, **more)


def _session(state: str, local_port: int, place: int = 1) -> sessions.Session:
    return sessions.Session(
        place, "iqn.x:t", "10.0.0.1:3260", "default", state, "10.0.0.1", 3260, local_port, (), 113, {}, place
    )  # fmt: skip


def test_a_session_has_its_own_socket_or_none() -> None:
    both = (_session("LOGGED_IN", 1000), _session("FAILED", 1001, 2))
    one, none = gather._sockets_of(both, [_socket(3260, 1000, busy_us=2500000)])
    assert one is not None and none is None
    # A kernel that tells no port: of two connections it cannot be told whose is whose.
    assert list(gather._sockets_of([_session("LOGGED_IN", 0)], [_socket(3260, 1), _socket(3260, 2)])) == [None]
    found = samples(gathered(None, sessions=tuple(zip(both, (one, none), strict=True))))
    assert value(found, "fabtune_tcp_busy_seconds_total", session="1") == 2.5
    assert value(found, "fabtune_session_state", session="2", state="FAILED") == 1
    assert value(found, "fabtune_session_state", session="2", state="LOGGED_IN") == 0
    assert not [has for name, has in found if name == "fabtune_tcp_rtt_seconds" and ("session", "2") in has]


def test_what_verify_published_is_exported_and_a_damaged_file_is_a_source_that_is_down(bare: Path) -> None:
    drifts = [Drift("tcp.rmem_max", "host", "1", "2", True), Drift("session", "x", "new", "old", False, due=True)]
    file = kept.runtime_dir() / "verify.json"
    file.parent.mkdir(parents=True)
    kept.save(verified.of_drifts(drifts, 1e9))
    found = samples(Gatherer().gather())
    assert value(found, "fabtune_drifted_values", tunable="tcp.rmem_max") == 1
    assert value(found, "fabtune_drift_values") == 1 and value(found, "fabtune_due_values") == 1
    assert (
        value(found, "fabtune_verify_time_seconds") == 1e9 and value(found, "fabtune_source_up", source="verify") == 1
    )
    file.write_text(json.dumps({"fabtune_verified": 1}))
    found = samples(Gatherer().gather())
    assert value(found, "fabtune_source_up", source="verify") == 0
    assert not [name for name, _ in found if name == "fabtune_drift_values"]


def test_what_was_applied_and_nobody_has_verified_since_the_boot_is_a_source_that_is_down(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where verify failed after each boot its source was up, and no metric was there that could grow old."""
    monkeypatch.setenv("FABTUNE_STATE_DIR", str(bare / "state"))

    def up() -> float:
        return value(samples(Gatherer().gather()), "fabtune_source_up", source="verify")

    assert up() == 1
    hosttree.put(bare / "state/journal/20260101T000000Z-000.jsonl", "")
    assert up() == 0
    assert main(["export", "--textfile", "-"]) == 0
    assert "verify: no verification has been published since this host booted" in capsys.readouterr().err
    kept.save(verified.of_drifts([], 0.0))
    assert up() == 1


@pytest.fixture
def served(bare: Path) -> Iterator[Callable[..., tuple[bytes, dict[str, str]]]]:
    """Return what asks a server before a reader, as the service has them."""
    path = kept.runtime_dir() / "reader.sock"
    listening = reader.listener(path)
    threading.Thread(target=reader.MetricsReader().serve, args=(listening,), daemon=True).start()
    server = web.MetricsServer(("127.0.0.1", 0), lambda form: reader.answer_of(path, form), lambda text: None)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def ask(where: str = "/metrics", **headers: str) -> tuple[bytes, dict[str, str]]:
        words = {name.replace("_", "-"): text for name, text in headers.items()}
        url = f"http://127.0.0.1:{server.server_address[1]}{where}"
        with urllib.request.urlopen(urllib.request.Request(url, headers=words)) as answer:
            return answer.read(), dict(answer.headers)

    yield ask
    server.shutdown()
    server.server_close()


def test_the_server_answers_in_the_form_and_coding_that_is_asked_for(
    served: Callable[..., tuple[bytes, dict[str, str]]],
) -> None:
    plain, headers = served()
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4") and b"fabtune_up 1\n" in plain
    packed, headers = served(Accept_Encoding="gzip", Accept="application/openmetrics-text; version=1.0.0")
    assert headers["Content-Encoding"] == "gzip" and gzip.decompress(packed).endswith(b"# EOF\n")
    assert b"/metrics" in served("/")[0]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        served("/etc/passwd")


def test_a_reader_is_not_pushed_aside_and_one_that_is_gone_is_said() -> None:
    said: list[str] = []

    def fetch(form: str) -> bytes:
        raise FabtuneError("no reader")

    server = web.MetricsServer(("127.0.0.1", 0), fetch, said.append)
    assert gzip.decompress(server.body(PROMETHEUS)).endswith(b"fabtune_up 0\n")
    text = gzip.decompress(server.body(OPENMETRICS)).decode()
    assert text.endswith("fabtune_up 0\n# EOF\n")
    # Once, not at every scrape.
    assert said == ["no reader"]
    server.server_close()


def test_who_asks_slowly_is_hung_up_on_and_who_comes_meanwhile_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_QUESTION_WAIT_S", 0.2)
    said: list[str] = []
    server = web.MetricsServer(("127.0.0.1", 0), lambda form: gzip.compress(b"fabtune_up 1\n"), said.append)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
    for one in slow:
        one.sendall(b"GET /metrics HTTP/1.0\r\nX: ")
    # A ninth is turned away as long as they are there; where they are gone already, it is answered.
    late = socket.create_connection(("127.0.0.1", port))
    # A byte now and then would keep a limit to the silence from ever being reached.
    trickled = 0
    with contextlib.suppress(OSError):
        while trickled < 2000:
            slow[0].sendall(b"a")
            trickled += 1
            threading.Event().wait(0.01)
    assert trickled < 2000
    for one in slow:
        with contextlib.suppress(ConnectionResetError):
            assert one.recv(1) == b""
        one.close()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert answer.read() == b"fabtune_up 1\n"
    assert len(said) <= 1 and all("8 clients" in text for text in said)
    late.close()
    server.shutdown()
    server.server_close()


_HOG = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
held = []
for _ in range(64):
    one = socket.socket(socket.AF_UNIX)
    one.connect(sys.argv[1])
    held.append(one)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's connections are made by root")
def test_another_user_s_silent_connections_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch, bare: Path) -> None:
    # As long as they like: who waits for them waits for ever.
    monkeypatch.setattr(reader, "_REQUEST_WAIT_S", None)
    monkeypatch.setattr(reader, "_CLIENT_WAIT_S", None)
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        path = Path(name) / "reader.sock"
        listening = reader.listener(path)
        threading.Thread(target=reader.MetricsReader().serve, args=(listening,), daemon=True).start()
        words = [sys.executable, "-c", _HOG, str(path)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as hog:
            assert hog.stdout and hog.stdout.readline() == "held\n"
            assert b"fabtune_up 1" in gzip.decompress(reader.answer_of(path, PROMETHEUS))
            hog.communicate("")
        assert hog.returncode == 0


def test_a_textfile_is_for_everybody_to_read_whatever_the_umask(bare: Path) -> None:
    file = bare / "fabtune.prom"
    umask = os.umask(0o077)
    try:
        assert main(["export", "--textfile", str(file)]) == 0
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(umask)
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_second_reader_is_refused(bare: Path) -> None:
    path = kept.runtime_dir() / "reader.sock"
    with reader.listener(path), pytest.raises(FabtuneError, match="another reader"):
        reader.listener(path)
    # What a killed one left behind is in nobody's way.
    with reader.listener(path) as again:
        assert again.family == socket.AF_UNIX


@pytest.mark.parametrize("text", ["13260", "localhost:1", "127.0.0.1:x", "127.0.0.1:70000", "", "[::1]", "1.2.3.4:"])
def test_a_wrong_address_is_said(text: str) -> None:
    with pytest.raises(InputError, match="expected ADDRESS:PORT"):
        web.address_of(text)


def test_root_serves_the_network_only_as_the_service_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert main(["export", "--listen", "0.0.0.0:0"]) == 2


def test_names_from_others_cannot_break_a_line() -> None:
    assert labels({"a": 'x"\n\\', "b": "\udc80"}) == r'a="x\"\n\\",b="?"'


def test_every_metric_is_in_the_documentation() -> None:
    text = (TOP / "Documentation/monitoring.md").read_text()
    named = set(re.findall(r"^\| `(fabtune_\w+)`", text, re.MULTILINE))
    assert named == {family.name for family in (*LATENCIES.values(), *METRICS)}


MONITORING = TOP / "userspace/monitoring"


def test_rules_and_dashboard_ask_for_metrics_that_are_there() -> None:
    rules = (MONITORING / "fabtune.rules.yml").read_text()
    dashboard = json.loads((MONITORING / "fabtune.dashboard.json").read_text())
    asked = rules + "".join(one["expr"] for panel in dashboard["panels"] for one in panel.get("targets", []))
    recorded = set(re.findall(r"record: (\S+)", rules))
    exported = {family.name for family in METRICS}
    for family in LATENCIES.values():
        exported |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
    assert set(re.findall(r"fabtune:\w+:\w+", asked)) == recorded
    assert set(re.findall(r"fabtune_\w+", asked)) <= exported


def test_every_alert_has_a_test_that_makes_it_fire() -> None:
    rules, tests = ((MONITORING / name).read_text() for name in ("fabtune.rules.yml", "fabtune.rules.test.yml"))
    fired = re.findall(r"alertname: (\w+)\n +exp_alerts:\n", tests)
    assert set(re.findall(r"alert: (\w+)", rules)) == set(fired)

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What many hosts cost one Prometheus: CPU and memory while it scrapes and records, queries, bytes a host and day.

    prometheus_fleet.py --hosts 1000 --minutes 12 --out FILE

The hosts are simulated (simulated_hosts.py), the Prometheus and its clock are real: the minutes are minutes, but cost
little.  Of the dashboard every query is asked as it is drawn, for all hosts and the time since the start.  What a day
takes is written from a day of some hosts by promtool, which also computes what the rules record of it.  Returns 1 where
a bar is missed.
"""

import argparse
import contextlib
import http.server
import json
import os
import re
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace"), str(TOP / "tests/ops")]

from simulated_hosts import STEP_S, TARGETS, Host  # noqa: E402

from fabtune.export.families import CONTENT_TYPES, OPENMETRICS, PROMETHEUS  # noqa: E402

MONITORING = TOP / "userspace/monitoring"
RULES, DASHBOARD = MONITORING / "fabtune.rules.yml", MONITORING / "fabtune.dashboard.json"
BARS = {"cpu_cores": 0.1, "rss_gb": 2.0, "slowest_recorded_query_cpu_s": 0.2, "mb_per_host_and_day": 1.5}
# What the documentation tells those with many hosts to set.
SETTINGS = dict(re.findall(r"^    (GO[A-Z]+)=(\w+)$", (TOP / "Documentation/monitoring.md").read_text(), re.MULTILINE))
# Rates look back five minutes: before that nothing is recorded.
WARM_UP_S = 360
DAY_S, DAY_HOSTS = 86400, 6
# promtool does not look at a group's own interval.
RECORDED_EVERY_S = 60 * int(re.findall(r"^ +interval: (\d+)m$", RULES.read_text(), re.MULTILINE)[0])
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def address(number: int) -> str:
    """Return the loopback address of host `number`."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


class _Scraped(http.server.BaseHTTPRequestHandler):
    """Answers for the host whose address was asked."""

    hosts: dict[str, Host]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        host = self.hosts[self.connection.getsockname()[0]]
        data = zlib.compress(host.metrics(PROMETHEUS, time.time()).encode(), 1, 31)
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPES[PROMETHEUS])
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024


@contextlib.contextmanager
def exporters(count: int) -> Iterator[int]:
    """Serve `count` hosts, each at its address, at the port that this returns."""
    _Scraped.hosts = {address(number): Host(number) for number in range(count)}
    with _Server(("", 0), _Scraped) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


class Prometheus:
    """A running one; `data` is its directory."""

    def __init__(self, work: Path, config: str, data: Path) -> None:
        (work / "prometheus.yml").write_text(config)
        with socket.create_server(("127.0.0.1", 0)) as free:
            where = "{}:{}".format(*free.getsockname())
        self.url = f"http://{where}"
        self._log = (work / "prometheus.log").open("w")
        self._process = subprocess.Popen(
            ["prometheus", f"--config.file={work / 'prometheus.yml'}", f"--storage.tsdb.path={data}",
             f"--web.listen-address={where}", "--storage.tsdb.retention.time=10y"],
            stdout=self._log, stderr=subprocess.STDOUT, env=os.environ | SETTINGS,
        )  # fmt: skip
        while self._process.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/-/ready"):
                return
            time.sleep(0.2)
        raise SystemExit((work / "prometheus.log").read_text())

    def cpu_s(self) -> float:
        """Return the CPU seconds that it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def rss_gb(self) -> float:
        """Return the most memory that it has had."""
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self._process.pid}/status").read_text())
        assert found
        return int(found[1]) * 1024 / 1e9

    def ask(self, kind: str, **words: object) -> list[object]:
        """Return the series that a query has; raises on one that is refused."""
        with urllib.request.urlopen(f"{self.url}/api/v1/{kind}?{urllib.parse.urlencode(words)}") as answer:
            found: list[object] = json.load(answer)["data"]["result"]
            return found

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
        self._log.close()


def panels() -> dict[str, str]:
    """Return every query of the dashboard for all hosts, by its panel's title and place."""
    found = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for place, target in enumerate(panel.get("targets", []), 1):
            found[f"{panel['title']} {place}"] = re.sub(r"\$\w+", ".*", target["expr"])
    return found


def queried(server: Prometheus, since_s: float, idle_cores: float) -> dict[str, dict[str, object]]:
    """Return what each query of the dashboard took, the least of five: CPU seconds without what goes on anyway."""
    found: dict[str, dict[str, object]] = {}
    for title, query in panels().items():
        costs = []
        for _ in range(5):
            before, started = server.cpu_s(), time.monotonic()
            series = server.ask("query_range", query=query, start=since_s, end=time.time(), step=STEP_S)
            costs.append(server.cpu_s() - before - idle_cores * (time.monotonic() - started))
        found[title] = {"cpu_s": round(max(min(costs), 0), 3), "series": len(series), "recorded": "fabtune:" in query}
    return found


def live(hosts: int, minutes: float, work: Path) -> dict[str, object]:
    """Scrape and record for some minutes after the first ones, and return what that took."""
    with exporters(hosts) as port:
        targets = json.dumps([f"{address(number)}:{port}" for number in range(hosts)])
        config = (
            f"global: {{scrape_interval: {STEP_S}s, evaluation_interval: {STEP_S}s}}\nrule_files: [{RULES}]\n"
            f"scrape_configs: [{{job_name: fabtune, static_configs: [{{targets: {targets}}}]}}]\n"
        )
        began_s = time.time()
        server = Prometheus(work, config, work / "data")
        try:
            time.sleep(WARM_UP_S)
            before, started = server.cpu_s(), time.monotonic()
            time.sleep(minutes * 60)
            cores = (server.cpu_s() - before) / (time.monotonic() - started)
            rss_gb = server.rss_gb()
            queries = queried(server, began_s, cores)
            up = len(server.ask("query", query="fabtune_up == 1"))
            series = server.ask("query", query="prometheus_tsdb_head_series or count({__name__=~'.+'})")
        finally:
            server.stop()
    recorded = [float(str(one["cpu_s"])) for one in queries.values() if one["recorded"]]
    return {
        "hosts": hosts, "hosts_up": up, "minutes": minutes, "series": _number(series), "cpu_cores": round(cores, 3),
        "rss_gb": round(rss_gb, 2), "slowest_recorded_query_cpu_s": max(recorded), "queries": queries,
    }  # fmt: skip


def _number(series: list[object]) -> int:
    (one,) = series
    assert isinstance(one, dict)
    return int(one["value"][1])


def day_of(number: int, begin_s: int) -> Iterator[str]:
    """Yield a day of one host in OpenMetrics with times, as Prometheus would have labelled it."""
    host = Host(number)
    own = f'instance="{address(number)}:13260",job="fabtune"'
    for at_s in range(begin_s, begin_s + DAY_S, STEP_S):
        for line in host.metrics(OPENMETRICS, at_s).splitlines():
            if line.startswith("#"):
                continue
            name, _, value = line.rpartition(" ")
            labelled = name.replace("{", "{" + own + ",", 1) if "{" in name else f"{name}{{{own}}}"
            yield f"{labelled} {value} {at_s}\n"


def a_day(work: Path) -> dict[str, float]:
    """Return the megabytes that a host and day takes, scraped and recorded."""
    begin_s = 20_000 * DAY_S
    text = work / "day.txt"
    with text.open("w") as file:
        for number in range(DAY_HOSTS):
            # All of one target.
            file.writelines(day_of(number * TARGETS, begin_s))
        file.write("# EOF\n")
    data, recorded = work / "day", work / "recorded"
    create = ["promtool", "tsdb", "create-blocks-from"]
    subprocess.run([*create, "openmetrics", text, data], check=True, capture_output=True)
    server = Prometheus(work, "{}\n", data)
    try:
        subprocess.run(
            [
                *create,
                "rules",
                f"--start={begin_s}",
                f"--end={begin_s + DAY_S}",
                f"--url={server.url}",
                f"--eval-interval={RECORDED_EVERY_S}s",
                f"--output-dir={recorded}",
                RULES,
            ],
            check=True,
            capture_output=True,
        )
    finally:
        server.stop()
    sizes = {"scraped": _size_mb(data), "recorded": _size_mb(recorded)}
    return {**{f"{name}_mb": round(size / DAY_HOSTS, 3) for name, size in sizes.items()},
            "mb_per_host_and_day": round(sum(sizes.values()) / DAY_HOSTS, 3)}  # fmt: skip


def _size_mb(data: Path) -> float:
    """Return what the blocks in `data` hold, with one index: Prometheus makes one block of those of two hours."""
    chunks = sum(path.stat().st_size for path in data.glob("*/chunks/*"))
    return (chunks + max(path.stat().st_size for path in data.glob("*/index"))) / 1e6


def main() -> int:
    """Measure, print, write; return 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--only", choices=["day", "live"])
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="prometheus-fleet-") as name:
        if args.only != "live":
            found |= a_day(Path(name))
        if args.only != "day":
            found |= live(args.hosts, args.minutes, Path(name))
    args.out.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    missed = [
        f"{key}: {found[key]}, bar {bar}" for key, bar in BARS.items() if key in found and float(str(found[key])) > bar
    ]
    if found.get("hosts_up", args.hosts) != args.hosts:
        missed.append(f"only {found['hosts_up']} of {args.hosts} hosts were scraped")
    for text in missed:
        print("MISSED", text)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

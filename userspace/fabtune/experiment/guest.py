# SPDX-License-Identifier: GPL-2.0-or-later
"""Inside a lab guest: brings one combination's path and tuning up, measures it, leaves records and points.

Run as ``python3 -m fabtune.experiment.guest SETTINGS-AS-JSON``.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from fabtune.errors import ExitCode, FabtuneError
from fabtune.experiment.peers import PEERS, apply_peer
from fabtune.experiment.settings import Settings
from fabtune.lab import iscsi, topology
from fabtune.measure import metrics, record, target, workload
from fabtune.measure.run import measure
from fabtune.measure.watch import seen_by_fabstat
from fabtune.model.path import NetworkPath
from fabtune.run import run

RESULTS = Path("/results")
MODULE = Path("/fabtune/kmod/fabstat.ko")
OPS = ("read", "write")
# LIO's default_cmdsn_depth
_FIRST_WINDOW = 64


def main() -> int:
    """Measure the combination given on the command line; results go to RESULTS."""
    settings: Settings = json.loads(sys.argv[1])
    try:
        points = run_combination(settings)
    except FabtuneError as error:
        print(f"fabtune: {error}", file=sys.stderr)
        return error.exit_code
    (RESULTS / "points.json").write_text(json.dumps(points, indent=1, sort_keys=True) + "\n")
    return 0


def run_combination(settings: Settings) -> list[dict[str, Any]]:
    """Return one point a direction.  Raises FabtuneError when the path, the tuning or the load fails."""
    path = topology.Path(
        rtt_ms=settings["rtt_ms"], rate_bit_per_s=settings["rate_bit_per_s"], loss=settings["loss"],
        loss_model=settings["loss_model"], mtu=settings["mtu"],
    )  # fmt: skip
    # The path before the login: a connection remembers the round trip that it began with.
    topology.up(path)
    iscsi.start_target()
    iscsi.start_initiator()
    run(["insmod", MODULE], what="loading fabstat.ko")
    disk = tune(settings)
    points: list[dict[str, Any]] = []
    for op in OPS:
        if settings["op"] in ("both", op):
            if points:
                # A connection of its own: what TCP learnt from the reads must not shape the writes.
                iscsi.logout()
                topology.forget_paths()
                disk = iscsi.login()
            points.append(measure_op(settings, path, disk, op))
    return points


def tune(settings: Settings) -> str:
    """Log in with the combination's profile in force on both ends and return the disk."""
    profile = settings["profile"]
    if profile in PEERS:
        apply_peer(profile)
        return iscsi.login()
    iscsi.login()
    path = ["--rtt", f"{settings['rtt_ms']:g}ms", "--rate", f"{settings['rate_bit_per_s']:.0f}bit"]
    if settings["known"] == "measured":
        path = measured_path(profile)
    # The target's new parameters wait for the login that the initiator's apply brings about.
    waits = (ExitCode.DONE, ExitCode.NEEDS_ACTION)
    fabtune(waits, "apply", profile, "--role", "target", "--netns", topology.TARGET, *path)
    if settings["queue_depth"] > _FIRST_WINDOW:
        # Demo mode remembers the command window of the first login.
        remembered = iscsi.demo_initiators()
        iscsi.logout()
        iscsi.forget(remembered)
        iscsi.login()
    fabtune((ExitCode.DONE,), "apply", profile, "--role", "initiator", "--allow-relogin", *path)
    return iscsi.wait_for_disk()


def measured_path(profile: str) -> list[str]:
    """Return the words that tell of the path what fabtune sees of it from the session that is there."""
    words = ["fabtune", "plan", profile, "--role", "initiator", "--rate", "measure", "--json"]
    seen = json.loads(run(words, what="measuring the path"))["path"]
    return ["--rtt", f"{seen['rtt_ms']:.3f}ms", "--rate", f"{seen['rate_bit_per_s']:.0f}bit"]


def fabtune(allowed: tuple[ExitCode, ...], *words: str) -> None:
    """Run the command as an administrator would, its output to ours.  Raises FabtuneError for another exit code."""
    status = subprocess.run(["fabtune", *words], check=False).returncode
    if status not in allowed:
        raise FabtuneError(f"fabtune {' '.join(words)}: exit {status}")


def measure_op(
    settings: Settings, path: topology.Path, disk: str, op: str, results: Path = RESULTS
) -> dict[str, Any]:
    """Measure one direction and return its point; the full record goes to `results`."""
    work = workload.load(settings["workload"])
    wanted = {"op": op, "block_bytes": settings["size_bytes"], "queue_depth": settings["queue_depth"]}
    work = work.with_parameters([f"{name}={value}" for name, value in wanted.items() if name in work.parameters])
    network = NetworkPath(path.rtt_ms / 1e3, path.rate_bit_per_s / 8, path.mtu)
    before = topology.qdisc_counters()
    taken = measure(
        work, target.find(f"/dev/{disk}"), label=settings["profile"], runtime_s=settings["runtime_s"],
        ramp_s=settings["ramp_s"], environment={"settings": settings, "qdiscs_before": before},
        path={"rtt_ms": path.rtt_ms, "rate_bytes_per_s": path.rate_bit_per_s / 8, "mtu": path.mtu},
    )  # fmt: skip
    after = topology.qdisc_counters()
    topology.assert_clean(before, after, path)
    taken["environment"]["qdiscs_after"] = after
    record.write(taken, results / f"{op}.run.json.gz")
    return point(settings, network, op, taken)


def point(settings: Settings, network: NetworkPath, op: str, taken: dict[str, Any]) -> dict[str, Any]:
    """Return the figures that tables and curves are made of."""
    figures = {one.key: one.value for step in taken["steps"] for one in metrics.of_step(step)}
    mb_per_s = figures[f"{op}_mb_per_s"]
    bound = bound_mb_per_s(settings, network)
    seen = seen_by_fabstat(taken["steps"][0], taken["target"]["disk"])
    p50, p99 = (seen.percentile(50, op), seen.percentile(99, op)) if seen else (None, None)
    if seen is None or p50 is None or p99 is None:
        raise FabtuneError(f"fabstat saw no {op} on {taken['target']['disk']}: is the module loaded?")
    return {
        "profile": settings["profile"] + ("-measured" if settings["known"] == "measured" else ""),
        "rtt_ms": settings["rtt_ms"],
        "loss": settings["loss"],
        "rate_mbit": settings["rate_bit_per_s"] / 1e6,
        "queue_depth": settings["queue_depth"],
        "size_bytes": settings["size_bytes"],
        "seed": settings["seed"],
        "op": op,
        "mb_per_s": round(mb_per_s, 2),
        "bound_mb_per_s": round(bound, 2),
        "fraction_of_bound": round(mb_per_s / bound, 4),
        "p50_ms": round(p50.value_ms, 3),
        "p99_ms": round(p99.value_ms, 3),
        "queue_full": seen.queue_full,
    }


def bound_mb_per_s(settings: Settings, network: NetworkPath) -> float:
    """Return min(line rate, queue depth x size / RTT): what no tuning can pass."""
    line = network.goodput_bytes_per_s
    in_flight_bytes: int = settings["queue_depth"] * settings["size_bytes"]
    return min(line, in_flight_bytes / network.rtt_s if network.rtt_s else line) / 1e6


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: GPL-2.0-or-later
"""Inside a lab guest: the path's own TCP, without storage, by window and number of connections."""

from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.lab import iperf3
from fabtune.lab.topology import TARGET_ADDRESS, target_namespace
from fabtune.measure import metrics, network, recordfile
from fabtune.model.factors import Settings
from fabtune.model.results import rounded

_PORT = 5201
_OPS = {"send": "write", "receive": "read"}


def measure(settings: Settings, results: Path) -> list[tuple[str, dict[str, float]]]:
    """Send and receive; return (direction as a block device would call it, figures).  The record goes to `results`."""
    with iperf3.listening(target_namespace(), _PORT):
        taken = network.measure(
            TARGET_ADDRESS, port=_PORT, seconds=settings.runtime_s, windows=(settings.window_bytes,),
            streams=(settings.streams,), label=settings.profile,
        )  # fmt: skip
    recordfile.write(taken, results / "net.run.json.gz")
    found = []
    for step in taken.steps:
        rates = [one.value for one in metrics.of_step(step) if one.key == "tcp_mb_per_s"]
        if not rates:
            raise FabtuneError(f"{step.name}: iperf3 reported no rate")
        found.append((_OPS[str(step.parameters["op"])], {"mb_per_s": rounded(rates[0], 2)}))
    return found

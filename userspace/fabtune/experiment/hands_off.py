# SPDX-License-Identifier: GPL-2.0-or-later
"""`fabtune tune`, told nothing, beside the load of a combination: what an experiment's profile `tune` stands for."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fabtune.errors import FabtuneError
from fabtune.experiment.tuners import HANDS_OFF
from fabtune.host.run import finish, launch
from fabtune.lab import cross, topology
from fabtune.lab.topology import EmulatedPath
from fabtune.model.factors import Settings

# What a record calls what was done.
DID = "fabtune_tune"
_RW = {"read": "read", "write": "write", "mixed": "rw"}
# Longer than any guest lives.
_FOR_GOOD_S = 100_000
# So many round trips more than the ramp: a connection has to find its window.
_SETTLING_ROUND_TRIPS = 10


def tuned_beside_load(settings: Settings, path: EmulatedPath, disks: Sequence[str], op: str) -> dict[str, Any]:
    """Run `fabtune tune` beside the load and the neighbours' traffic of direction `op`; return what it says it did.

    Nothing for another profile.  Raises FabtuneError where it failed, or the load ended.
    """
    if settings.profile != HANDS_OFF:
        return {}
    with cross.traffic(settings.cross, op), _load(settings, disks, op):
        time.sleep(settings.ramp_s + _SETTLING_ROUND_TRIPS * path.rtt_ms / 1e3)
        topology.lose_anew(path)
        netns = topology.target_namespace()
        words = ["fabtune", "tune", "--yes", *(["--target-netns", netns] if netns else []), "--json"]
        began_s = time.monotonic()
        done = finish(words)
        took_s = round(time.monotonic() - began_s, 1)
    print(done.stderr, done.stdout, sep="\n", flush=True)
    told = _told(done.stdout)
    # It may end without a step that stays, and says so with its exit code.
    if "steps" not in told:
        raise FabtuneError(f"fabtune tune: exit {done.status}: {done.stderr.strip()[-400:]}")
    return {"exit": done.status, "took_s": took_s, **told}


def _told(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _load(settings: Settings, disks: Sequence[str], op: str) -> Iterator[None]:
    """Load each disk as it will be loaded when it is measured, until then.  Raises FabtuneError where that ends."""
    words = [
        "fio", "--name=global", "--direct=1", "--ioengine=libaio", "--thread", "--time_based",
        f"--runtime={_FOR_GOOD_S}", f"--rw={_RW[op]}",
        f"--bs={settings.size_bytes}", f"--iodepth={settings.queue_depth}",
    ]  # fmt: skip
    words += [word for disk in disks for word in (f"--name={disk}", f"--filename=/dev/{disk}")]
    running = launch(words)
    try:
        yield
        if running.poll() is not None:
            raise FabtuneError(f"the load beside fabtune tune ended with {running.returncode}")
    finally:
        running.terminate()
        running.wait()

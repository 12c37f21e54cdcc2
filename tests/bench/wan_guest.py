#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Inside a guest: measures one profile at every point of a list, and leaves points.json.

Run as ``wan_guest.py SETTINGS-AS-JSON``, a list of what `parse_settings` takes.  Points share the guest, never a
connection: each is shaped, logged in and tuned anew, the round trips rising, since profiles only raise.
"""

import json
import sys

sys.path.insert(0, "/fabtune/userspace")

from fabtune.errors import FabtuneError
from fabtune.experiment import guest
from fabtune.experiment.peers import PEERS
from fabtune.experiment.settings import Settings, parse_settings
from fabtune.lab import iscsi, topology
from fabtune.run import run


def path_of(settings: Settings) -> topology.Path:
    """Return the path that a point asks for."""
    return topology.Path(rtt_ms=settings["rtt_ms"], rate_bit_per_s=settings["rate_bit_per_s"], loss=settings["loss"])


def main() -> int:
    """Measure all points; the points.json of those that went well is there even when a later one fails."""
    wanted = [parse_settings(texts, "wan_guest") for texts in json.loads(sys.argv[1])]
    points = []
    topology.up(path_of(wanted[0]))
    iscsi.start_target()
    iscsi.start_initiator()
    run(["insmod", guest.MODULE], what="loading fabstat.ko")
    for number, settings in enumerate(wanted):
        if number:
            iscsi.logout()
            topology.shape(path_of(settings))
            topology.forget_paths()
        # Another tuner is put in force once and stays.
        disk = iscsi.login() if number and settings["profile"] in PEERS else guest.tune(settings)
        for op in guest.OPS:
            if op != guest.OPS[0]:
                iscsi.logout()
                topology.forget_paths()
                disk = iscsi.login()
            points.append(guest.measure_op(settings, path_of(settings), disk, op))
            last = points[-1]
            print(
                f"{last['profile']} {last['rtt_ms']:g} ms, loss {last['loss']:g}, {op}: {last['mb_per_s']} MB/s",
                flush=True,
            )
            (guest.RESULTS / "points.json").write_text(json.dumps(points, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FabtuneError as error:
        print(f"wan_guest: {error}", file=sys.stderr)
        sys.exit(error.exit_code)

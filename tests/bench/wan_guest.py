#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Inside a guest: measures one profile at every point of a list, and leaves points.json.

Run as ``wan_guest.py SETTINGS-AS-JSON``, a list of what `parse_settings` takes.  Points share the guest, never a
connection: each is shaped, logged in and tuned anew, the round trips rising, since profiles only raise.
"""

import json
import sys

sys.path.insert(0, "/fabtune/userspace")

from fabtune.errors import ExitCode, FabtuneError
from fabtune.experiment import guest
from fabtune.experiment.peers import PEERS
from fabtune.experiment.settings import Settings, parse_settings
from fabtune.lab import iscsi, topology
from fabtune.run import run

# A profile with this behind its name is applied with what fabtune sees of the path by itself.
MEASURED = "-measured"


def path_of(settings: Settings) -> topology.Path:
    """Return the path that a point asks for."""
    return topology.Path(rtt_ms=settings["rtt_ms"], rate_bit_per_s=settings["rate_bit_per_s"], loss=settings["loss"])


def tune(settings: Settings) -> str:
    """Log in with the point's profile in force and return the disk."""
    profile = settings["profile"].removesuffix(MEASURED)
    if profile == settings["profile"]:
        return guest.tune(settings)
    iscsi.login()
    shown = run(
        ["fabtune", "plan", profile, "--role", "initiator", "--rate", "measure", "--json"], what="measuring the path"
    )
    seen = json.loads(shown)["path"]
    print(f"measured: {seen['rtt_ms']:.3f} ms, {seen['rate_bit_per_s'] / 1e6:.0f} Mb/s", flush=True)
    path = ["--rtt", f"{seen['rtt_ms']:.3f}ms", "--rate", f"{seen['rate_bit_per_s']:.0f}bit"]
    waits = (ExitCode.DONE, ExitCode.NEEDS_ACTION)
    guest.fabtune(waits, "apply", profile, "--role", "target", "--netns", topology.TARGET, *path)
    guest.fabtune((ExitCode.DONE,), "apply", profile, "--role", "initiator", "--allow-relogin", *path)
    return iscsi.wait_for_disk()


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
        disk = iscsi.login() if number and settings["profile"] in PEERS else tune(settings)
        results = guest.RESULTS / f"point-{number + 1}"
        results.mkdir()
        for op in guest.OPS:
            if op != guest.OPS[0]:
                iscsi.logout()
                topology.forget_paths()
                disk = iscsi.login()
            points.append(guest.measure_op(settings, path_of(settings), disk, op, results))
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

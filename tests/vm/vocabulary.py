# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes every tunable that this guest has, reads it back and takes it back, through the command line.

    vocabulary.py [GROUP...]      all groups, or only those named (``nic qdisc``)

Prints one line a tunable (written, unsupported with the reason) and fails where a value that could
be read could not be changed, did not read back, or did not return.
"""

import json
import subprocess
import sys
from pathlib import Path

from fabtune.backends import record
from fabtune.catalog.tunable import Tunable, Value, shipped_catalog
from fabtune.facts.collect import Facts, collect

PROFILE = Path("everything.toml")
# Texts that are no enumeration need a second value that this guest has.
TEXTS = {
    "lio.header_digest": "None,CRC32C", "lio.data_digest": "None,CRC32C",
    "tcp.congestion_control": "reno", "route.congctl": "reno", "iscsi.congestion_control": "reno",
    "nic.rps_cpus": "1", "nic.xps_cpus": "1", "nic.irq_affinity": "0", "block.scheduler": "none",
}  # fmt: skip
# Numbers whose neighbours this guest's devices would refuse or not survive.
NUMBERS = {
    "nic.mtu": 1400, "tcp.ecn": 1,
    "route.initcwnd": 20, "route.initrwnd": 20, "route.quickack": 1, "qdisc.maxrate": 125000000,
    "route.rto_min": 300, "route.window": 1048576,
    "iscsi.max_outstanding_r2t": 4, "lio.max_outstanding_r2t": 4, "iscsi.queue_depth": 64, "block.queue_depth": 16,
    "srp.reconnect_delay": 20, "srp.fast_io_fail_tmo": 20, "srp.dev_loss_tmo": 700,
    "srp.mod_reconnect_delay": 20, "srp.mod_fast_io_fail_tmo": 20, "srp.mod_dev_loss_tmo": 700,
    "nic.rx_usecs": 50, "block.nr_requests": 64, "iscsi.max_xmit_segment": 65536,
}  # fmt: skip


def read_back(facts: Facts) -> dict[tuple[str, str], str | None]:
    """Return every reading by tunable and device."""
    return {(one.tunable, one.device.identity): one.value for one in facts.readings}


def another(tunable: Tunable, natives: list[str], limit: int | None) -> Value | None:
    """Return a value that differs from all of `natives` and is allowed."""
    now = [tunable.parse(native) for native in natives]
    if tunable.type == "bool":
        return not now[0]
    if tunable.type == "text":
        choices: list[Value] = [TEXTS[tunable.name]] if tunable.name in TEXTS else list(tunable.values)
    else:
        number = int(now[0]) if isinstance(now[0], int) else tunable.minimum or 1
        choices = [NUMBERS[tunable.name]] if tunable.name in NUMBERS else []
        choices += [2 * number, number // 2, number + 1, number - 1, tunable.minimum or 0, limit or 0]
    for choice in choices:
        if choice in now or (limit is not None and isinstance(choice, int) and choice > limit):
            continue
        try:
            return tunable.check(choice, "choice")
        except Exception:
            continue
    return None


def write_profile(facts: Facts, tunables: list[Tunable]) -> dict[str, Value]:
    """Write a profile that wants another value of everything readable; return what it wants."""
    lines = ['summary = "another value of everything"']
    wanted: dict[str, Value] = {}
    for tunable in tunables:
        readings = [one for one in facts.of(tunable.name) if one.value is not None]
        if not readings:
            continue
        limits = [one.limit for one in readings if one.limit is not None]
        value = another(tunable, [one.value or "" for one in readings], min(limits, default=None))
        if value is None:
            print(f"no other value: {tunable.name}: {readings[0].value}")
            continue
        wanted[tunable.name] = value
        text = str(value).lower() if isinstance(value, bool) else json.dumps(value)
        lines += [f'[{tunable.roles[0]}."{tunable.name}"]', f"value = {text}", 'why = "a test"']
    PROFILE.write_text("\n".join(lines) + "\n")
    return wanted


def fabtune(*words: str) -> tuple[int, dict[str, object]]:
    """Run fabtune with --json; return its exit code and output."""
    done = subprocess.run(["fabtune", *words, "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 4):
        raise SystemExit(
            f"fabtune {' '.join(words)}: exit {done.returncode}: {done.stdout[-3000:]} {done.stderr[-3000:]}"
        )
    return done.returncode, json.loads(done.stdout)


def main() -> int:
    """Change everything, compare, take it back, compare."""
    groups = sys.argv[1:]
    tunables = [
        one for one in shipped_catalog().tunables.values() if not groups or one.name.partition(".")[0] in groups
    ]
    facts = collect(tunables)
    before = read_back(facts)
    wanted = write_profile(facts, tunables)
    _, applied = fabtune("apply", str(PROFILE.resolve()), "--role", "both", "--allow-relogin", "--end-sessions")
    rows = applied["refused"]
    assert isinstance(rows, list)
    refused = {(row["tunable"], row["identity"]): row["note"] for row in rows}
    record.BACKEND.forget()
    after = read_back(collect(tunables))
    failures = []
    for tunable in tunables:
        mine = [key for key in before if key[0] == tunable.name and before[key] is not None]
        devices = [key for key in mine if key not in refused]
        for key in mine:
            if key in refused:
                print(f"refused: {tunable.name}: {refused[key]}")
        if tunable.name in wanted and devices:
            for key in devices:
                changed = after.get(key)
                exact = changed is not None and tunable.same(changed, tunable.native(wanted[tunable.name]))
                if not exact and not (tunable.rounds and changed not in (None, before[key])):
                    failures.append(f"{key}: {before[key]} -> {changed}, wanted {wanted[tunable.name]}")
            print(f"written: {tunable.name}: {before[devices[0]]} -> {after.get(devices[0])}")
        elif not mine:
            reading = next(iter(facts.of(tunable.name)), None)
            print(f"unsupported: {tunable.name}: {reading.problem if reading else 'no ' + tunable.scope}")
    _, reverted = fabtune("revert", "--allow-relogin", "--end-sessions")
    odd = [step for step in reverted["steps"] if step["state"] not in ("restored", "already")]  # type: ignore[attr-defined]
    failures += [f"revert: {step}" for step in odd if (step["tunable"], step["identity"]) not in refused]
    record.BACKEND.forget()
    final = read_back(collect(tunables))
    failures += [
        f"{key}: {before[key]} before, {final.get(key)} after revert" for key in before if final.get(key) != before[key]
    ]
    for failure in failures:
        print(f"FAILED {failure}")
    print(f"{len(wanted)} tried, {len(refused)} refused, {len(failures)} failures")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())

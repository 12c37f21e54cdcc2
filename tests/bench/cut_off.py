#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether hosts that an apply with a time limit cuts off come back by themselves, whoever else dies meanwhile.

Writes cut-off.json: {"cut_offs": N, "came_back": N, "each": [...]} and goes on where an earlier run was stopped, unless
what measures has changed since; fails when a host does not come back.  One counts where values were in force when it
was struck and the administrator at the far end was really cut off; others are drawn anew, but must leave nothing.
"""

import argparse
import collections
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab_run import TOP, lab_lines

sys.path.insert(0, str(TOP / "userspace"))
from fabtune.experiment.present import code_digest  # noqa: E402

_MEASURING = ("cut_off_guest.py", "cut_off_seen.py", "cut-off.guest")
_MACHINE = ("--clock", "real", "--accel", "uml", "--memory-mib", "1024")
# The host's program that User Mode Linux is keeps files of its root open over a reboot: after some 20 it has no more.
_A_GUEST, _GUEST_S = 15, 2400
_POWER = ("power", "power while arming")
# What is drawn anew, at most, for each that counts.
_MOST_DRAWN = 3

Found = dict[str, Any]


def code(suite: str, seed: int) -> str:
    """Return the digest of what measures: fabtune, and the guest's part of this."""
    parts = [code_digest(), *((Path(__file__).parent / name).read_text() for name in _MEASURING), suite, str(seed)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def counts(one: Found) -> bool:
    """Tell whether a host was really cut off, with values in force, when it was struck.

    Each write is journalled beforehand, so that the second one there tells of the first.
    """
    in_force = bool(one["in_force"]) or one["written"] >= 2 or one["status"] in (0, 4)
    in_force = in_force and one["state"] != "taken back"
    # Whose power is cut serves nobody, looked at or not.
    unserved = one["client_cut"] or (one["client_cut"] is None and one["strike"] in _POWER)
    return in_force and bool(unserved)


def left(one: Found) -> list[str]:
    """Return what is not as it was before, in words."""
    if "missing" not in one:
        return ["no verdict: the guest ended"]
    told = [f"{name}: was {was!r:.100}, is {now!r:.100}" for name, (was, now) in one["missing"].items()]
    woken = one.get("after_waking", {})
    told += [
        f"{name} after the apply was woken: was {was!r:.100}, is {now!r:.100}" for name, (was, now) in woken.items()
    ]
    return told + (["the journal still waits for a confirmation"] if one["awaited"] else [])


def came_back(one: Found) -> bool:
    """Tell whether all is as it was before, and the journal says so."""
    return not left(one) and one["history"] == "taken back"


def document(digest: str, each: Sequence[Found]) -> Found:
    """Return the result as its file has it."""
    counted = [one for one in each if counts(one)]
    return {
        "digest": digest, "cut_offs": len(counted), "came_back": sum(map(came_back, counted)),
        "not_counted": len(each) - len(counted), "each": list(each),
    }  # fmt: skip


def missed(each: Sequence[Found]) -> list[str]:
    """Return a sentence for each host that did not come back, or that does not count and has something left."""
    told = []
    for one in each:
        name = f"{one['number']}, {one['strike']} ({one['moment']}, {one['cutter']})"
        if counts(one) and not came_back(one):
            told.append(f"{name} did not come back: {'; '.join(left(one)) or 'the journal says ' + one['history']}")
        elif left(one):
            told.append(f"{name} does not count, but left something: {'; '.join(left(one))}")
    return told


def by_strike(each: Sequence[Found]) -> list[str]:
    """Return a line for each kind of strike: how many count, how many of these came back, and how late at most."""
    kinds: dict[str, list[Found]] = collections.defaultdict(list)
    for one in each:
        kinds[f"{one['strike']}, {one['moment']}"].append(one)
    rows = []
    for kind, found in sorted(kinds.items()):
        counted = [one for one in found if counts(one)]
        back = [one for one in counted if came_back(one)]
        late_s = max((one["late_s"] for one in back), default=0.0)
        rows.append(f"{kind:32} {len(back):3} of {len(counted):3} came back, {late_s:5.1f} s late at most; "
                    f"{len(found) - len(counted)} not counted")  # fmt: skip
    return rows


def run_guest(seed: int, first: int, suite: str) -> Iterator[Found]:
    """Yield what a guest tells of each cut-off from number `first` on, as soon as it is judged."""
    struck: Found = {}
    told, said = 0, list[str]()
    with tempfile.TemporaryDirectory() as place:
        words = (str(seed), str(first), str(_A_GUEST))
        machine = (*_MACHINE, "--state", f"{place}/state")
        for line in lab_lines("cut-off.guest", *words, seed=seed, suite=suite, timeout_s=_GUEST_S, machine=machine):
            kind, _, content = line.partition(" ")
            if kind == "STRUCK":
                struck = json.loads(content)
            elif kind == "JUDGED":
                verdict = json.loads(content)
                # What could not be looked at before a power cut is no finding of after it.
                yield struck | verdict | {"status": struck["status"], "end_status": verdict.get("status")}
                struck, told = {}, told + 1
            else:
                said.append(line)
    if struck:
        yield struck | {"evidence": {"guest": said[-40:]}}
    elif not told:
        raise SystemExit("the guest told nothing:\n" + "".join(said[-20:]))


def main() -> int:
    """Measure what is missing, write the result, and tell which hosts did not come back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    parser.add_argument("--suite", default="trixie", help="which Debian's systemd and open-iscsi")
    parser.add_argument("--cut-offs", type=int, default=100, help="how many that count")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    file, digest, each = asked.out / "cut-off.json", code(asked.suite, asked.seed), list[Found]()
    if file.exists() and (before := json.loads(file.read_text()))["digest"] == digest:
        each = before["each"]
    while sum(map(counts, each)) < asked.cut_offs:
        first = max((one["number"] for one in each), default=-1) + 1
        if first > _MOST_DRAWN * asked.cut_offs:
            raise SystemExit(f"{first} drawn, and still only {sum(map(counts, each))} that count")
        for one in run_guest(asked.seed, first, asked.suite):
            each.append(one)
            file.write_text(json.dumps(document(digest, each), indent=1) + "\n")
            print(f"{one['number']:4} {one['strike']}, {one['moment']}, {one['cutter']}: "
                  f"{'NOT ' if left(one) else ''}as before, {'counts' if counts(one) else 'does not count'}",
                  flush=True)  # fmt: skip
            if sum(map(counts, each)) >= asked.cut_offs:
                break
    print("\n".join(by_strike(each)))
    told = missed(each)
    print("\n".join(told) or f"all {sum(map(counts, each))} hosts came back")
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main())

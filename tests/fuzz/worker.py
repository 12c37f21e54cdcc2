# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs cases behind the guard and tells the runner; started by fuzz.py, not by hand.

stdin holds one JSON order: {"scratch", "seed", "kinds": {name: count}, "worker", "workers", "from": [kind, number]}
or {"scratch", "replay": {...}}.  stdout carries one JSON line a failure and a last one with the counts;
the memory behind its argument says which case runs since which CPU time, for the runner's watchdog.
"""

import gc
import json
import mmap
import random
import resource
import struct
import sys
import time
import traceback
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace"), str(TOP / "tests/unit")]

import bench as benches  # noqa: E402
import guard  # noqa: E402
from bench import Bench, Files  # noqa: E402

PROGRESS = struct.Struct("=qqd")
_MEMORY_BYTES = 1 << 30


class Kind(Protocol):
    """One kind of case: drawn from a random generator, run on a bench."""

    name: str

    def draw(self, draw: random.Random) -> Files:
        """Return the files of one case."""

    def run(self, files: Files) -> bool:
        """Run one case; tell whether its input was accepted.  Raises for a property that does not hold."""


def kinds(bench: Bench) -> list[Kind]:
    """Return every kind, in the order of fuzz.SHARES; the last is only replayed."""
    import kinds_facts
    import kinds_host
    import kinds_journal
    import kinds_plan
    import kinds_pretended
    import kinds_text

    makers: tuple[Callable[[Bench], Kind], ...] = (
        kinds_text.Profile, kinds_text.Tunables, kinds_text.Formula, kinds_journal.Journal, kinds_plan.SavedPlan,
        kinds_facts.FactsFile, kinds_host.Records, kinds_host.Tools, kinds_host.Texts, kinds_pretended.Pretended,
    )  # fmt: skip
    return [maker(bench) for maker in makers]


def one(kind: Kind, files: Files, bench: Bench) -> tuple[bool, str, str]:
    """Run one case; return whether it was accepted, and what went wrong with its place ('' for nothing)."""
    try:
        bench.place(files)
        accepted = kind.run(files)
        # Somebody may have caught what the guard raised.
        benches.claim(not bench.watch.forbidden, f"forbidden: {bench.watch.forbidden}")
        return accepted, "", ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        bench.watch.armed = False
        frames = traceback.extract_tb(error.__traceback__)
        place = next((f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames) if "/fabtune/" in f.filename), "")
        text = "".join(traceback.format_exception(error, limit=-6))
        # The scratch directory is another one each time.
        said = str(error).replace(str(bench.scratch), "")[:60]
        return False, text[-4000:], f"{type(error).__name__} {place or said}"
    finally:
        bench.clear()


def say(line: dict[str, Any]) -> None:
    """Send one line to the runner."""
    # Cases get a sys.stdout of their own.
    sys.__stdout__.write(json.dumps(line) + "\n")
    sys.__stdout__.flush()


def run_all(order: dict[str, Any], bench: Bench, progress: mmap.mmap) -> None:
    """Run this worker's share of each kind's cases."""
    first_kind, first_number = order["from"]
    everything = kinds(bench)
    # What is here now stays: looking at it for garbage again and again would take a fifth of the time.
    gc.freeze()
    for index, kind in enumerate(everything):
        counts = {"cases": 0, "accepted": 0, "failed": 0}
        slowest_s, cpu_s = 0.0, time.process_time()
        if index < first_kind or kind.name not in order["kinds"]:
            continue
        start = first_number if index == first_kind else order["worker"]
        for number in range(start, order["kinds"][kind.name], order["workers"]):
            files = kind.draw(random.Random(f"{order['seed']}:{kind.name}:{number}"))
            begin_s = time.process_time()
            progress[:] = PROGRESS.pack(index, number, begin_s)
            accepted, wrong, place = one(kind, files, bench)
            slowest_s = max(slowest_s, time.process_time() - begin_s)
            counts["cases"] += 1
            counts["accepted"] += accepted
            if wrong:
                counts["failed"] += 1
                say({"failure": replay_of(kind.name, order["seed"], number, files), "place": place, "happened": wrong})
        progress[:] = PROGRESS.pack(index, -1, 0.0)
        say(
            {
                "kind": kind.name,
                **counts,
                "slowest_ms": round(slowest_s * 1e3, 1),
                "cpu_s": round(time.process_time() - cpu_s, 3),
            }
        )
    say({"done": True})


def replay_of(kind: str, seed: int, number: int, files: Files) -> dict[str, Any]:
    """Return what runs a case again, whatever becomes of its generator."""
    return {
        "kind": kind,
        "seed": seed,
        "number": number,
        "files": {name: b64encode(data).decode() for name, data in files.items()},
    }


def replay(order: dict[str, Any], bench: Bench, progress: mmap.mmap) -> None:
    """Run one case again: from its files, or drawn anew where a watchdog knew only its number."""
    wanted = order["replay"]
    kind = next(kind for kind in kinds(bench) if kind.name == wanted["kind"])
    if "files" in wanted:
        files = {name: b64decode(text) for name, text in wanted["files"].items()}
    else:
        files = kind.draw(random.Random(f"{wanted['seed']}:{kind.name}:{wanted['number']}"))
    say({"failure": replay_of(kind.name, wanted["seed"], wanted["number"], files)})
    begin_s = time.process_time()
    progress[:] = PROGRESS.pack(0, wanted["number"], begin_s)
    accepted, wrong, place = one(kind, files, bench)
    say(
        {"done": True, "accepted": accepted, "happened": wrong, "place": place, "took_s": time.process_time() - begin_s}
    )


def main() -> None:
    """Enclose this process, then run what the order says."""
    order = json.loads(sys.stdin.readline())
    progress = mmap.mmap(int(sys.argv[1]), PROGRESS.size)
    scratch = Path(order["scratch"]).resolve()
    guard.enclose(scratch)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    watch = guard.Watch(scratch)
    bench = benches.set_up(scratch, watch)
    # Not before: it imports fabtune, which looks for its trees where set_up says.
    import world

    world.make(bench)
    if "replay" in order:
        replay(order, bench, progress)
    else:
        run_all(order, bench, progress)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: how far the parts of a request's time are from the whole, in cases of tests/bench/why.

    request_time_guest.py CASE...        each a name of single.toml with its round trip and seed

One line a case: PARTS {...} with its direction, the whole and each part in ms; then SUM, and whether the bars hold.
"""

import json
import math
import statistics
import sys

from why_cases import PLACE, load_cases
from why_guest import Bed, measured
from why_judge import read_run

from fabtune.why.judging import judged

# What `fabtune why` looks for by itself.
_LOOK_S = 10.0
_MEDIAN, _MOST = 0.02, 0.05


def main() -> None:
    """Run the cases, one after the other."""
    cases = {case.name: case for case in load_cases(PLACE / "single.toml")}
    bed = Bed()
    off = []
    for name in sys.argv[1:]:
        case = cases[name]
        kept = {"lift": "", "settings": {}, **measured(bed, case.settings, case, _LOOK_S)}
        seen = read_run(kept, case.settings, name).seen
        print("\n".join(seen.missing), flush=True)
        for one in judged(seen):
            parts = {part.name: part.ms for part in one.request}
            whole_ms = math.fsum(parts.values())
            off.append(abs(parts["rest"]) / whole_ms)
            told = {"case": name, "way": one.way, "off": round(off[-1], 4), "whole_ms": round(whole_ms, 1)}
            rounded = {part: round(ms, 2) for part, ms in parts.items() if ms}
            print("PARTS", json.dumps({**told, **rounded}), flush=True)
    median, most = statistics.median(off), max(off)
    print(f"SUM of the parts off by {100 * median:.1f} % at the median of {len(off)}, {100 * most:.1f} % at most")
    print("bars held" if median <= _MEDIAN and most <= _MOST else "bars missed")


if __name__ == "__main__":
    main()

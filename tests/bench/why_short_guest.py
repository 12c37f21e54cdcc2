# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: runs each case of the short form as it is; what is right or wrong about it goes to a file of its name.

why_short_guest.py DIRECTORY [CASE...]        DIRECTORY is that of these files; the cases named are left out
"""

import sys
from pathlib import Path

from why_cases import load_cases
from why_guest import Bed, measured
from why_judge import read_run
from why_short import CASES, known, verdict


def main() -> None:
    """Run the cases, one after the other."""
    cases = [(case, known(case)) for case in load_cases(CASES) if case.name not in sys.argv[2:]]
    bed = Bed()
    for case, told in cases:
        kept = {"lift": "", "settings": {}, **measured(bed, case.settings, case, case.look_s)}
        words = verdict(read_run(kept, case.settings, case.name), told)
        print(f"{case.name}: {words}", flush=True)
        (Path(sys.argv[1]) / case.name).write_text(f"{words}\n")


if __name__ == "__main__":
    main()

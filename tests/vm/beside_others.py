# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest whose path has neighbours: what one TCP connection carries beside their bulk flow, and what that carries.

Run as ``python3 beside_others.py read|write``; prints MB/s of both, headers of theirs included.
"""

import json
import subprocess
import sys
import time

from fabtune.lab import cross
from fabtune.lab.topology import TARGET_ADDRESS

op = sys.argv[1]
words = ["iperf3", "--json", "--client", TARGET_ADDRESS, "--time", "5", *(["--reverse"] if op == "read" else [])]
with cross.traffic("cubic", op) as arrived:
    assert arrived is not None
    begun_unix_s = time.time()
    done = subprocess.run(words, check=True, capture_output=True)
    theirs = arrived.bytes_per_s(begun_unix_s + 1, time.time())
print(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8e6, theirs / 1e6)

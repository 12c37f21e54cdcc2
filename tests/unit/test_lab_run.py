# SPDX-License-Identifier: GPL-2.0-or-later
"""A bench that is ended by a signal leaves no guest behind."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1] / "bench"
# The guest is `sleep`, which says its number on stdout: what ends it is the same.
_SCRIPT = """
import subprocess, sys
sys.path[:0] = [sys.argv[1]]
import lab_run
subprocess.run([*lab_run.WITH_ITS_BENCH, "sh", "-c", "echo $$; exec sleep 1000"], check=False)
"""


def test_what_a_bench_runs_ends_with_it() -> None:
    bench = subprocess.Popen([sys.executable, "-c", _SCRIPT, str(BENCH)], stdout=subprocess.PIPE, text=True)
    assert bench.stdout
    guest = os.pidfd_open(int(bench.stdout.readline()))
    bench.send_signal(signal.SIGTERM)
    assert bench.wait() == -signal.SIGTERM
    # It is there within a moment; only where it never comes is this waited for.
    gone, _, _ = select.select([guest], [], [], 60)
    try:
        assert gone
    finally:
        if not gone:
            signal.pidfd_send_signal(guest, signal.SIGKILL)
        os.close(guest)
        bench.stdout.close()

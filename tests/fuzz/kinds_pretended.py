# SPDX-License-Identifier: GPL-2.0-or-later
"""Cases that misbehave on purpose: they show that the runner sees a hang, a death and a write.  Only ever replayed."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

from bench import Bench, Files


class Pretended:
    """Does what its `how` says."""

    name = "pretended"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def draw(self, draw: random.Random) -> Files:
        return {"how": b"nothing"}

    def run(self, files: Files) -> bool:
        how, begun_s = files["how"].decode(), time.process_time()
        with self.bench.armed():
            if how == "loop":
                while True:
                    pass
            if how == "wait":
                time.sleep(30)
            while how == "work" and time.process_time() < begun_s + 1.5:
                pass
            if how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "write":
                with contextlib.suppress(BaseException):
                    Path("/etc/fabtune-fuzz").write_text("x")
        return True

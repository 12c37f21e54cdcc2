# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of fio as a process: when it may be asked for its figures."""

import fcntl
import os
import select
import subprocess
from pathlib import Path

import pytest

from fabtune.measure import fio

_JOB = "[job]\nioengine=null\nsize=1g\ntime_based=1\nruntime=300ms\nnumjobs=2\nthread={thread}\n"


@pytest.mark.parametrize("thread", [1, 0])
def test_fio_is_asked_for_figures_only_while_its_jobs_run(
    thread: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, _ = fio.find()
    (tmp_path / "job.fio").write_text(_JOB.format(thread=thread))
    os.mkfifo(tmp_path / "figures")
    pipe = os.open(tmp_path / "figures", os.O_RDWR | os.O_NONBLOCK)
    # Its last figures do not fit: fio stands still between its jobs' end and its own, where a signal can kill it.
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
    printing, asked = [0], []

    def look() -> bool:
        return bool(select.select([pipe], [], [], 0)[0])

    def tick() -> None:
        printing[0] += look()
        if printing[0] > 20:
            while look():
                os.read(pipe, 65536)

    monkeypatch.setattr(fio, "_ASK_S", 0.01)
    monkeypatch.setattr(subprocess.Popen, "send_signal", lambda _self, _number: asked.append(look()))
    command = [program, "--output-format=json+", "--eta=never", f"--output={tmp_path / 'figures'}", "job.fio"]
    with fio.Load(command, tmp_path) as load:
        load.wait(tick, 0.01, measured_s=0.0)
    os.close(pipe)
    assert printing[0] > 20 and asked and not any(asked)

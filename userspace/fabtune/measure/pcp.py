# SPDX-License-Identifier: GPL-2.0-or-later
"""A PCP archive of a run, where pmcd is running: the built-in sampler's metrics and the site's own beside them."""

import shutil
from pathlib import Path
from types import TracebackType

from fabtune.host.run import Process, ended, launch

PMCD_SOCKET = Path("/run/pcp/pmcd.socket")
# What the built-in sampler reads, by PCP's names, and what explains it; metrics that pmcd does not have are skipped.
_CONFIG = """log mandatory on 1 sec {
    kernel.all.cpu
    kernel.percpu.cpu.irq.soft
    disk.dev
    network.interface
    network.tcp
    network.softnet
    openmetrics
}
log mandatory on once {
    hinv
    kernel.uname
}
"""
_STOP_S = 10.0


def is_there() -> bool:
    """Return whether this host runs pmcd and has pmlogger."""
    return PMCD_SOCKET.exists() and shutil.which("pmlogger") is not None


class PcpArchive:
    """Logs into the archive `directory`/run while the ``with`` block runs.

    A run is worth keeping without its archive: what went wrong with it is in `problem`, nothing is raised.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.problem = ""
        self._process: Process[bytes] | None = None

    @property
    def name(self) -> str | None:
        """The directory's name as a record keeps it, None where no archive was made."""
        return self.directory.name if self._process is not None and self.directory.exists() else None

    def __enter__(self) -> "PcpArchive":
        config = self.directory / "pmlogger.config"
        made = False
        try:
            self.directory.mkdir(parents=True)
            made = True
            config.write_text(_CONFIG)
        except OSError as error:
            self.problem = f"no PCP archive: {self.directory}: {error.strerror}"
            if made:
                shutil.rmtree(self.directory, ignore_errors=True)
            return self
        log = self.directory / "pmlogger.log"
        words: list[str | Path] = ["pmlogger", "-c", config, "-h", "local:", "-l", log, self.directory / "run"]
        self._process = launch(words, dies_by="TERM")
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        if self._process is None:
            return
        early = self._process.poll() is not None
        self._process.terminate()
        if not ended(self._process, _STOP_S):
            self._process.kill()
            self._process.wait()
        if (self.directory / "run.0").exists() and not early:
            return
        log = self.directory / "pmlogger.log"
        said = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
        shutil.rmtree(self.directory)
        self.problem = f"pmlogger ended by itself, so there is no PCP archive: {' '.join(said) or 'no message'}"

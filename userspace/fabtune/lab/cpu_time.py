# SPDX-License-Identifier: GPL-2.0-or-later
"""For which end a guest's only CPU works, or for the path between them: told to the nanosecond by tracepoints."""

import ipaddress
import os
import re
import struct
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host import libbpf
from fabtune.installed import PACKAGE
from fabtune.lab.topology import TARGET_ADDRESS

_OBJECT = PACKAGE / "bpf/cpu_time.bpf.o"
_PROGRAMS = (
    "thread_runs", "work_begins", "work_ends", "softirq_begins", "softirq_ends", "packet_arrives", "packet_is_in",
)  # fmt: skip
# The kinds and the layout of `times` in bpf/cpu_time.bpf.c.
_INITIATOR, _TARGET = 1, 2
_KINDS = {"initiator": _INITIATOR, "target": _TARGET, "path": 3}
_TIMES = struct.Struct("=5QQII")
_NETWORK = ipaddress.ip_network(f"{TARGET_ADDRESS}/24", strict=False)
# Whose work the items of these modules are; what is not named, soft RoCE's above all, may be of either end.
_MODULES = {
    _INITIATOR: (
        "iscsi_tcp", "libiscsi", "libiscsi_tcp", "scsi_transport_iscsi", "ib_iser", "ib_srp", "scsi_transport_srp",
        "nvme_core", "nvme_fabrics", "nvme_tcp", "dm_mod", "dm_multipath", "sd_mod",
    ),
    _TARGET: ("iscsi_target_mod", "target_core_mod", "ib_isert", "ib_srpt", "nvmet", "nvmet_tcp", "null_blk"),
}  # fmt: skip
_FUNCTION = re.compile(r"^([0-9a-f]+) [tT] \S+\t\[(\w+)\]$", re.MULTILINE)


class CpuTime:
    """Tells, from now until it is closed, how long the CPU worked for whom.

    The fabric's modules are loaded.  Raises FabtuneError with several CPUs, or where the kernel refuses.
    """

    def __init__(self) -> None:
        if os.cpu_count() != 1:
            raise FabtuneError("CPU time is told apart on one CPU only")
        if not _OBJECT.exists():
            raise FabtuneError(f"{_OBJECT} has not been built: `make bpf`, which needs clang and libbpf-dev")
        self._loaded = libbpf.Loaded(_OBJECT, _PROGRAMS, {})
        network = _NETWORK.network_address.packed + _NETWORK.netmask.packed
        libbpf.update(self._loaded.map_fd("target"), bytes(4), network, "the target's addresses")
        self._know_functions()
        for program in _PROGRAMS:
            self._loaded.attach(program)
        self._times = self._loaded.map_fd("times")

    def close(self) -> None:
        """Watch no more."""
        self._loaded.close()

    def _know_functions(self) -> None:
        kinds = {module: kind for kind, modules in _MODULES.items() for module in modules}
        functions = self._loaded.map_fd("functions")
        for address, module in _FUNCTION.findall(Path("/proc/kallsyms").read_text()):
            if module in kinds:
                key, value = struct.pack("=Q", int(address, 16)), struct.pack("=I", kinds[module])
                libbpf.update(functions, key, value, "the modules' functions")

    def sample(self) -> dict[str, float]:
        """Return ``exact.cpu.initiator``, ``.target`` and ``.path``: ns so far."""
        raw = libbpf.look_up(self._times, bytes(4), _TIMES.size)
        times = _TIMES.unpack(raw or bytes(_TIMES.size))
        return {f"exact.cpu.{name}": times[kind] for name, kind in _KINDS.items()}

# SPDX-License-Identifier: GPL-2.0-or-later
"""How long iSCSI's own queues keep what is to be sent (bpf/iscsi_queue.bpf.c): no tracepoint and no file tells."""

import ipaddress
import struct
import threading
from collections.abc import Mapping

import attrs

from fabtune.errors import UnsupportedError
from fabtune.host import libbpf
from fabtune.host.sockets import TcpSocket
from fabtune.installed import PACKAGE
from fabtune.model.address import canonical
from fabtune.model.observation import INITIATOR, TARGET, QueueSeen

_OBJECT = PACKAGE / "bpf/iscsi_queue.bpf.o"
# Its programs, and whose functions they are of.
_PROGRAMS = {
    INITIATOR: {
        "asked": "libiscsi:iscsi_queuecommand", "asked_again": "libiscsi:iscsi_requeue_task",
        "sends": "libiscsi_tcp:iscsi_tcp_task_xmit", "has_sent": "libiscsi_tcp:iscsi_tcp_task_xmit",
    },
    TARGET: {
        "data_is_there": "iscsi_target_mod:lio_queue_data_in", "is_done": "iscsi_target_mod:lio_queue_status",
        "answers": "iscsi_target_mod:iscsit_response_queue", "has_answered": "iscsi_target_mod:iscsit_response_queue",
    },
}  # fmt: skip
_WAYS = {"read": 0, "write": 1}
# The layouts of `whose` and `times` in bpf/iscsi_queue.bpf.c.
_WHOSE, _TIMES = struct.Struct("=16sHHI"), struct.Struct("=QQQ")


@attrs.frozen
class QueueCounters:
    """Commands so far, and ns that they spent in the queue, and of that while they were given to the socket."""

    commands: int
    queued_ns: int
    sent_ns: int


class QueueTimes:
    """Counts from now until it is closed, or until this process ends, whatever ends it.  Raises UnsupportedError."""

    def __init__(self, end: str) -> None:
        if not _OBJECT.exists():
            raise UnsupportedError(f"{_OBJECT.name} has not been built (`make bpf`)")
        programs = _PROGRAMS[end]
        self._loaded = libbpf.Loaded(_OBJECT, programs, {}, programs)
        try:
            for program in programs:
                self._loaded.attach(program)
            self._all = self._loaded.map_fd("all")
        except BaseException:
            self._loaded.close()
            raise

    def close(self) -> None:
        """Count no more.  The kernel waits for whoever is in one of the programs: nobody need wait for it."""
        threading.Thread(target=self._loaded.close, name="fabtune-bpf-close").start()

    def of_connection(self, one: TcpSocket) -> dict[str, QueueCounters]:
        """Return what was counted of a target's connection, by direction."""
        address = ipaddress.ip_address(canonical(one.remote).partition("%")[0])
        packed = address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed
        return self._counted(packed, one.remote_port, one.local_port)

    def of_host(self, number: int) -> dict[str, QueueCounters]:
        """Return what was counted of an initiator's session, by direction; each has a SCSI host of its own."""
        return self._counted(struct.pack("=I12x", number), 0, 0)

    def _counted(self, place: bytes, port: int, local_port: int) -> dict[str, QueueCounters]:
        keys = {way: _WHOSE.pack(place, port, local_port, number) for way, number in _WAYS.items()}
        raw = {way: libbpf.look_up(self._all, key, _TIMES.size) for way, key in keys.items()}
        return {way: QueueCounters(*_TIMES.unpack(found or bytes(_TIMES.size))) for way, found in raw.items()}


def queue_between(before: Mapping[str, QueueCounters], after: Mapping[str, QueueCounters]) -> dict[str, QueueSeen]:
    """Return the means between two readings, by direction, of those in which a command was sent."""
    found = {}
    for way, now in after.items():
        then = before.get(way, QueueCounters(0, 0, 0))
        if commands := now.commands - then.commands:
            queued_ms = (now.queued_ns - then.queued_ns) / 1e6 / commands
            found[way] = QueueSeen(queued_ms, (now.sent_ns - then.sent_ns) / 1e6 / commands)
    return found

# SPDX-License-Identifier: GPL-2.0-or-later
"""What this host's sysfs says around the devices, kept with a reading that is saved: elsewhere nobody knows it."""

from fabtune.host import blocks, tree
from fabtune.stat.endpoint import endpoint
from fabtune.stat.host import can_queue
from fabtune.stat.snapshot import Around, CountedDevice, Snapshot, escaped
from fabtune.stat.stack import head_above


def nr_requests(device: CountedDevice) -> int | None:
    """Return how many requests the block queue of `device` has, None where that is not known, or in the limit already.

    To read it takes a lock of the queue's, which whoever sets another scheduler holds, on kernels before 6.16, until
    the queue is empty: on a disk that hangs, for ever.  So it is read for a module alone that does not know it.
    """
    if device.around is not None:
        return device.around.nr_requests
    # The name of one that is gone may be another's by now.
    if device.follows_limit or device.state == "gone":
        return None
    return tree.whole(tree.read_text(blocks.directory(device.disk) / "queue/nr_requests"))


def with_around(reading: Snapshot) -> str:
    """Return the text of a reading of this host, with a record of what is around each device behind its first."""
    told = {one.id: record for one in reading.devices if (record := _record(one))}
    lines = []
    for line in reading.text.splitlines(keepends=True):
        lines.append(line)
        if line.startswith("device id="):
            lines.append(told.get(int(line.split(" ", 2)[1].removeprefix("id=")), ""))
    return "".join(lines)


def _record(device: CountedDevice) -> str:
    if device.state == "gone":
        return ""
    end = endpoint(device)
    found = Around(
        end.transport, end.target, end.portal, head_above(device), can_queue(device), nr_requests(device)
    )  # fmt: skip
    if found == Around():
        return ""
    values = ((name, getattr(found, name)) for name in Around.__slots__)  # type: ignore[attr-defined]
    words = (f"{name}={escaped('' if value is None else str(value))}" for name, value in values)
    return f"around id={device.id} {' '.join(words)}\n"

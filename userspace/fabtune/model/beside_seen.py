# SPDX-License-Identifier: GPL-2.0-or-later
"""What this host's other disks moved while one was looked at."""

from collections.abc import Mapping

import attrs


@attrs.frozen
class BesideSeen:
    """What the other disks moved whose data goes the same way, in bytes/s by direction; `disks` are the busiest.

    The same way is: by the same NIC, and with about the same round trip.

    `session_bytes_per_s` is the part of it that the same session carried, `peer_bytes_per_s` the part to or from the
    same address of the target.  `nic_bytes_per_s` is what went by the same NIC whatever its round trip, and
    `host_bytes_per_s` all that this host's other disks moved; an older fabtune tells none of these three.
    """

    disks: tuple[str, ...]
    bytes_per_s: Mapping[str, float]
    session_bytes_per_s: Mapping[str, float]
    peer_bytes_per_s: Mapping[str, float] = {}
    nic_bytes_per_s: Mapping[str, float] = {}
    host_bytes_per_s: Mapping[str, float] = {}

# SPDX-License-Identifier: GPL-2.0-or-later
"""What readings during a load and around it must have: whoever reads a record takes these keys for granted."""

import itertools
from collections.abc import Mapping, Sequence

_TIMES = ("time.unix", "time.monotonic")
# Of what is read together all is there, or nothing.
_TOGETHER = (
    tuple(f"disk.dev.{name}" for name in ("read_bytes", "write", "write_bytes")),
    tuple(f"kernel.all.cpu.{name}" for name in ("user", "sys", "idle", "irq.soft")),
)
_NIC = tuple(f"{way}_{what}" for way in ("rx", "tx") for what in ("bytes", "packets", "dropped"))
_SOCKET = ("cwnd_segments", "rtt_ms", "send_buffer_bytes", "receive_buffer_bytes")

_SETS = tuple(frozenset(one) for one in _TOGETHER)

OF_SAMPLE = (
    f"a table with {', '.join(_TIMES)}, and all or none of {' and of '.join(', '.join(one) for one in _TOGETHER)}"
)
OF_NIC = f"a table with {', '.join(_NIC)}"
OF_SOCKET = f"a table with cwnd_segments, and numbers as {', '.join(_SOCKET)}"


def is_sample(values: Mapping[str, float]) -> bool:
    """Tell whether a sample of a load has what belongs together."""
    keys = values.keys()
    return keys >= set(_TIMES) and all(len(keys & together) in (0, len(together)) for together in _SETS)


def in_order(samples: Sequence[Mapping[str, float]]) -> bool:
    """Tell whether each sample was taken after the one before."""
    return all(a["time.monotonic"] < b["time.monotonic"] for a, b in itertools.pairwise(samples))


def is_interval(samples: Sequence[Mapping[str, float]]) -> bool:
    """Tell whether samples are the two ends of an interval, or none."""
    return len(samples) in (0, 2) and in_order(samples)


def is_nic(counters: Mapping[str, int]) -> bool:
    """Tell whether a network interface's counters are all there."""
    return counters.keys() >= set(_NIC)


def is_socket(values: Mapping[str, object]) -> bool:
    """Tell whether a connection's state is numbers, as far as it is there."""
    return "cwnd_segments" in values and not any(isinstance(values.get(key, 0), str) for key in _SOCKET)

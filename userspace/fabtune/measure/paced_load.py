# SPDX-License-Identifier: GPL-2.0-or-later
"""Our own generator as a load: started like fio, read like fio."""

import os
from collections.abc import Iterable
from pathlib import Path

from fabtune import installed
from fabtune.measure import paced
from fabtune.measure.arrivals import Arrival, packed
from fabtune.measure.fio import Load, output_in
from fabtune.model import typed
from fabtune.model.offered import Offered
from fabtune.model.outputs import FioOutput


def start(place: str, slots: int, arrivals: Iterable[Arrival], begin_s: float, length_s: float, scratch: Path) -> Load:
    """Send the arrivals to the device `place`; what is measured begins after `begin_s` and lasts `length_s`."""
    todo = scratch / "arrivals"
    todo.write_bytes(packed(arrivals))
    words = (place, todo, output_in(scratch), slots, round(begin_s * 1e9), round(length_s * 1e9))
    command = [*installed.command_again(paced.__name__), *map(str, words)]
    return Load(command, scratch, "the load", os.environ | installed.environment_again())


def offered(document: FioOutput) -> Offered:
    """Return what the generator said of what it sent.  Raises InputError where it said nothing."""
    return typed.TOLERANT.read(Offered, document.rest.keys.get(paced.OFFERED), "the load's figures")

# SPDX-License-Identifier: GPL-2.0-or-later
"""What limited one disk while it was looked at, as a run record keeps it: sentences, shares of the time, evidence."""

import attrs

from fabtune.model import typed


@attrs.frozen
class Evidence:
    """One thing seen: at which end, which counter or setting, and what it says."""

    end: str
    counter: str
    value: str


@attrs.frozen
class KeptShare:
    """The share of the time, 0..1, of one limiter; `among` are those that it may be instead."""

    limiter: str
    share: float
    subject: str = ""
    among: tuple[str, ...] = typed.omitted(())
    evidence: tuple[Evidence, ...] = typed.omitted(())


@attrs.frozen
class Limits:
    """One direction of one disk: the verdict in a sentence, and shares that sum to one, what limits most first.

    `missing` says what could not be read; `seconds` is how long was looked.
    """

    device: str
    way: str
    seconds: float
    bytes_per_s: float
    both_ends: bool
    verdict: str
    shares: tuple[KeptShare, ...]
    missing: tuple[str, ...] = typed.omitted(())

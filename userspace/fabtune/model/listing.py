# SPDX-License-Identifier: GPL-2.0-or-later
"""Long lists in a sentence."""

from collections.abc import Sequence


def first_of(names: Sequence[str], most: int, joint: str = ", ") -> str:
    """Return the names, of more than `most` the first ones and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{joint.join(names[:most])}{more}"

# SPDX-License-Identifier: GPL-2.0-or-later
"""The word for "nothing applied", wherever the name of a profile may stand, and what others are held against."""

from collections.abc import Iterable

from fabtune.errors import InputError

UNTOUCHED = "untouched"


def baseline(names: Iterable[str]) -> str:
    """Return which of `names` the others are held against: `untouched`, else ``default``, else the first.

    Old records call nothing applied ``default``.
    """
    found = dict.fromkeys(names)
    return next((name for name in (UNTOUCHED, "default") if name in found), next(iter(found), ""))


def refuse_default(name: str, where: str) -> None:
    """Raise InputError if `name` is ``default``, which meant "nothing applied" once, and is a profile."""
    if name == "default":
        raise InputError(
            f"{where}: 'default' is a profile, which writes the default values; nothing applied is '{UNTOUCHED}' now"
        )

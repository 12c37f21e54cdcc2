# SPDX-License-Identifier: GPL-2.0-or-later
"""The word for "nothing applied", wherever the name of a profile may stand."""

from fabtune.errors import InputError

UNTOUCHED = "untouched"


def refuse_default(name: str, where: str) -> None:
    """Raise InputError if `name` is ``default``, which meant "nothing applied" once, and is a profile."""
    if name == "default":
        raise InputError(
            f"{where}: 'default' is a profile, which writes the default values; nothing applied is '{UNTOUCHED}' now"
        )

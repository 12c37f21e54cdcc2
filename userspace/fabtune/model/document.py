# SPDX-License-Identifier: GPL-2.0-or-later
"""What other programs write and read as JSON or TOML, of which nothing is known before it has been looked at."""

import json
import re
from collections.abc import Mapping, Sequence

import attrs

from fabtune.errors import InputError

# No Any: whoever wants to use a part of it must look first what it is, and mypy sees to that.
Json = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None


@attrs.frozen
class Rest:
    """The keys of a table that are no field of its class: kept and written again as they were."""

    keys: Mapping[str, Json] = attrs.field(factory=dict)


def without_banner(text: str) -> str:
    """Return JSON that a program printed on several lines without what a login shell said before it."""
    begun = re.search(r"[\[{]\n|^\[\]$", text, re.MULTILINE)
    return text[begun.start() if begun else 0 :]


def printed(text: str, whose: str) -> Json:
    """Return the JSON that a program printed; errors name it `whose`.  Raises InputError where there is none."""
    try:
        found: Json = json.loads(without_banner(text))
    except (ValueError, RecursionError):
        raise InputError(f"{whose}: no JSON in what it printed: {text.strip()[-240:]}") from None
    return found

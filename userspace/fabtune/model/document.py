# SPDX-License-Identifier: GPL-2.0-or-later
"""What other programs write and read as JSON or TOML, of which nothing is known before it has been looked at."""

from collections.abc import Mapping, Sequence

import attrs

# No Any: whoever wants to use a part of it must look first what it is, and mypy sees to that.
Json = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None


@attrs.frozen
class Rest:
    """The keys of a table that are no field of its class: kept and written again as they were."""

    keys: Mapping[str, Json] = attrs.field(factory=dict)

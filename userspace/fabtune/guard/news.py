# SPDX-License-Identifier: GPL-2.0-or-later
"""What guard tells: a sentence for people, and beside it what it is about for programs."""

from collections.abc import Mapping, Sequence

import attrs

from fabtune.model.document import Json
from fabtune.tune.journal import Transaction
from fabtune.tune.plan import Row
from fabtune.tune.verify import Drift

WARNING, NOTICE = "warning", "notice"


@attrs.frozen
class Told:
    """One thing that has changed: what kind of, how grave (`warning` or `notice`), the sentence, and its figures."""

    kind: str
    grade: str
    text: str
    about: Mapping[str, Json] = attrs.field(factory=dict)

    def as_json(self) -> dict[str, Json]:
        """Return it with stable keys."""
        return {"kind": self.kind, "grade": self.grade, "text": self.text, **self.about}


def of_path(applied: Transaction, **figures: Json) -> dict[str, Json]:
    """Return of which path something is told."""
    header = applied.header
    return {"profile": header.profile, "roles": list(header.roles), "netns": header.netns, **figures}


def of_drift(drift: Drift) -> dict[str, Json]:
    """Return of which value something is told."""
    return {key: value for key, value in drift.as_json().items() if key not in ("drifted", "due")}


def of_rows(rows: Sequence[Row]) -> list[Json]:
    """Return which values are told of: what was found, and what fabtune wants of them."""
    return [
        {"tunable": row.tunable.name, "device": row.device.label if row.device else "", "found": row.now,
         "expected": row.wanted}
        for row in rows
    ]  # fmt: skip


def path_name(applied: Transaction) -> str:
    """Return what the path of `applied` is called."""
    return f"path of '{applied.profile}' ({', '.join(applied.header.roles)})"

# SPDX-License-Identifier: GPL-2.0-or-later
"""What guard tells: a sentence for people, and beside it what it is about for programs."""

from collections.abc import Mapping, Sequence

import attrs

from fabtune.model.document import Json
from fabtune.tune.journal import Transaction
from fabtune.tune.plan import Row
from fabtune.tune.verify import Drift

WARNING, NOTICE = "warning", "notice"
# What is told beside the sentence, of a path, a value, or several.
Figure = bool | float | str | Sequence["Figure"] | Mapping[str, "Figure"] | None


@attrs.frozen
class Told:
    """One thing that has changed: what kind of, how grave (`warning` or `notice`), the sentence, and its figures."""

    kind: str
    grade: str
    text: str
    about: Mapping[str, Figure] = attrs.field(factory=dict)

    def as_json(self) -> dict[str, Json]:
        """Return it with stable keys."""
        return {"kind": self.kind, "grade": self.grade, "text": self.text, **self.about}


def of_path(applied: Transaction, **figures: Figure) -> dict[str, Figure]:
    """Return of which path something is told."""
    header = applied.header
    return {"profile": header.profile, "roles": list(header.roles), "netns": header.netns, **figures}


def of_drift(drift: Drift) -> dict[str, Figure]:
    """Return of which value something is told."""
    return {
        "tunable": drift.tunable, "device": drift.device, "expected": drift.expected, "found": drift.found,
        "note": drift.note, "identity": drift.identity or drift.device,
    }  # fmt: skip


def of_rows(rows: Sequence[Row]) -> list[Figure]:
    """Return which values are told of: what was found, and what fabtune wants of them."""
    return [
        {"tunable": row.tunable.name, "device": row.device.label if row.device else "", "found": row.now,
         "expected": row.wanted}
        for row in rows
    ]  # fmt: skip


def path_name(applied: Transaction) -> str:
    """Return what the path of `applied` is called."""
    return f"path of '{applied.profile}' ({', '.join(applied.header.roles)})"

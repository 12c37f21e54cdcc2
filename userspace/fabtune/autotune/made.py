# SPDX-License-Identifier: GPL-2.0-or-later
"""What a step made at each end, by transaction and value, and the commands that take it back."""

import shlex
from collections.abc import Sequence

import attrs

from fabtune.autotune.tuned_ends import may_connect
from fabtune.model.document import Json
from fabtune.tune.plan import Row


@attrs.frozen
class Made:
    """One transaction of a step and what it wrote; `host` where that is another host, '' for this one."""

    end: str
    host: str
    transaction: str
    rows: tuple[Row, ...] = ()

    @property
    def connects(self) -> bool:
        """Whether new connections may be due once it is taken back, for its own sake; also where it may be anything."""
        return not self.rows or any(map(may_connect, self.rows))

    def transaction_json(self) -> dict[str, Json]:
        """Return where it stands in a journal."""
        return {"end": self.end, "host": self.host or None, "transaction": self.transaction}

    def values_json(self) -> list[Json]:
        """Return each value with what it was before."""
        return [
            {
                "end": self.end, "host": self.host or None, "tunable": row.tunable.name,
                "device": row.device.label if row.device else None, "old": row.now, "new": row.wanted,
            }
            for row in self.rows
        ]  # fmt: skip


def take_back_commands(steps: Sequence[Sequence[Made]]) -> list[str]:
    """Return what takes back all of these steps, and nothing else, in the order in which it is to be typed.

    What is newer goes first, and of a step what is written first: the initiator's new connections, which come with the
    last command of this host where any are due, are to find the target as it was.
    """
    found = [one for step in reversed(steps) for one in step]
    here = [one.transaction for one in found if not one.host]
    connects = any(one.connects for one in found)
    commands = []
    for one in found:
        words = ["fabtune", "revert", "--transaction", one.transaction]
        words += ["--reconnect"] if connects and not one.host and one.transaction == here[-1] else []
        commands.append((1 - bool(one.host), shlex.join([*(["ssh", one.host] if one.host else []), *words])))
    # All of another host's before this one's connections are made anew.
    return [command for _, command in sorted(commands, key=lambda command: command[0])]

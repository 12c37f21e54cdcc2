# SPDX-License-Identifier: GPL-2.0-or-later
"""Holds the host against the journal: which value is no longer what apply wrote."""

from dataclasses import dataclass

from fabtune.errors import FabtuneError
from fabtune.facts.owners import Owner, owners
from fabtune.tune import journal
from fabtune.tune.journal import Step
from fabtune.tune.plan import Plan
from fabtune.tune.revert import Locator, current, is_ours


@dataclass(frozen=True)
class Drift:
    """One value under watch: what it should be, what it is, and who may have changed it."""

    tunable: str
    device: str
    expected: str
    found: str | None
    drifted: bool
    note: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the finding with stable keys."""
        return {
            "tunable": self.tunable,
            "device": self.device,
            "expected": self.expected,
            "found": self.found,
            "drifted": self.drifted,
            "note": self.note,
        }


# What is known to write a tunable behind the administrator's back, by backend or tunable.
_WRITERS = {
    "record": "a discovery (iscsiadm -m discovery) rewrites records from iscsid.conf",
    "iscsi.recovery_timeout": "multipathd sets it from fast_io_fail_tmo when it reloads",
    "lio.cmdsn_depth": "restoring the target makes it default_cmdsn_depth",
}
_PROGRAMS = {
    "sysctl": ("tuned", "bpftune"),
    "ethtool": ("tuned", "NetworkManager", "systemd-networkd"),
    "irq": ("irqbalance", "tuned"),
    "iscsi.recovery_timeout": ("multipathd",),
}


def suspect(step: Step, present: list[Owner]) -> str:
    """Return who may have changed a value: files that set it and running programs that are known to."""
    found = [f"{one.where} sets {one.value}" for one in present if one.key and one.key == step.key.partition("[")[0]]
    programs = (*_PROGRAMS.get(step.backend, ()), *_PROGRAMS.get(step.tunable, ()))
    found += [f"{one.who} is active" for one in present if not one.key and one.who in programs]
    known = [text for name, text in _WRITERS.items() if name in (step.backend, step.tunable)]
    return "; ".join([*found, *known]) or "nobody known to tune this host"


def verify(plan: Plan | None, roles: tuple[str, ...], netns: str) -> list[Drift]:
    """Return every value apply wrote and still owns, and what `plan` would change on top."""
    present = owners()
    latest: dict[tuple[str, tuple[str, str]], Drift] = {}
    for transaction in journal.transactions():
        header = transaction.header
        if transaction.closed or not set(roles) & set(header["roles"]) or (netns and header["netns"] != netns):
            continue
        locate = Locator(str(header["netns"]))
        for step in [step for step in transaction.open_steps if not step.disturbed]:
            expected = step.holds or step.wrote
            found, note = None, "the device is gone"
            try:
                device = locate(step.device)
                if device is not None:
                    found, note = current(step, device), ""
            except FabtuneError as error:
                note = str(error)
            drifted = found is None or not is_ours(step, found, in_doubt=False)
            if drifted and found is not None:
                note = suspect(step, present)
            latest[step.tunable, step.device.key] = Drift(
                step.tunable, step.device.label, expected, found, drifted, note
            )
    for row in plan.changes if plan else []:
        assert row.device is not None and row.wanted is not None
        key = row.tunable.name, row.device.key
        latest.setdefault(key, Drift(row.tunable.name, row.device.label, row.wanted, row.now, True, "not applied"))
    return list(latest.values())

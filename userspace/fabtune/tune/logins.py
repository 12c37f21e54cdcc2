# SPDX-License-Identifier: GPL-2.0-or-later
"""Previews of logins: a host's node records against a target's portal groups, as they are or as a profile has them."""

from collections.abc import Mapping
from dataclasses import dataclass

from fabtune.catalog.profile import Profile
from fabtune.catalog.tunable import ROLES, Tunable, shipped_catalog
from fabtune.facts.collect import Facts
from fabtune.host import targets
from fabtune.model.device import Device
from fabtune.model.document import Json
from fabtune.model.login_target import serves
from fabtune.model.negotiate import Agreed, Value, preview
from fabtune.model.path import NetworkPath
from fabtune.tune.plan import make_plan

RECORD_KEYS = {
    "iscsi.initial_r2t": "InitialR2T",
    "iscsi.immediate_data": "ImmediateData",
    "iscsi.first_burst": "FirstBurstLength",
    "iscsi.max_burst": "MaxBurstLength",
    "iscsi.max_outstanding_r2t": "MaxOutstandingR2T",
    "iscsi.max_recv_segment": "MaxRecvDataSegmentLength",
    "iscsi.max_xmit_segment": "MaxXmitDataSegmentLength",
    "iscsi.header_digest": "HeaderDigest",
    "iscsi.data_digest": "DataDigest",
    "iscsi.cmds_max": "cmds_max",
    "iscsi.queue_depth": "queue_depth",
}


@dataclass(frozen=True)
class LoginPreview:
    """One record that would log in to one TPG; for a missing one the defaults are used."""

    label: str
    record: str | None
    tpg: str | None
    agreed: list[Agreed]

    def as_json(self) -> dict[str, Json]:
        """Return the preview with stable keys."""
        return {"record": self.record, "tpg": self.tpg, "agreed": [one.as_json() for one in self.agreed]}


def acl_of(facts: Facts, tpg: Device, record: Device) -> Device | None:
    """Return the ACL of `tpg` that the initiator of `record` logs in by, if it has one of its own."""
    identity = f"{tpg.identity},{record.where.get('initiator')}"
    known = [device for name in targets.acl_offers() for device in _devices(facts, name)]
    return next((device for device in known if device.identity == identity), None)


def groups_of(facts: Facts) -> list[Device]:
    """Return the portal groups of whatever kind of target."""
    return [device for name, key in targets.offers().items() if key == "FirstBurstLength"
            for device in _devices(facts, name)]  # fmt: skip


def readings_of(facts: Facts, keys: Mapping[str, str], device: Device | None) -> dict[str, Value]:
    """Return the values of `device` by RFC name that could be read and are of the vocabulary's type."""
    found: dict[str, Value] = {}
    catalog = shipped_catalog()
    for name, key in keys.items():
        for reading in facts.on(name, device) if device is not None else ():
            if reading.value is not None:
                found |= _typed(catalog.tunables[name], key, reading.value)
    return found


def _values(
    facts: Facts,
    keys: Mapping[str, str],
    device: Device | None,
    role: str,
    profile: Profile | None,
    path: NetworkPath | None,
) -> dict[str, Value]:
    """Return the values of one side, by RFC name: what the device has, with the profile's wishes on top."""
    found = readings_of(facts, keys, device)
    for row in make_plan(profile, (role,), facts, path, {}).rows if profile else []:
        same = row.device is None or (device is not None and row.device.key == device.key)
        if row.tunable.name in keys and same and row.wanted is not None:
            found |= _typed(row.tunable, keys[row.tunable.name], row.wanted)
    return found


def _typed(tunable: Tunable, key: str, native: str) -> dict[str, Value]:
    """Return the value of `native` by `key`, None if its type is not `tunable`'s: no login reads it."""
    value = tunable.parse(native)
    return {key: value} if tunable.fits(value) else {}


def _devices(facts: Facts, tunable: str) -> list[Device]:
    return [reading.device for reading in facts.of(tunable)]


def preview_logins(
    initiator: Facts, target: Facts, profile: Profile | None, path: NetworkPath | None
) -> list[LoginPreview]:
    """Return the preview of each record with the TPG it names; an unknown side has its defaults."""
    records: list[Device | None] = list(_devices(initiator, "iscsi.first_burst"))
    tpgs = groups_of(target)
    if not records and not tpgs and profile is None:
        return []
    found = []
    for record in records or [None]:
        matching: list[Device | None] = [tpg for tpg in tpgs if record is None or serves(tpg, record)]
        for tpg in matching or [None]:
            ours = _values(initiator, RECORD_KEYS, record, ROLES[0], profile, path)
            theirs = _values(target, targets.offers(), tpg, ROLES[1], profile, path)
            # An ACL has a command window of its own.
            acl = acl_of(target, tpg, record) if tpg and record else None
            if acl:
                theirs |= _values(target, targets.acl_offers(), acl, ROLES[1], profile, path)
            label = f"{record.label if record else 'open-iscsi defaults'} with {tpg.label if tpg else 'LIO defaults'}"
            found.append(
                LoginPreview(
                    label, record.identity if record else None, tpg.identity if tpg else None, preview(ours, theirs)
                )
            )
    return found

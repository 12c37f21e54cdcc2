# SPDX-License-Identifier: GPL-2.0-or-later
"""open-iscsi node records, read and updated with iscsiadm.

Only the keys of the vocabulary are ever kept: a record also holds CHAP secrets, which must not
reach output, journal or facts.
"""

from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.host import iscsiadm
from fabtune.model.device import Device


def select(device: Device) -> list[str]:
    """Return the iscsiadm arguments that name the record of `device`."""
    return iscsiadm.node(device.where["target"], device.where["portal"], device.where["interface"])


class _Record:
    def __init__(self) -> None:
        self._records: dict[str, dict[str, str]] | None = None
        # Records that share their identity with one of another TPGT.
        self._twins: list[dict[str, str]] = []

    def all(self) -> dict[str, dict[str, str]]:
        """Return every record by identity; one run of iscsiadm serves them all.

        Raises FabtuneError where the records cannot be read.
        """
        if self._records is None:
            try:
                found = iscsiadm.parse_records(iscsiadm.iscsiadm("-m", "node", "-o", "show"))
            except UnsupportedError:
                raise
            except FabtuneError:
                # One damaged record keeps iscsiadm from showing any other, even by name; it still updates them
                # (libopeniscsiusr reads all, idbm reads one).
                found = [
                    parsed
                    for file in iscsiadm.record_files()
                    for parsed in iscsiadm.parse_records(iscsiadm.BEGIN + iscsiadm.text_of(file))
                ]
                if not found:
                    raise
            found = [record for record in found if record.get("node.name")]
            self._records = {iscsiadm.identity(record): record for record in found}
            self._twins = [record for record in found if self._records[iscsiadm.identity(record)] is not record]
        return self._records

    def forget(self) -> None:
        """Read the records anew when next asked."""
        self._records = None

    def read(self, device: Device, key: str) -> str:
        record = self.all().get(device.identity)
        if record is None:
            raise UnsupportedError(f"node record {device.label}: gone")
        if key not in record:
            raise UnsupportedError(f"node record {device.label}: this open-iscsi has no {key}")
        for twin in self._twins:
            if iscsiadm.identity(twin) == device.identity and twin.get(key) != record[key]:
                raise FabtuneError(
                    f"node record {device.label}: there are two, and {key} is {record[key]} in that of TPGT "
                    f"{record.get('node.tpgt')}, {twin.get(key)} in that of TPGT {twin.get('node.tpgt')}; "
                    "remove the stale one"
                )
        return record[key]

    def write(self, device: Device, key: str, value: str) -> None:
        try:
            iscsiadm.iscsiadm(*select(device), "-o", "update", "-n", key, "-v", value)
        finally:
            self.forget()


BACKEND = _Record()

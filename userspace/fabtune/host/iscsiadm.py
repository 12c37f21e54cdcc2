# SPDX-License-Identifier: GPL-2.0-or-later
"""open-iscsi's node records and where they are kept, asked with iscsiadm.

Only the keys of the vocabulary are ever kept: a record also holds CHAP secrets, which must not
reach output, journal or facts.
"""

import contextlib
import glob
import re
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host import tools, tree
from fabtune.host.run import Ended

_SECRET = re.compile(r"password|username|\.auth\.|chap", re.IGNORECASE)
_TIMEOUT_S = 60
# ISCSI_ERR_NO_OBJS_FOUND, include/iscsi_err.h
_NO_RECORDS = 21
BEGIN = "# BEGIN RECORD\n"


def iscsiadm(*arguments: str) -> str:
    """Run iscsiadm and return its output, '' for "no records found".  Raises FabtuneError."""
    done = _run(*arguments)
    if done.status == _NO_RECORDS:
        return ""
    if done.status:
        raise FabtuneError(f"iscsiadm {' '.join(arguments)}: {tools.last_words(done)}")
    return done.stdout


def _run(*arguments: str) -> Ended:
    """Run iscsiadm to its end.  Raises FabtuneError."""
    # A login may start iscsid, which must not keep our lock for ever.
    keeps_lock = "update" in arguments or "--logout" in arguments
    return tools.run_tool("iscsiadm", "open-iscsi", *arguments, timeout_s=_TIMEOUT_S, keeps_lock=keeps_lock)


def parse_records(text: str) -> list[dict[str, str]]:
    """Return the key-value pairs of each record in `iscsiadm -o show` output, without secrets."""
    records: list[dict[str, str]] = []
    for line in text.splitlines():
        if line.startswith("# BEGIN RECORD"):
            records.append({})
        elif records and " = " in line and not _SECRET.search(line.partition(" = ")[0]):
            key, _, value = line.partition(" = ")
            records[-1][key.strip()] = "" if value.strip() == "<empty>" else value.strip()
    return records


def identity(record: dict[str, str]) -> str:
    """Return what names a record for good: target, portal and interface."""
    name, address = record.get("node.name", ""), record.get("node.conn[0].address", "")
    port, interface = record.get("node.conn[0].port", "3260"), record.get("iface.iscsi_ifacename", "default")
    return f"{name},{portal_text(address, port)},{interface}"


def portal_text(address: str, port: str) -> str:
    """Return address and port as iscsiadm writes them."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def node(target: str, portal: str, interface: str) -> list[str]:
    """Return the iscsiadm arguments that name one record."""
    return ["-m", "node", "-T", target, "-p", portal, "-I", interface]


def one(target: str, portal: str, interface: str) -> dict[str, str] | None:
    """Return one record as it is now, None where there is none.

    Other records may be damaged.  Raises FabtuneError where this one cannot be read.
    """
    return next(iter(records_named(target, portal, interface)), None)


def records_named(target: str, portal: str, interface: str) -> list[dict[str, str]]:
    """Return the records of these names: with a stale one of another TPGT there are two, and iscsiadm takes both.

    Raises FabtuneError where they cannot be read.
    """
    found = parse_records(iscsiadm(*node(target, portal, interface), "-o", "show"))
    return [record for record in found if record.get("node.name") == target]


def credentials(target: str, portal: str, interface: str) -> dict[str, str]:
    """Return the CHAP settings of one record as they are, secrets included.  Raises FabtuneError where it has none."""
    text = iscsiadm(*node(target, portal, interface), "-o", "show", "-S")
    pairs = (line.partition(" = ") for line in text.splitlines() if line.startswith("node.session.auth."))
    return {key: "" if value == "<empty>" else value.strip() for key, _, value in pairs}


def own_initiator_name() -> str:
    """Return the name that this host logs in by where a record has none of its own, '' where it has none either."""
    text = tree.read_text(tree.ETC / "iscsi/initiatorname.iscsi") or ""
    found = re.search(r"^InitiatorName=(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def initiator_name(record: dict[str, str]) -> str:
    """Return the name that a login by `record` uses, '' where there is none."""
    return record.get("iface.initiatorname") or own_initiator_name()


def portal_directories(target: str, portal: str) -> dict[str, Path]:
    """Return the directories of a portal's records by their TPGT."""
    address, _, port = portal.rpartition(":")
    found = record_files(target, f"{address.strip('[]')},{port}")
    places = {file if file.parent.name == target else file.parent for file in found}
    return {place.name.rpartition(",")[2]: place for place in sorted(places)}


def _places() -> list[Path]:
    """Return where iscsiadm keeps its records, or might: an upgrade of open-iscsi leaves a copy in the old place."""
    places = [tree.ETC / "iscsi/nodes", tree.ROOT / "var/lib/iscsi/nodes"]
    if not any(place.exists() for place in places):
        return places
    told = ""
    with contextlib.suppress(FabtuneError):
        # It stops at a damaged record, but names the directory before that (libopeniscsiusr, iscsi_nodes_get).
        done = _run("-d", "8", "-m", "node")
        told = done.stdout + done.stderr
    return [place for place in places if f" from {place} nodes folder" in told] or places


def record_files(target: str = "*", address: str = "*") -> list[Path]:
    """Return the files of node records: NODES/TARGET/ADDRESS,PORT,TPGT/INTERFACE."""
    places = _places()
    pattern = (
        f"{target if target == '*' else glob.escape(target)}/{address if address == '*' else glob.escape(address)}"
    )
    found = [path for place in places for path in (*place.glob(f"{pattern},*/*"), *place.glob(f"{pattern},*"))]
    return sorted(path for path in found if path.is_file())


def text_of(file: Path) -> str:
    """Return the text of a record's file, '' where it cannot be read."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def absent(identity: str) -> bool:
    """Tell whether open-iscsi has no file for the record: iscsiadm says "no records found" of an empty one as well."""
    parts = identity.rsplit(",", 2)
    if len(parts) != 3:
        raise FabtuneError(f"record '{identity}': expected TARGET,ADDRESS:PORT,INTERFACE")
    target, portal, interface = parts
    address, _, port = portal.rpartition(":")
    found = record_files(target, f"{address.strip('[]')},{port}")
    return not any(file.name == interface or file.parent.name == target for file in found)

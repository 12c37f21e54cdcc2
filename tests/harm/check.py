# SPDX-License-Identifier: GPL-2.0-or-later
"""What must hold, whatever was drawn: rules over snapshots, the journal's bytes and what commands said."""

import contextlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from command import Done
from readers import Snapshot, differing

EXIT_CODES = (0, 1, 2, 3, 4, 5, 130)


@dataclass(frozen=True)
class Failure:
    """One rule that was broken: at which step (-1: while building), which rule, and how."""

    step: int
    rule: str
    detail: str


@dataclass
class Expected:
    """What each value may be when fabtune has taken everything back: as first seen, or as somebody else made it."""

    base: Snapshot
    others: dict[str, set[str | None]] = field(default_factory=dict)
    # Names that are nobody's business any more, as patterns.
    wild: list[str] = field(default_factory=list)

    def allow(self, before: Snapshot, after: Snapshot) -> None:
        """Take what changed from `before` to `after` as somebody else's doing, which must stay."""
        for name in differing(before, after):
            self.others[name] = {after.get(name)}

    def also(self, before: Snapshot, after: Snapshot) -> None:
        """Take what changed as somebody else's doing that may stay or go."""
        for name in differing(before, after):
            self.others.setdefault(name, {self.base.get(name)}).add(after.get(name))

    def wrong(self, now: Snapshot) -> list[str]:
        """Return the names whose values are not as they may be."""
        found = []
        for name in sorted(self.base.keys() | now.keys() | self.others.keys()):
            if any(re.match(pattern, name) for pattern in self.wild):
                continue
            if now.get(name) not in self.others.get(name, {self.base.get(name)}):
                found.append(name)
        return found

    def told(self, names: list[str], now: Snapshot) -> str:
        """Return one line of differences."""
        shown = []
        for name in names[:6]:
            wanted = " or ".join(_cut(one) for one in self.others.get(name, {self.base.get(name)}))
            shown.append(f"{name}: {_cut(now.get(name))}, not {wanted}")
        return "; ".join(shown) + (f"; and {len(names) - 6} more" if len(names) > 6 else "")


def _cut(value: str | None) -> str:
    text = "absent" if value is None else value.replace("\n", "\\n")
    return text if len(text) < 90 else text[:87] + "..."


def settled(name: str) -> bool:
    """Tell whether a value belongs to something that outlives sessions."""
    return not name.startswith(("session ", "disk ", "file /etc/rtslib-fb-target/backup"))


def manners(done: Done, may_die: bool) -> list[tuple[str, str]]:
    """Return what is wrong with how a command ended."""
    found = []
    if "Traceback (most recent call last)" in done.out + done.err:
        found.append(("traceback", (done.err or done.out).strip().splitlines()[-1]))
    if done.code not in EXIT_CODES and not (may_die and done.code == -9):
        found.append(("exit code", f"{done.code}: {done.err.strip()[-200:]}"))
    return found


@dataclass(frozen=True)
class Claim:
    """One write the journal says is ours and not taken back."""

    backend: str
    key: str
    scope: str
    identity: str
    values: frozenset[str]


def claims(directory: Path) -> list[Claim] | None:
    """Return the journal's open writes, read from its bytes; None when it cannot be read."""
    found: dict[tuple[str, str, str, str], set[str]] = {}
    try:
        paths = sorted(directory.glob("journal/*.jsonl"))
        texts = [path.read_text() for path in paths]
    except OSError:
        return None
    for text in texts:
        steps: list[dict[str, object]] = []
        closed = False
        for raw in text.splitlines():
            try:
                line = json.loads(raw)
            except ValueError:
                continue
            if line["kind"] in ("write", "claim"):
                steps.append(line | {"open": True})
            elif line["kind"] == "holds" and line["step"] <= len(steps):
                steps[line["step"] - 1]["holds"] = line["value"]
            elif line["kind"] == "restored" and line["step"] <= len(steps):
                steps[line["step"] - 1]["open"] = False
            elif line["kind"] == "closed":
                closed = True
        for step in steps:
            device = step["device"]
            assert isinstance(device, dict)
            if step["open"] and not closed:
                key = (str(step["backend"]), str(step["key"]), str(device["scope"]), str(device["identity"]))
                found.setdefault(key, set()).update({str(step["wrote"]), str(step.get("holds", step["wrote"]))})
    return [Claim(*key, frozenset(values)) for key, values in found.items()]


# Which backends may have written a kind of value that a snapshot does not tell apart any further.
_BACKENDS = {
    "qdisc": ("qdisc",),
    "feature": ("ethtool",),
    "route": ("route",),
    "file": ("conf", "textfile", "saveconfig", "srp_daemon"),
}


def claimed(name: str, open_claims: list[Claim]) -> bool:
    """Tell whether some open claim may be about the value `name` of a snapshot."""
    kind, _, rest = name.partition(" ")
    for claim in open_claims:
        if kind == "sysctl" and claim.backend == "sysctl":
            if rest.split()[1] == claim.key or rest.split()[1].partition("[")[0] == claim.key.partition("[")[0]:
                return True
        elif kind == "record" and claim.backend == "record":
            if claim.identity.split(",")[0] in rest and (rest.endswith(" " + claim.key) or rest.endswith("(file)")):
                return True
        elif kind == "lio" and claim.backend == "attribute":
            if rest.endswith("/" + claim.key):
                return True
        elif kind == "link" and claim.scope == "nic" or claim.backend in _BACKENDS.get(kind, ()):
            return True
    return False


def reading(claim: Claim, now: Snapshot) -> str | None:
    """Return what the claimed value is in snapshot `now`; None when this reader does not know such a value."""
    if claim.backend == "sysctl":
        where = "target" if claim.identity == "netns:target" else "init"
        return now.get(f"sysctl {where} {claim.key}")
    if claim.backend == "record":
        target, portal = claim.identity.split(",")[:2]
        address, _, port = portal.rpartition(":")
        return now.get(f"record {target},{address.strip('[]')},{port} {claim.key}")
    if claim.backend == "attribute" and claim.scope in ("tpg", "acl"):
        parts = claim.identity.split(",")
        place = f"iscsi/{parts[0]}/{parts[1]}" + (f"/acls/{parts[2]}" if len(parts) > 2 else "")
        return now.get(f"lio {place}/{claim.key}")
    return None


def interrupted(directory: Path) -> list[str]:
    """Return the profiles whose apply ended half way and was not completed since, read from the journal's bytes."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(directory.glob("journal/*.jsonl")):
        lines = []
        for raw in path.read_text().splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(raw))
        by_kind: dict[str, list[dict[str, Any]]] = {}
        for line in lines:
            by_kind.setdefault(line["kind"], []).append(line)
        steps = {kind: {line["step"] for line in of if "step" in line} for kind, of in by_kind.items()}
        claims, waiting = steps.get("claim", set()), steps.get("waiting", set())
        still = (steps.get("write", set()) | claims) - steps.get("restored", set())
        if "begin" not in by_kind or "closed" in by_kind or not still:
            continue
        begin = by_kind["begin"][0]
        if "applied" in by_kind:
            found = {name: one for name, one in found.items() if not _has_all_of(begin, one)}
        elif still <= claims or not still - claims <= waiting:
            found[path.stem] = begin
    return [str(one["profile"]) for one in found.values()]


def _has_all_of(later: dict[str, Any], one: dict[str, Any]) -> bool:
    same = (later["profile"], later["netns"]) == (one["profile"], one["netns"])
    return same and set(one["roles"]) <= set(later["roles"])


def untrue(done: Done, open_claims: list[Claim], now: Snapshot, missing: list[str], halves: list[str]) -> str:
    """Return what verify said that is not so, '' if it told the truth."""
    moved = []
    for claim in open_claims:
        value = reading(claim, now)
        if value is not None and value.split() not in [one.split() for one in claim.values]:
            moved.append(f"{claim.key} of {claim.identity} is {value}, ours {'/'.join(sorted(claim.values))}")
    if done.code == 0 and moved:
        return f"exit 0, but {moved[0]}" + (f" and {len(moved) - 1} more" if len(moved) > 1 else "")
    if done.code == 0 and missing:
        return f"exit 0, but the session of {', '.join(missing)} is away"
    if done.code == 0 and halves:
        return f"exit 0, but the apply of {', '.join(halves)} was interrupted"
    if done.code == 3 and not open_claims and not missing:
        return f"exit 3, but nothing is in force: {done.out.strip()[:200]}"
    return ""

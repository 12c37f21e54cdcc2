# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes the typed file that belongs to a text of fabstat.ko, from the ABI page alone."""

import re
import struct

from fabtune.stat.snapshot import DETAILS, OPS, TIMES

KINDS = ("device", "queue", "events", "op", "errors", "histogram", "detail")
LISTS = {"state": ("live", "dying", "gone"), "limit_of": ("device", "queue"), "op": OPS, "time": TIMES}
DETAIL_WORDS = tuple(f"{'time' if name == 'wait' else 'size'}={name}" for name in DETAILS)
ROOM = {"disk": 32, "hctl": 40, "driver": 32, "parent": 32}


def typed_of(text: str) -> bytes:
    """Return the typed reading that says what `text` says."""
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("device "))
    events = lines[3].split(" ")[1:]
    header = [lines[0].replace("# fabstat ", "# fabstat-typed "), *lines[1:first]]
    header += [f"list {name} {' '.join(values)}" for name, values in LISTS.items()]
    header.append(f"list detail {' '.join(DETAIL_WORDS)}")
    data = ("\n".join(header) + "\n").encode() + b"\0"
    data += bytes(-len(data) % 8)
    return data + b"".join(_record(line, events) for line in lines[first:])


def _record(line: str, events: list[str]) -> bytes:
    kind, *values = line.split(" ")
    body = b"".join(_value(kind, value, events) for value in values)
    return struct.pack("=II", KINDS.index(kind), 8 + len(body)) + body


def _value(kind: str, word: str, events: list[str]) -> bytes:
    if "=" not in word:
        return struct.pack("=QQ", *map(int, word.split(":")))
    key, value = word.split("=")
    if key in events:
        return struct.pack("=QQ", events.index(key), int(value))
    if kind == "detail" and word in DETAIL_WORDS:
        return struct.pack("=Q", DETAIL_WORDS.index(word))
    if key in ROOM:
        name = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), value)
        return struct.pack(f"={ROOM[key]}s", name.encode())
    if key == "dev":
        major, minor = map(int, value.split(":"))
        return struct.pack("=Q", major << 32 | minor)
    if key in LISTS:
        return struct.pack("=Q", LISTS[key].index(value))
    return struct.pack("=q" if key == "in_flight" else "=Q", int(value))

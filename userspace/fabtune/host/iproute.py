# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs iproute2's tools (`ip`, `tc`) for their JSON, inside a network namespace."""

import json

from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.host import namespaces, tools
from fabtune.model.document import Json

# One thing that a tool lists: what it says of it, by name.
Listed = dict[str, Json]


def run(program: str, *arguments: str, netns: str = "", stdin: str = "", tolerant: bool = False) -> str:
    """Return what `program` prints; `tolerant` ignores its exit status.

    Raises UnsupportedError where the kernel lacks the thing, FabtuneError for other failures.
    """
    with namespaces.inside(netns):
        done = tools.run_tool(program, "iproute2", *arguments, stdin=stdin, keeps_lock=True)
    if done.status and not tolerant:
        message = (done.stderr.strip().splitlines() or [f"exit status {done.status}"])[0]
        if any(words in message for words in ("is unknown", "not supported", "No such file", "Cannot find device")):
            raise UnsupportedError(f"{program} {' '.join(arguments)}: {message}")
        raise FabtuneError(f"{program} {' '.join(arguments)}: {message}")
    return done.stdout


def way_to(address: str, local: str = "", bound: str = "", port: str = "") -> Listed:
    """Return the route that packets to `address` take.  Raises FabtuneError where there is none.

    Those of a socket leave from its address `local` and, where it is bound to one, by the interface `bound`; `port`
    is one of them ("dport 3260"), by which rules may send it another way.
    """
    more = [*(("from", local) if local else ()), *(("oif", bound) if bound else ())]
    more += ["ipproto", "tcp", *port.split()] if port else []
    rows = read_json("ip", "route", "get", address, *more, texts=("dev", "dst"))
    if not rows:
        raise FabtuneError(f"ip -j route get {address}: no route")
    return rows[0]


def read_json(program: str, *arguments: str, netns: str = "", texts: tuple[str, ...] = ()) -> list[Listed]:
    """Return the list that ``program -j`` prints, in which each row has the keys `texts`.  Raises FabtuneError."""
    text = run(program, "-j", *arguments, netns=netns)
    what = f"{program} -j {' '.join(arguments)}"
    try:
        rows = json.loads(text or "[]")
    except (ValueError, RecursionError) as error:
        raise FabtuneError(f"{what}: not JSON: {error}") from None
    if not isinstance(rows, list):
        raise FabtuneError(f"{what}: found {str(rows):.60}, expected a list")
    found = [row for row in rows if isinstance(row, dict)]
    for key in texts:
        odd = next((row for row in found if not isinstance(row.get(key), str)), None)
        if odd is not None:
            raise FabtuneError(f"{what}: '{key}' is missing or no text in {str(odd):.60}")
    return found


def batch_json(program: str, family: str, commands: list[str], netns: str = "") -> list[Listed]:
    """Return the rows of all `commands` from one run of ``program -batch``; a command that fails has none."""
    if not commands:
        return []
    # A line is a command: what a host calls a peer must not make two of one.
    stdin = "\n".join(" ".join(command.split()) for command in commands)
    text = run(program, "-j", family, "-force", "-batch", "-", netns=netns, stdin=stdin, tolerant=True)
    rows: list[Listed] = []
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        try:
            found, end = decoder.raw_decode(text)
        except (ValueError, RecursionError) as error:
            raise FabtuneError(f"{program} -batch: not JSON: {error}") from None
        rows += [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
        text = text[end:]
    return rows

# SPDX-License-Identifier: GPL-2.0-or-later
"""The tools that show and set what this host is: where they are, and one question to one of them."""

from pathlib import Path

from fabtune import packages
from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.host import tree
from fabtune.host.run import Ended, TimeLimitError, finish, where_is

# Descriptors that a tool which writes keeps open: if we are killed, the lock lasts until it has ended.
held: list[int] = []


def run_tool(
    program: str, package: str, *arguments: str, stdin: str = "", timeout_s: int = 30, without: str = "",
    keeps_lock: bool = False,
) -> Ended:  # fmt: skip
    """Run a tool of this host to its end, `without` a capability; Ctrl-C and hang-up are for us alone.

    One that writes keeps the lock until it has ended, even if we are killed; one that only reads must not.
    Raises UnsupportedError where it is not installed, FabtuneError where it does not end.
    """
    command = [find(program, package), *arguments]
    if without:
        command = [find("setpriv", "util-linux"), "--bounding-set", f"-{without}", *command]
    locks = held if keeps_lock else ()
    try:
        return finish(command, stdin=stdin, timeout_s=timeout_s, own_session=True, pass_fds=locks)
    except TimeLimitError:
        raise FabtuneError(f"{program} {' '.join(arguments)}: no answer within {timeout_s} s") from None


def last_words(done: Ended) -> str:
    """Return the last line of what a tool said of its failure."""
    return (done.stderr.strip().splitlines() or [f"exit status {done.status}"])[-1]


def find(program: str, package: str) -> str:
    """Return the path of `program`, which Debian's `package` brings.  Raises UnsupportedError.

    FABTUNE_ROOT points at a copy of a host's trees: only programs that lie in it may stand for that host's, for
    the others would show and change the host that fabtune runs on.
    """
    path = where_is(program)
    if path is None:
        name = packages.package_name(tree.ETC, program, package)
        raise UnsupportedError(f"{program} is not installed{name and f' (package {name})'}")
    if not in_tree(path):
        raise UnsupportedError(
            f"{program}: not run, because FABTUNE_ROOT={tree.ROOT} is not the host that {path} is for"
        )
    return path


def in_tree(path: str) -> bool:
    """Tell whether `path` belongs to the host whose trees are looked at."""
    return Path("/") == tree.ROOT or Path(path).absolute().is_relative_to(tree.ROOT.absolute())

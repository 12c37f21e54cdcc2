# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``export``: metrics for Prometheus, over HTTP or as a file for node_exporter."""

import argparse
import contextlib
import ipaddress
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fabtune.cli import console
from fabtune.cli.arguments import first_given
from fabtune.errors import ExitCode, InputError
from fabtune.export import kept, reader, web
from fabtune.export.exposition import render
from fabtune.export.families import PROMETHEUS
from fabtune.export.gather import Gatherer
from fabtune.host import files

_OURS = b"# HELP fabtune_"


def run_export(args: argparse.Namespace) -> int:
    """Write the metrics once, or serve them until somebody ends it."""
    if (args.textfile or args.only == "reader") and first_given(args, "--listen"):
        raise InputError(f"--listen: nothing listens with {'--textfile' if args.textfile else '--only reader'}")
    if args.textfile:
        return _write(args.textfile)
    path = kept.runtime_dir() / "reader.sock"
    # A stop is the usual end of what serves.
    with contextlib.suppress(KeyboardInterrupt):
        if args.only == "reader":
            reader.MetricsReader().serve(reader.inherited() or reader.listener(path))
        else:
            _serve(args.listen, _reader_at(path) if args.only else _own_reader(args.listen))
    return ExitCode.DONE


def _reader_at(path: Path) -> Callable[[str], bytes]:
    return partial(reader.answer_of, path)


def _own_reader(listen: str) -> Callable[[str], bytes]:
    """Return a reader in this process.  Raises InputError where root would serve the network."""
    address, _ = web.address_of(listen)
    if os.geteuid() == 0 and not ipaddress.ip_address(address).is_loopback:
        raise InputError(
            f"--listen {listen}: as root it serves this host alone; fabtune-exporter.service serves others, with an "
            "unprivileged server before a root reader (`--only reader`, `--only server`)"
        )
    return reader.MetricsReader().answer


def _serve(listen: str, fetch: Callable[[str], bytes]) -> None:
    server = web.MetricsServer(web.address_of(listen), fetch, console.say)
    # With port 0 the kernel has chosen one.
    console.say(f"metrics at http://{listen.rpartition(':')[0]}:{server.server_port}/metrics")
    with server:
        server.serve_forever()


def _write(path: Path) -> int:
    found = Gatherer().gather()
    for text in dict.fromkeys(found.problems.values()):
        sources = ", ".join(source for source, its in found.problems.items() if its == text)
        console.say(f"fabtune: {sources}: {text}")
    if str(path) == "-":
        with console.reader_may_leave():
            for text in render(found, PROMETHEUS):
                print(text, end="")
    else:
        _require_ours(path)
        # node_exporter reads it as a user of its own, whatever cron's or the administrator's umask is.
        umask = os.umask(0o022)
        try:
            files.keep(path, "".join(render(found, PROMETHEUS)).encode(), 0o644, over=True)
        finally:
            os.umask(umask)
    return ExitCode.DONE


def _require_ours(path: Path) -> None:
    """Raise InputError where `path` is a file of somebody else's."""
    if path.is_file() and not path.is_symlink():
        with path.open("rb") as file:
            begins = file.read(len(_OURS))
        if begins not in (b"", _OURS):
            raise InputError(f"{path}: does not begin as fabtune's metrics do; it is left alone")

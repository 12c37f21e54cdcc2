# SPDX-License-Identifier: GPL-2.0-or-later
"""doctor: whether this host is ready for fabtune, and what to do where it is not."""

import argparse
from dataclasses import asdict

from fabtune import __version__
from fabtune.cli import console, table
from fabtune.host.programs import PROGRAMS
from fabtune.model.units import counted
from fabtune.tune import readiness

_LABEL_WIDTH = 22


def run_doctor(args: argparse.Namespace) -> int:
    """Show what was looked at; exit 0 where the host can be tuned and watched."""
    checks = readiness.examine()
    code = readiness.exit_code(checks)
    with console.reader_may_leave():
        if args.json:
            found = [asdict(check) | {"verbs": list(check.verbs)} for check in checks]
            table.print_json({"fabtune": __version__, "exit_code": int(code), "checks": found})
        else:
            _show(checks)
    return code


def _show(checks: list[readiness.Readiness]) -> None:
    for state in (readiness.WRONG, readiness.TO_DO, readiness.UNKNOWN, readiness.OPTIONAL):
        _section(state, [check for check in checks if check.state == state])
    print(readiness.READY)
    programs = {one.name for one in PROGRAMS}
    ready = [check for check in checks if check.state == readiness.READY]
    for check in ready:
        if check.name not in programs:
            table.labelled(f"  {check.name}", check.found, _LABEL_WIDTH)
    table.labelled("  programs", " ".join(check.name for check in ready if check.name in programs), _LABEL_WIDTH)


def _section(title: str, checks: list[readiness.Readiness]) -> None:
    """Print what is not as it could be, each with what to do about it."""
    if not checks:
        return
    print(f"{title} ({counted(len(checks), 'thing')})" if title != readiness.OPTIONAL else "optional, and not there")
    for check in checks:
        verbs = f" (for {', '.join(check.verbs)})" if check.verbs else ""
        table.labelled(f"  {check.name}", f"{check.found}{verbs}", _LABEL_WIDTH)
        if check.fix:
            table.paragraph(f"to do: {check.fix}", " " * _LABEL_WIDTH, " " * _LABEL_WIDTH)
    print()

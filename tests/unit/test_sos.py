# SPDX-License-Identifier: GPL-2.0-or-later
"""sos' plugin collects what its page promises: every unit's journal, and each file that fabtune keeps or is told by."""

import runpy
import sys
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fabtune.export import guarded, verified
from fabtune.tune import armed, persist, persist_links

TOP = Path(__file__).resolve().parents[2]


class Asked:
    """Stands in for sos' Plugin, and keeps what it is asked for."""

    def __init__(self) -> None:
        self.copied: list[str] = []
        self.units: list[str] = []

    def add_copy_spec(self, paths: list[str]) -> None:
        """Keep what is copied."""
        self.copied += paths

    def add_journal(self, units: list[str]) -> None:
        """Keep whose journal it is; as of journalctl, a name may be a pattern."""
        self.units += units

    def add_cmd_output(self, *_: Any, **__: Any) -> None:
        """Take the commands."""

    def copies(self, path: str) -> bool:
        """Tell whether a copy has `path`, by itself or in a directory."""
        return any(fnmatch(path, one) or path.startswith(f"{one}/") for one in self.copied)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Return what the plugin asks sos for."""
    for name in ("sos", "sos.report", "sos.report.plugins"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["sos.report.plugins"].__dict__.update(Plugin=Asked, IndependentPlugin=object)
    plugin = runpy.run_path(str(TOP / "userspace/support/sos_fabtune.py"))["Fabtune"]()
    plugin.setup()
    assert isinstance(plugin, Asked)
    return plugin


def test_the_journal_of_every_unit_is_there(asked: Asked) -> None:
    units = {path.stem for path in (TOP / "userspace/systemd").glob("*.service")}
    units |= {armed._AT_BOOT, f"{armed._UNIT}-1234567890123.service"}
    assert "fabtune-pull" in units
    assert not [unit for unit in units if not any(fnmatch(unit, one) for one in asked.units)]


@pytest.mark.parametrize(
    "path",
    [
        "var/lib/fabtune/journal/x.jsonl", "var/lib/fabtune/pull.json", "etc/fabtune/pull",
        "etc/fabtune/profiles/x.toml", f"run/fabtune/{verified.Verified.FILE}",
        f"run/fabtune/{guarded.Guarded.FILE}", persist._SYSCTL, persist._MODPROBE,
        persist._UDEV, f"etc/systemd/network/73-usb.link.d/{persist_links._DROP_IN}",
        "etc/systemd/network/10-fabtune-eth0.link", "etc/default/fabtune-guard", "etc/default/fabtune-exporter",
    ],
)  # fmt: skip
def test_what_fabtune_keeps_or_is_told_by_is_copied(asked: Asked, path: str) -> None:
    assert asked.copies(f"/{path}")

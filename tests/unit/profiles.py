# SPDX-License-Identifier: GPL-2.0-or-later
"""Applies profiles that a test makes up to the copied tree of hosttree.py."""

import json
from pathlib import Path

from fabtune.backends import record
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.facts.collect import collect
from fabtune.tune import journal
from fabtune.tune.apply import Result, apply
from fabtune.tune.pending import Leave
from fabtune.tune.plan import make_plan, tunables_of

BOTH = ("initiator", "target")


def write(host: Path, name: str, rows: dict[str, object]) -> Result:
    """Apply a profile called `name` that sets `rows`."""
    record.BACKEND.forget()
    text = "".join(f'[initiator."{key}"]\nvalue = {json.dumps(value)}\nwhy = "x"\n' for key, value in rows.items())
    profile = host / f"{name}.toml"
    profile.write_text(f'summary = "x"\n{text}')
    with journal.locked():
        loaded = load_profile(str(profile), shipped_catalog())
        plan = make_plan(loaded, BOTH, collect(tunables_of(loaded)), None, {})
        return apply(plan, collect([]).host, Leave(), lambda _: None)

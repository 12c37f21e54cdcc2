# SPDX-License-Identifier: GPL-2.0-or-later
"""Fuzzed saved plans: loaded and held against the host; some applied through the verb."""

import copy
import json
import random

import mutate
import world
from bench import Bench, Files, claim


class SavedPlan:
    """A plan of `wan` with a few of its rows."""

    name = "plan"

    def __init__(self, bench: Bench) -> None:
        from fabtune.catalog.profile import load_profile
        from fabtune.catalog.tunable import shipped_catalog
        from fabtune.facts.collect import collect
        from fabtune.model.path import NetworkPath
        from fabtune.tune import saved_plan
        from fabtune.tune.plan import make_plan, tunables_of

        self.bench, self.path = bench, bench.scratch / "plan.json"
        self.allowed = world.allowed_files(bench)
        self.catalog = shipped_catalog()
        profile = load_profile("wan", self.catalog)
        self.facts = collect(tunables_of(profile))
        plan = make_plan(profile, ("initiator", "target"), self.facts, NetworkPath(0.05, 125e6), {})
        saved_plan.write(saved_plan.of(plan, self.facts, self.catalog), self.path)
        self.plan = json.loads(self.path.read_text())
        rows = self.plan.pop("rows")
        # A tunable's rows belong together: a device without one would be new since.
        self.rows = [
            [row for row in rows if row["tunable"] == name] for name in sorted({row["tunable"] for row in rows})
        ]
        self.path.unlink()

    def draw(self, draw: random.Random) -> Files:
        rows = [row for group in draw.sample(self.rows, draw.randint(1, 4)) for row in group]
        plan = copy.deepcopy(self.plan) | {"rows": copy.deepcopy(rows)}
        for row in plan["rows"]:
            if "wanted" in row and draw.random() < 0.2:
                row["wanted"] = draw.choice(mutate.ODD_TEXTS)
        if draw.random() < 0.7:
            mutate.break_json(plan if draw.random() < 0.4 else draw.choice(plan["rows"]), draw, 1)
        data = mutate.dump(plan, draw)
        if draw.random() < 0.15:
            data = mutate.break_bytes(data, draw)
        elif draw.random() < 0.02:
            data = mutate.noise(draw)
        return {"file:plan.json": data, "how": b"apply" if draw.random() < 0.003 else b"load"}

    def run(self, files: Files) -> bool:
        if files["how"] == b"apply":
            code, _ = self.bench.verb("apply", "--plan", str(self.path), "--yes", "--json")
            claim(code in (0, 1, 2, 3, 4), f"exit code {code}")
            for name in self.bench.watch.written:
                claim(self.allowed.fullmatch(name) is not None, f"it wrote {name}, which no tunable names")
            return code in (0, 4)
        from fabtune.tune import saved_plan

        loaded = self.bench.result(lambda: saved_plan.load(self.path, self.catalog), str(self.path), bad_input=False)
        if loaded is None:
            return False
        return self.bench.result(lambda: saved_plan.resume(loaded, self.facts), "plan", bad_input=False) is not None

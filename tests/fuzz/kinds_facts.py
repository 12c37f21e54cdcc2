# SPDX-License-Identifier: GPL-2.0-or-later
"""Fuzzed facts files, read by lint and negotiate as from a host elsewhere."""

import copy
import json
import random
from typing import Any

import mutate
from bench import Bench, Files, claim


class FactsFile:
    """A facts file with a few readings: loaded, linted and negotiated; some through the verbs."""

    name = "facts"

    def __init__(self, bench: Bench) -> None:
        from fabtune.catalog.profile import load_profile
        from fabtune.catalog.tunable import shipped_catalog
        from fabtune.facts import saved_facts
        from fabtune.facts.collect import survey

        self.bench, self.path = bench, bench.scratch / "facts.json"
        self.catalog = shipped_catalog()
        self.profile = load_profile("lan", self.catalog)
        facts: dict[str, Any] = json.loads(json.dumps(saved_facts.to_json(survey(self.catalog.tunables.values()))))
        self.readings = [one for one in facts.pop("readings") if one["value"] is not None]
        facts["sockets"] = [
            {"local": "10.2.0.9", "remote": "10.2.0.1", "local_port": 4000, "remote_port": 3260,
             "rtt_ms": 50.0, "min_rtt_ms": 49.0, "delivery_bytes_per_s": 10**6, "cwnd_segments": 10, "mss_bytes": 1448,
             "retransmitted_segments": 0, "congestion_control": "cubic",
             "receive_buffer_bytes": 10**6, "send_buffer_bytes": 10**6}
        ]  # fmt: skip
        self.facts = facts

    def draw(self, draw: random.Random) -> Files:
        facts = copy.deepcopy(self.facts)
        facts["readings"] = copy.deepcopy(draw.sample(self.readings, draw.randint(0, 12)))
        for reading in facts["readings"]:
            if draw.random() < 0.2:
                reading["value"] = draw.choice(
                    ("0", "-1", "65536", "4294967295", "99999999999999999999", "Yes", "No", *mutate.ODD_TEXTS)
                )
        if draw.random() < 0.85:
            mutate.break_json(facts, draw)
        data = mutate.dump(facts, draw)
        if draw.random() < 0.15:
            data = mutate.break_bytes(data, draw)
        elif draw.random() < 0.02:
            data = mutate.noise(draw)
        how = draw.choices((b"load", b"lint", b"negotiate", b"lint verb", b"negotiate verb"), (500, 250, 200, 4, 4))[0]
        return {"file:facts.json": data, "how": how}

    def run(self, files: Files) -> bool:
        how = files["how"].decode()
        if how.endswith(" verb"):
            given = ("--rtt", "50ms", "--rate", "1gbit")
            words = {
                "lint verb": ("lint", str(self.path)),
                "negotiate verb": ("negotiate", "--initiator", str(self.path), "--target", str(self.path)),
            }
            code, _ = self.bench.verb(*words[how], *given, *(("--json",) if len(files["file:facts.json"]) % 2 else ()))
            claim(code in (0, 1, 2, 3), f"exit code {code}")
            return code != 2
        return self.bench.result(lambda: self._use(how), str(self.path)) is not None

    def _use(self, how: str) -> bool:
        from fabtune.facts import saved_facts
        from fabtune.lint.hazards import lint
        from fabtune.model.path import NetworkPath
        from fabtune.tune.logins import preview_logins

        facts = saved_facts.load(self.path)
        if how == "lint":
            lint(facts, self.catalog, NetworkPath(0.05, 125e6))
        if how == "negotiate":
            preview_logins(facts, facts, self.profile, NetworkPath(0.001, 125e6))
        return True

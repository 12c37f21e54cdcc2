# SPDX-License-Identifier: GPL-2.0-or-later
"""Fuzzed texts of the host itself: node records, what ip and tc print, sysfs, configfs, /etc.  Planned and surveyed."""

import json
import random

import mutate
from bench import Bench, Files, claim


class _Planned:
    """Reads the host as `plan` does, or as `lint` and `show` do; what cannot be read is said, never raised."""

    def __init__(self, bench: Bench) -> None:
        from fabtune.catalog.profile import load_profile
        from fabtune.catalog.tunable import shipped_catalog

        self.bench = bench
        self.catalog = shipped_catalog().tunables
        self.profile = load_profile("wan", shipped_catalog())

    def change(self, draw: random.Random) -> Files:
        raise NotImplementedError

    def tunables(self) -> list[str]:
        raise NotImplementedError

    def draw(self, draw: random.Random) -> Files:
        how = draw.choices((b"few", b"collect", b"survey", b"plan", b"show", b"lint"), (800, 150, 40, 3, 3, 3))[0]
        return self.change(draw) | {"how": how}

    def run(self, files: Files) -> bool:
        from fabtune.backends import record

        record.BACKEND.forget()
        how = files["how"].decode()
        if how in ("few", "collect", "survey"):
            return self.bench.result(lambda: self._read(how), "", bad_input=False) is not None
        words = {
            "plan": ("plan", "lan", "--rtt", "1ms", "--rate", "1gbit", "--json"),
            "show": ("show", "--json"),
            "lint": ("lint", "--rtt", "1ms"),
        }[how]
        code, _ = self.bench.verb(*words)
        claim(code in (0, 1, 3), f"exit code {code}")
        claim(not self.bench.watch.written, f"{how} wrote {self.bench.watch.written}")
        return code != 1

    def _read(self, how: str) -> bool:
        from fabtune.catalog.tunable import shipped_catalog
        from fabtune.facts.collect import collect, survey
        from fabtune.lint.hazards import lint
        from fabtune.model.path import NetworkPath
        from fabtune.tune.plan import make_plan

        wanted = [self.catalog[name] for name in self.tunables()]
        facts = (survey if how == "survey" else collect)(wanted[:4] if how == "few" else wanted)
        if how == "few":
            return True
        if how == "survey":
            lint(facts, shipped_catalog(), NetworkPath(0.05, 125e6))
        make_plan(self.profile, ("initiator", "target"), facts, NetworkPath(0.05, 125e6), {})
        return True


class Records(_Planned):
    """What `iscsiadm -m node -o show` prints."""

    name = "record"

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._names = [name for name, one in self.catalog.items() if one.scope == "record"]

    def tunables(self) -> list[str]:
        return self._names

    def change(self, draw: random.Random) -> Files:
        data = self.bench.tools.valid["iscsiadm-show"]
        if draw.random() < 0.97:
            data = mutate.break_lines(data, draw)
        return {"answer:iscsiadm-show": data if draw.random() < 0.98 else mutate.noise(draw)}


class Tools(_Planned):
    """What `ip` and `tc` print, JSON and plain."""

    name = "ip and tc"

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._names = [name for name, one in self.catalog.items() if one.scope in ("nic", "route")]
        self._answers = [
            name for name in sorted(bench.tools.valid) if name.startswith(("ip-", "tc-")) and bench.tools.valid[name]
        ]

    def tunables(self) -> list[str]:
        return self._names

    def change(self, draw: random.Random) -> Files:
        name = draw.choice(self._answers)
        data = self.bench.tools.valid[name]
        if name in ("ip-address-j", "ip-route-show-j", "tc-qdisc-show") and draw.random() < 0.7:
            data = mutate.dump(mutate.break_json(json.loads(data), draw), draw)
        elif name == "ip-route-show":
            words = data.split(b" ")
            words[draw.randrange(len(words))] = draw.choice(mutate.ODD_TEXTS).encode(errors="surrogatepass")
            data = b" ".join(words)
        if draw.random() < 0.3:
            data = mutate.break_bytes(data, draw)
        return {f"answer:{name}": data}


class Texts(_Planned):
    """One to three files of the host: values of sysfs, procfs and configfs, iscsid.conf, the saved target."""

    name = "host text"

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._names = sorted(self.catalog)
        paths = [
            path
            for path in sorted(bench.host.rglob("*"))
            if path.is_file() and "bin" not in path.parts and "records" not in path.parts
        ]
        self._files = {str(path.relative_to(bench.scratch)): path.read_bytes() for path in paths}

    def tunables(self) -> list[str]:
        return self._names

    def change(self, draw: random.Random) -> Files:
        files = {}
        for name in draw.sample(sorted(self._files), draw.randint(1, 3)):
            data = self._files[name]
            if draw.random() < 0.6:
                data = draw.choice(mutate.ODD_TEXTS).encode(errors="surrogatepass") + draw.choice((b"", b"\n", data))
            else:
                data = mutate.break_bytes(data, draw)
            files[f"file:{name}"] = data
        return files

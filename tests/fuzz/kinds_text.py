# SPDX-License-Identifier: GPL-2.0-or-later
"""Fuzzed TOML: profiles, carried as far as a plan, and tables of tunables; and the formulas in them."""

import random
import re

import mutate
from bench import Bench, Files, claim

_ODD_TOML = (
    b"true", b"-1", b"0", b"0x10", b"1e999", b"nan", b"-inf", b"9" * 400, b"9" * 5000, b'""', b"[]", b"{}", b"[[]]",
    b'[""]', b"[1, 'a']", b'"max"', b'"auto"', b'"default"', b'"1/0"', b'"0/0"', b'"bdp / (rtt - rtt)"',
    b'"pow2(1e308)"', b'"rtt * 1e300 * 1e300"', b"1979-05-27", b'"' + b"(" * 90 + b'"', b'"' + b"1+" * 150 + b'1"',
    b'"' + b"9" * 390 + b'"', b"'\\x1b[31m'", b'"\\u001b[2J"', b'"\\u0000"', b'"""\n"""', b'"../../../etc/passwd"',
    b'["wan", "wan"]', b'["fuzz"]', b'["../fuzz"]', b'["/dev/zero"]', b'"' + b"x" * 3000 + b'"', b'"\\u202e"',
    b"{ a = 1 }",
)  # fmt: skip
_FORMULA = "bdprtmaxinpow2ceilfloorifandor 0123456789.+-*/()<>=,KMiBsueg_"
_VARIABLES = {"bdp": 6.25e6, "rtt": 0.05, "rate": 125e6}


def _break_toml(data: bytes, draw: random.Random) -> bytes:
    """Give keys other values, remove or double lines, break bytes."""
    lines = data.split(b"\n")
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(lines))
        key, equals, _value = lines[place].partition(b" = ")
        if equals and draw.random() < 0.7:
            lines[place] = key + equals + draw.choice(_ODD_TOML)
    data = b"\n".join(lines)
    if draw.random() < 0.3:
        data = mutate.break_lines(data, draw)
    return mutate.break_bytes(data, draw) if draw.random() < 0.2 else data


def _tables(text: str) -> list[str]:
    """Return the tables of a TOML file, comments before them left out."""
    return [table for table in re.split(r"^(?=\[)", text, flags=re.MULTILINE) if table.startswith("[")]


class Profile:
    """A profile file, loaded and made into a plan; some through the verb."""

    name = "profile"

    def __init__(self, bench: Bench) -> None:
        from fabtune.catalog.tunable import shipped_catalog
        from fabtune.facts.collect import collect
        from fabtune.installed import data_dir

        self.bench = bench
        self.catalog = shipped_catalog()
        self.facts = collect(self.catalog.tunables.values())
        self.path = bench.scratch / "fuzz.toml"
        texts = [path.read_text() for path in sorted(data_dir("profiles").glob("*.toml"))]
        self.tables = [table.encode() for text in texts for table in _tables(text)]
        bench.tools.answers.clear()

    def draw(self, draw: random.Random) -> Files:
        parts = [b'summary = "fuzzed"\n'] + draw.choices(self.tables, k=draw.randint(1, 4))
        if draw.random() < 0.15:
            parts.insert(1, b'include = ["%s"]\n' % draw.choice((b"base", b"fuzz", b"lan", b"srp", b"nowhere")))
        files = {"file:fuzz.toml": b"".join(parts), "how": b"verb" if draw.random() < 0.004 else b"function"}
        if draw.random() < 0.95:
            files["file:fuzz.toml"] = _break_toml(files["file:fuzz.toml"], draw)
        if b'"base"' in files["file:fuzz.toml"]:
            files["file:profiles/base.toml"] = _break_toml(b'summary = "base"\n' + draw.choice(self.tables), draw)
        return files

    def run(self, files: Files) -> bool:
        if files["how"] == b"verb":
            words = (
                "plan",
                str(self.path),
                "--rtt",
                "50ms",
                "--rate",
                "1gbit",
                *(("--json",) if len(files["file:fuzz.toml"]) % 2 else ()),
            )
            code, _ = self.bench.verb(*words, names=str(self.bench.scratch))
            claim(code in (0, 2), f"exit code {code}")
            return code == 0
        return self.bench.result(self._plan, str(self.bench.scratch)) is not None

    def _plan(self) -> bool:
        from fabtune.catalog.profile import load_profile
        from fabtune.model.path import NetworkPath
        from fabtune.tune.plan import make_plan

        profile = load_profile(str(self.path), self.catalog)
        plan = make_plan(profile, ("initiator", "target"), self.facts, NetworkPath(0.05, 125e6), {})
        for row in plan.changes:
            claim(row.wanted is not None and row.device is not None, f"{row.tunable.name}: a change to nothing")
            value = row.tunable.parse(str(row.wanted))
            claim(row.tunable.check(value, "plan") == value, f"{row.tunable.name}: {row.wanted!r:.200} is not allowed")
        return True


class Tunables:
    """A directory of the vocabulary with one file in it."""

    name = "tunables"

    def __init__(self, bench: Bench) -> None:
        from fabtune.installed import data_dir

        self.bench = bench
        (bench.scratch / "vocabulary").mkdir()
        texts = [path.read_text() for path in sorted(data_dir("tunables").glob("*.toml"))]
        self.tables = [table.encode() for text in texts for table in _tables(text)]

    def draw(self, draw: random.Random) -> Files:
        text = b"".join(draw.choices(self.tables, k=draw.randint(1, 3)))
        return {"file:vocabulary/tcp.toml": text if draw.random() < 0.05 else _break_toml(text, draw)}

    def run(self, files: Files) -> bool:
        return self.bench.result(self._load, str(self.bench.scratch)) is not None

    def _load(self) -> bool:
        from fabtune import backends
        from fabtune.catalog.tunable import load_catalog

        for tunable in load_catalog(self.bench.scratch / "vocabulary").tunables.values():
            claim(tunable.backend in backends.NAMES, f"unknown backend {tunable.backend!r}")
        return True


class Formula:
    """A formula by itself: noise over its own alphabet, and good ones broken."""

    name = "formula"

    def __init__(self, bench: Bench) -> None:
        from fabtune.installed import data_dir

        self.bench = bench
        text = "".join(path.read_text() for path in sorted(data_dir("profiles").glob("*.toml")))
        self.good = sorted(set(re.findall(r'= "([^"\n]*(?:bdp|rtt|rate)[^"\n]*)"', text)))

    def draw(self, draw: random.Random) -> Files:
        text = draw.choice(self.good) if draw.random() < 0.6 else "".join(draw.choices(_FORMULA, k=draw.randint(0, 60)))
        for _ in range(draw.randint(0, 2)):
            place = draw.randrange(len(text) + 1)
            text = text[:place] + draw.choice((*_FORMULA * 3, *mutate.ODD_TEXTS)) + text[place + draw.randint(0, 2) :]
        return {"formula": text.encode(errors="surrogatepass")}

    def run(self, files: Files) -> bool:
        from fabtune.model.formula import evaluate

        text = files["formula"].decode(errors="surrogatepass")
        value = self.bench.result(lambda: evaluate(text, _VARIABLES, "fuzz"), "formula")
        claim(value is None or isinstance(float(value), float), f"not a number: {value!r}")
        return value is not None

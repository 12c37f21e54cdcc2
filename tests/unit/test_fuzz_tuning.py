# SPDX-License-Identifier: GPL-2.0-or-later
"""Malformed profiles, tunables, journals and facts: a clear error or a result, never a traceback, never a write.

Half of the cases are noise, half a good file with something in it broken.
"""

import json
from dataclasses import replace
from pathlib import Path

import hosttree
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabtune.catalog import tunable as tunable_module
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import load_catalog, shipped_catalog
from fabtune.errors import FabtuneError, InputError
from fabtune.facts import saved
from fabtune.facts.collect import Facts, Host, Reading
from fabtune.facts.nics import Nic
from fabtune.model.device import Device
from fabtune.model.formula import evaluate
from fabtune.model.path import NetworkPath
from fabtune.paths import data_dir
from fabtune.tune import journal
from fabtune.tune.plan import make_plan
from fabtune.tune.undo import undo


def cases(count: int) -> settings:
    """Return hypothesis's settings for one test; together they are 10,000 cases."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=count, deadline=None, suppress_health_check=checks)


NIC = Nic("eth0", "e1000e", 1500, 10**9, "0000:00:03.0", "00:00:00:00:00:01", ("eth0",))
PROFILES = [path.read_text() for path in sorted(data_dir("profiles").glob("*.toml"))]
TUNABLES = [path.read_text() for path in sorted(data_dir("tunables").glob("*.toml"))]
WORDS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["true", "-1", "0", "1e999", '""', "[]", "{}", "nan",
                     '"max"', '"auto"', '"default"', "9" * 400, '"1/0"',
                     '"bdp / (rtt - rtt)"', "\x00", "[[", "]", '"""', "1979-05-27", '"' + "(" * 90 + '"', "0x10"]),
)  # fmt: skip


@st.composite
def broken(draw: st.DrawFn, originals: list[str]) -> str:
    """A good text with up to four pieces cut out, doubled or replaced."""
    text = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(len(text) - 1, 0)))
        end = min(len(text), start + draw(st.integers(0, 30)))
        text = text[:start] + draw(WORDS | st.just(2 * text[start:end])) + text[end:]
    return text


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode(errors="surrogatepass"))
    return path


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    """A host with one of everything, none of it real."""
    readings = []
    for tunable in shipped_catalog().tunables.values():
        value = tunable.native(tunable.default) if tunable.default is not None else "1"
        readings.append(Reading(tunable.name, Device(tunable.scope, "x", "x"), value, limit=4096))
    return Facts(Host("h", "6.12.1", "boot", 1 << 34, 4), "", readings=readings)


@cases(2500)
@given(text=broken(PROFILES) | st.text(max_size=200))
def test_profiles(text: str, facts: Facts, tmp_path: Path) -> None:
    try:
        profile = load_profile(str(write(tmp_path / "fuzz.toml", text)), shipped_catalog())
        plan = make_plan(profile, ("initiator", "target"), facts, NetworkPath(0.05, 125e6), {})
    except InputError as error:
        assert len(str(error)) > 10
    else:
        for row in plan.changes:
            assert row.wanted is not None
            value = row.tunable.parse(row.wanted)
            assert row.tunable.check(value, "plan") == value


@cases(2500)
@given(text=broken(TUNABLES) | st.text(max_size=200))
def test_tunables(text: str, tmp_path: Path) -> None:
    write(tmp_path / "fuzz.toml", text)
    try:
        catalog = load_catalog(tmp_path)
    except InputError as error:
        assert str(tmp_path) in str(error)
    else:
        for tunable in catalog.tunables.values():
            assert tunable.backend in tunable_module.backends.NAMES


@cases(3000)
@given(text=st.text(alphabet="bdprte0123456789 +-*/()<>=,.minaxpow2KMiBsu", max_size=60))
def test_formulas(text: str) -> None:
    try:
        assert isinstance(float(evaluate(text, {"bdp": 6.25e6, "rtt": 0.05, "rate": 125e6})), float)
    except InputError as error:
        assert "formula" in str(error)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = hosttree.make(tmp_path / "host", 0, 1)
    hosttree.enter(root, monkeypatch)
    return root


LINES = [
    {"kind": "begin", "version": 1, "transaction": "t", "roles": ["target"], "netns": "", "profile": "wan"},
    {"kind": "write", "step": 1, "boot_id": "b", "tunable": "tcp.rmem_max", "backend": "sysctl",
     "key": "net.ipv4.tcp_rmem[2]", "device": {"scope": "netns", "identity": "netns:init", "label": "host"},
     "old": "1", "wrote": "6291456", "effect": "live", "rounds": False},
    {"kind": "holds", "step": 1, "value": "6291456"},
    {"kind": "due", "action": "relogin", "identity": "i", "label": "l", "sid": "1", "boot_id": "b"},
    {"kind": "pending", "action": "relogin", "identity": "i", "label": "l", "sid": "1", "boot_id": "b"},
    {"kind": "applied"},
]  # fmt: skip
JOURNAL = "".join(json.dumps(line) + "\n" for line in LINES)


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for top in ("proc", "sys") for path in (root / top).rglob("*") if path.is_file()
    }


@cases(1000)
@given(text=broken([JOURNAL]) | st.text(max_size=200))
def test_journals(text: str, host: Path) -> None:
    directory = host / "state/journal"
    directory.mkdir(parents=True, exist_ok=True)
    write(directory / "20260101T000000Z-000.jsonl", text)
    before = files_of(host)
    try:
        with journal.locked():
            undo(None, None, None, "", False, False, lambda _: None)
    except FabtuneError as error:
        assert str(host) in str(error)
        assert files_of(host) == before
    finally:
        # Only the one value the journal speaks of may ever change.
        changed = {name for name, data in files_of(host).items() if before[name] != data}
        assert all("/sys/net/" in name for name in changed)
        for name in changed:
            Path(name).write_bytes(before[name])


@cases(1000)
@given(data=st.data())
def test_facts_files(data: st.DataObject, facts: Facts, tmp_path: Path) -> None:
    few = replace(facts, readings=facts.readings[:3], nics=[NIC])
    path = write(tmp_path / "facts.json", data.draw(broken([json.dumps(saved.to_json(few))]) | st.text(max_size=200)))
    try:
        assert isinstance(saved.load(path), Facts)
    except InputError as error:
        assert str(path) in str(error)

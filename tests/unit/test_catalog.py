# SPDX-License-Identifier: GPL-2.0-or-later
"""Tunables and profiles: the shipped ones are sound, and every kind of mistake is named."""

from pathlib import Path

import pytest

from fabtune import backends
from fabtune.catalog.profile import available, load_profile
from fabtune.catalog.reference import reference
from fabtune.catalog.tunable import ROLES, load_catalog, shipped_catalog
from fabtune.errors import InputError

TUNABLE = """[knob]
summary = "a knob"
backend = "sysctl"
key = "net.ipv4.knob"
scope = "netns"
type = "int"
minimum = 1
maximum = 100
default = 10
effect = "live"
roles = ["initiator"]
persist = "sysctl.d"
source = "nowhere"
"""
PROFILE = """summary = "a profile"
[initiator."tcp.rmem_max"]
at_least = "4 * bdp"
why = "because"
"""


def test_the_shipped_vocabulary_is_whole() -> None:
    tunables = shipped_catalog().tunables
    assert len(tunables) >= 150
    for tunable in tunables.values():
        assert backends.get(tunable.backend)
        assert tunable.why, f"{tunable.name} does not say why it matters"
        assert tunable.default is not None or tunable.default_note or tunable.backend == "ethtool", tunable.name


def test_a_maximum_is_a_value_that_is_allowed() -> None:
    for tunable in shipped_catalog().tunables.values():
        if tunable.maximum is not None:
            assert tunable.check(tunable.maximum, "here") == tunable.maximum


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), (" -7\n", -7), ("0x10", 16), ("18446744073709551615", (1 << 64) - 1), ("010", "010"),
     ("18446744073709551616", "18446744073709551616"), ("1_0", "1_0"), ("٣", "٣"), ("9" * 5000, "9" * 5000)],
    ids=range(9),
)  # fmt: skip
def test_a_number_is_what_a_kernel_can_hold(text: str, value: object) -> None:
    assert shipped_catalog().tunables["nic.rx_ring"].parse(text) == value


@pytest.mark.parametrize(
    "name", ["default", "lan", "lan-jumbo", "low-latency", "srp", "wan", "wan-clean", "wan-lossy", "wan-satellite"]
)
def test_the_shipped_profiles_speak_to_both_roles(name: str) -> None:
    profile = load_profile(name, shipped_catalog())
    assert all(profile.entries[role] for role in ROLES)


def test_the_profile_of_defaults_is_made_of_the_vocabulary() -> None:
    catalog = shipped_catalog()
    entries = load_profile("default", catalog).entries
    assert entries["initiator"].keys() - entries["target"].keys() == {
        name
        for name, one in catalog.tunables.items()
        if one.backend == "record" and one.in_default and one.default is not None
    }
    found = [entry for role in ROLES for entry in entries[role].values()]
    assert len({entry.tunable.name for entry in found}) > 60 and {entry.wanted for entry in found} == {"default"}
    assert {entry.why for entry in found if entry.tunable.name.startswith("lio.")} == {"LIO's own default"}
    # What another value was chosen for, or each kernel has its own of, is left alone.
    left = {"iscsi.nr_sessions", "net.default_qdisc", "tcp.congestion_control", "block.read_ahead_kb"}
    assert not left & {entry.tunable.name for entry in found}


def test_a_user_profile_may_extend_the_defaults_under_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABTUNE_PROFILES", str(tmp_path))
    (tmp_path / "default.toml").write_text('summary = "mine"\ninclude = ["default"]\n[both."tcp.sack"]\ndrop = true\n')
    profile = load_profile("default", shipped_catalog())
    assert profile.summary == "mine" and "tcp.sack" not in profile.entries["target"]
    assert "tcp.ecn" in profile.entries["target"]


def test_no_shipped_profile_touches_what_loses_data() -> None:
    for name in available().keys() - {"default"}:
        profile = load_profile(name, shipped_catalog())
        for entries in profile.entries.values():
            assert not {"lio.emulate_write_cache", "iscsi.nr_sessions", "lio.max_connections"} & entries.keys()


def test_the_reference_page_is_what_the_vocabulary_says() -> None:
    page = Path(__file__).parents[2] / "Documentation/tunables.md"
    fresh = reference(shipped_catalog().tunables.values())
    assert page.read_text() == fresh, "run: fabtune tunables --markdown > Documentation/tunables.md"


def test_defaults_move_with_the_kernel() -> None:
    tunable = shipped_catalog().tunables["tcp.rmem_max"]
    assert tunable.default_for("6.12.107+deb13-amd64") == 6291456
    assert tunable.default_for("6.18.44") == 33554432


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("scope", "scpoe", "unknown key 'scpoe' (did you mean 'scope'?)"),
        ('"netns"', '"nets"', "key 'scope': found 'nets' (text), allowed: acl, "),
        ("minimum = 1", 'minimum = "1"', "key 'minimum': found '1' (text), allowed: integer"),
        ("minimum = 1", "minimum = true", "key 'minimum': found true (boolean), allowed: integer"),
        ('source = "nowhere"', "", "key 'source' is missing"),
        ("default = 10", "default = 1000", "found 1000, allowed: an integer from 1 to 100"),
        ('["initiator"]', '["initiater"]', "key 'roles': found 'initiater' (text)"),
        ("[knob]", "[knob", "not valid TOML"),
        ('"sysctl"', '"sysctl2"', "key 'backend': found 'sysctl2'"),
        ("maximum = 100", 'maximum = 100\nafter = ["x.y"]', "unknown tunable 'x.y'"),
        (
            "maximum = 100",
            'maximum = 100\ndefault_since = { "new" = 5 }',
            "found 'new', allowed: a kernel such as 6.16",
        ),
        ("maximum = 100", "maximum = 100\nmultiple_of = 0", "key 'multiple_of': found 0"),
        ('persist = "sysctl.d"', "", "key 'persist' is missing"),
        ('"sysctl.d"', '"sysctl"', "key 'persist': found 'sysctl' (text), allowed: "),
        ('"sysctl.d"', '"none"', "key 'persist_why': expected with persist = \"none\""),
        ('"sysctl.d"', '"sysctl.d"\npersist_why = "x"', "key 'persist_why': expected with persist = \"none\""),
        ('"sysctl.d"', '"sysctl.d"\npersist_as = "x"', "key 'persist_as': 'sysctl.d' keeps it under its own key"),
        (
            '"sysctl.d"',
            '"iscsid.conf"',
            "'iscsid.conf' cannot keep a tunable of backend 'sysctl', allowed: backend rec",
        ),
        ('"sysctl.d"', '"link"', "'link' cannot keep a tunable of scope 'netns', allowed: scope nic"),
        ('"sysctl.d"', '"modprobe.d"', "key 'persist_as': found 'net.ipv4.knob', allowed: MODULE/parameters/NAME"),
    ],
)
def test_a_wrong_tunable_is_named_by_file_table_and_key(tmp_path: Path, old: str, new: str, problem: str) -> None:
    (tmp_path / "x.toml").write_text(TUNABLE.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_catalog(tmp_path)
    assert problem in str(caught.value)
    assert str(tmp_path / "x.toml") in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("tcp.rmem_max", "tcp.rmem_mx", "unknown tunable 'tcp.rmem_mx' (did you mean 'tcp.rmem_max'?)"),
        ("at_least", "at_lest", "unknown key 'at_lest' (did you mean 'at_least'?)"),
        ("4 * bdp", "4 * bpd", "unknown name 'bpd'"),
        ("4 * bdp", "4 *", "expected a number"),
        ('"4 * bdp"', "true", "found true (boolean), allowed: an integer"),
        ('"4 * bdp"', "-5", "found -5, allowed: an integer from 4096"),
        ('why = "because"', "", "key 'why' is missing"),
        ('why = "because"', 'why = "because"\nvalue = 5', "expected exactly one of value, at_least, at_most"),
        ('at_least = "4 * bdp"', 'at_least = "max"', "'at_least = \"max\"' is not possible"),
        ('at_least = "4 * bdp"', 'value = "auto"', "'value = \"auto\"' is not possible"),
        ("[initiator", "[initiatr", "unknown key 'initiatr' (did you mean 'initiator'?)"),
        ('"tcp.rmem_max"', '"lio.first_burst"', "lio.first_burst has no meaning for a initiator"),
        ('summary = "a profile"', 'summary = "a"\ninclude = ["nothing"]', "unknown profile 'nothing'"),
        ('summary = "a profile"', 'summary = "a"\ninclude = ["mine"]', "unknown profile 'mine'"),
        ('summary = "a profile"', 'summary = "a"\n[parameters.rtt]\ndefault = 1\nsummary = "x"', "expected a new name"),
        ('why = "because"', 'why = "because"\nwhen = "bdp >"', "expected a number"),
    ],
)
def test_a_wrong_profile_is_named_by_file_table_and_key(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(PROFILE.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_profile(str(path), shipped_catalog())
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_unknown_profile_suggests_the_near_one() -> None:
    with pytest.raises(InputError, match=r"unknown profile 'wann' \(did you mean 'wan'\?\); known: "):
        load_profile("wann", shipped_catalog())


def test_a_user_profile_may_extend_the_shipped_one_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABTUNE_PROFILES", str(tmp_path))
    (tmp_path / "wan.toml").write_text(
        'summary = "mine"\ninclude = ["wan"]\n[both."tcp.ecn"]\nvalue = 1\nwhy = "our routers mark"\n'
        '[both."tcp.rmem_max"]\ndrop = true\n'
    )
    profile = load_profile("wan", shipped_catalog())
    assert profile.summary == "mine"
    assert "tcp.ecn" in profile.entries["target"]
    assert "tcp.rmem_max" not in profile.entries["target"]
    assert "tcp.wmem_max" in profile.entries["target"]


def test_profiles_in_a_circle_are_refused(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.toml").write_text(f'summary = "x"\ninclude = ["{other}"]\n')
    with pytest.raises(InputError, match="in a circle"):
        load_profile(str(tmp_path / "a.toml"), shipped_catalog())

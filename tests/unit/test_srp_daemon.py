# SPDX-License-Identifier: GPL-2.0-or-later
"""srp_daemon.conf: the rule for all targets as srp_daemon reads it, and nothing else of the file."""

from pathlib import Path

import hosttree
import pytest

from fabtune import backends
from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.model.device import Device

HOST = Device("host", "host", "host")
BACKEND = backends.get("srp_daemon")


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    hosttree.enter(hosttree.make(tmp_path), monkeypatch)
    (tmp_path / "etc").mkdir(exist_ok=True)
    return tmp_path / "etc/srp_daemon.conf"


@pytest.mark.parametrize(
    ("text", "found", "written"),
    [
        # Options end at a comma, a blank or a tab; the verb needs none of them.
        ("a queue_size=64 max_cmd_per_lun=16\n", "64", "a queue_size=127 max_cmd_per_lun=16\n"),
        ("a\tqueue_size=64\n", "64", "a\tqueue_size=127\n"),
        ("Aqueue_size=64,\tmax_sect=8, \n", "64", "Aqueue_size=127,\tmax_sect=8, \n"),
        # What names one target is that target's, wherever in the rule it stands.
        ("a queue_size=64 id_ext=200500A0B81146A1\na  ch_count=2\nd\n", "",
         "a queue_size=64 id_ext=200500A0B81146A1\na  ch_count=2,queue_size=127\nd\n"),
        ("a id_ext=5,id_ext=\n", "", "a id_ext=5,id_ext=,queue_size=127\n"),
        # The first rule for all wins; of an option that stands twice the last one counts.
        ("a\nd id_ext=9\nd\na queue_size=3\n", "", "a queue_size=127\nd id_ext=9\nd\na queue_size=3\n"),
        ("a queue_size=5,queue_size=64\n", "64", "a queue_size=5,queue_size=127\n"),
        ("a \t\n", "", "a queue_size=127 \t\n"),
        # Line ends of its own are none to srp_daemon.
        ("# \x0b\x0c\x85 \r\na queue_size=64\n# no newline", "64", "# \x0b\x0c\x85 \r\na queue_size=127\n# no newline"),
    ],
)  # fmt: skip
def test_one_number_of_the_rule_for_all_changes_and_all_else_is_as_it_was(
    conf: Path, text: str, found: str, written: str
) -> None:
    conf.write_bytes(text.encode())
    assert BACKEND.read(HOST, "queue_size") == found
    BACKEND.write(HOST, "queue_size", "127")
    assert conf.read_bytes() == written.encode() and BACKEND.read(HOST, "queue_size") == "127"
    BACKEND.write(HOST, "queue_size", found)
    assert conf.read_bytes() == text.encode()


@pytest.mark.parametrize("text", ["", "# a comment\n", "a id_ext=9 queue_size=5\nd dgid=7\n", "# no newline", "a\n"])
@pytest.mark.parametrize("first", ["queue_size", "ch_count"])
def test_only_a_rule_that_fabtune_added_goes_in_whichever_order_its_options_go(
    conf: Path, text: str, first: str
) -> None:
    conf.write_text(text)
    BACKEND.write(HOST, "queue_size", "127")
    BACKEND.write(HOST, "ch_count", "4")
    assert "a queue_size=127,ch_count=4\n" in conf.read_text()
    for key in (first, *({"queue_size", "ch_count"} - {first})):
        BACKEND.write(HOST, key, "")
        assert BACKEND.read(HOST, key) == ""
    assert conf.read_text() == text


def test_a_rule_that_somebody_has_added_to_stays(conf: Path) -> None:
    conf.write_text("")
    BACKEND.write(HOST, "queue_size", "127")
    conf.write_text(conf.read_text().replace("127", "127,max_sect=64"))
    BACKEND.write(HOST, "queue_size", "")
    assert conf.read_text().endswith("\na max_sect=64\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a id_ext=200500A0B81146A1\nd\n", "line 2 keeps srp_daemon from every target"),
        ("d id_ext=\na queue_size=64\n", "line 1 keeps"),
        ("a queue_size=64\nallow id_ext=5\n", "line 2 is no rule as srp_daemon reads them"),
        ("a queue_size=64\n d\n", "line 2 is no rule"),
        ("a queue_size=64\r\n", "line 1 is no rule"),
        ("a queue_size=64 , ch_count=2\n", "line 1 is no rule"),
        ("a queue_size=12345678901234567\n", "line 1 is no rule"),
        ("d queue_size=64\n", "line 1 is no rule"),
        ("a queue_size=64", "line 1 has no newline"),
        (f"# {'x' * 252}\n", "line 1 has more than the 253 characters"),
        ("a " + "max_cmd_per_lun=1," * 8 + "\n", "line 1 has more than the 127 characters of options"),
    ],
)
def test_a_file_that_srp_daemon_cannot_read_or_that_refuses_the_rest_is_left_alone(
    conf: Path, text: str, why: str
) -> None:
    conf.write_bytes(text.encode())
    with pytest.raises(FabtuneError, match=why):
        BACKEND.read(HOST, "queue_size")
    for value in ("127", ""):
        with pytest.raises(FabtuneError, match=why):
            BACKEND.write(HOST, "queue_size", value)
    assert conf.read_bytes() == text.encode()


def test_no_rule_is_made_so_long_that_srp_daemon_passes_over_its_targets(conf: Path) -> None:
    text = "a queue_size=127,max_cmd_per_lun=127,max_sect=2048,cmd_sg_entries=64,sg_tablesize=255\n"
    conf.write_text(text)
    with pytest.raises(UnsupportedError, match="the options of a login would have 101 characters"):
        BACKEND.write(HOST, "tl_retry_count", "7")
    assert conf.read_text() == text
    # One that an administrator has made longer is his, and may be changed.
    conf.write_text(long := text.replace("\n", ",allow_ext_sg=1,comp_vector=1\n"))
    BACKEND.write(HOST, "max_sect", "4096")
    assert conf.read_text() == long.replace("2048", "4096")


@pytest.mark.parametrize("value", ["-1", "127 id_ext=5", "127\nd", "x"])
def test_no_value_makes_another_rule(conf: Path, value: str) -> None:
    conf.write_text("a queue_size=64\n")
    with pytest.raises(FabtuneError):
        BACKEND.write(HOST, "queue_size", value)
    assert conf.read_text() == "a queue_size=64\n"

# SPDX-License-Identifier: GPL-2.0-or-later
"""model/typed: raw data into frozen classes and back, and what is said of data that does not fit."""

import dataclasses
from typing import Annotated, Any, Literal

import attrs
import pytest

from fabtune.errors import InputError
from fabtune.model import typed
from fabtune.model.document import Rest


@attrs.frozen
class Part:
    name: str
    size: Annotated[int, typed.at_least(1)] = 1


@attrs.frozen
class Whole:
    summary: str
    parts: tuple[Part, ...] = ()
    ratio: float | None = None
    clock: Literal["real", "virtual"] = "real"
    role: Annotated[str, typed.one_of_words("a", "b")] | None = None
    options: dict[str, int | float | str] = attrs.field(factory=dict)
    raw: dict[str, Any] = attrs.field(factory=dict)
    pair: tuple[str, int] = ("", 0)
    note: str | None = typed.omitted()


@dataclasses.dataclass(frozen=True)
class Plain:
    name: str
    names: list[str] = dataclasses.field(default_factory=list)


FULL = {
    "summary": "s",
    "parts": [{"name": "p", "size": 2}],
    "ratio": 2,
    "clock": "virtual",
    "role": "b",
    "options": {"bs": 4096, "rw": "read", "share": 0.5},
    "raw": {"anything": [1, None, {"x": 1}]},
    "pair": ["x", 1],
}


def test_what_is_read_is_written_again_as_it_was() -> None:
    whole = typed.STRICT.read(Whole, FULL, "file")
    assert whole.parts == (Part("p", 2),)
    assert whole.pair == ("x", 1)
    assert repr(whole.ratio) == "2"
    written: Any = typed.STRICT.write(whole)
    assert written == FULL | {"parts": [{"name": "p", "size": 2}], "pair": written["pair"]}
    assert list(written["pair"]) == ["x", 1]
    assert "note" not in written and typed.STRICT.write(attrs.evolve(whole, note="n"))["note"] == "n"


def test_a_dataclass_and_defaults() -> None:
    assert typed.STRICT.read(Plain, {"name": "x"}, "file") == Plain("x", [])
    assert typed.STRICT.read(Whole, {"summary": "s", "ratio": None}, "file") == Whole("s")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"summary": 5}, "f.toml: key 'summary': found 5 (integer), allowed: text"),
        ({"summary": None}, "f.toml: key 'summary': found None (null), allowed: text"),
        ({"parts": "p"}, "f.toml: key 'parts': found 'p' (text), allowed: array"),
        ({"parts": [{"name": "p"}, 3]}, "key 'parts[1]': found 3 (integer), allowed: a table with the keys name, size"),
        ({"parts": [{"name": "p"}, {"name": 3}]}, "f.toml: key 'parts[1].name': found 3 (integer), allowed: text"),
        ({"parts": [{"size": 3}]}, "f.toml: key 'parts[0].name' is missing"),
        ({"parts": [{"name": "p", "size": 0}]}, "f.toml: key 'parts[0].size': found 0 (integer), allowed: 1 or more"),
        ({"parts": [{"name": "p", "size": True}]}, "key 'parts[0].size': found true (boolean), allowed: integer"),
        ({"parts": [{"nam": "p"}]}, "f.toml: unknown key 'parts[0].nam' (did you mean 'name'?); known: name, size"),
        ({"ratio": "fast"}, "f.toml: key 'ratio': found 'fast' (text), allowed: number"),
        ({"ratio": float("nan")}, "f.toml: key 'ratio': found nan (number), allowed: a finite number"),
        ({"ratio": 10**400}, "(integer), allowed: a finite number"),
        ({"clock": "sundial"}, "f.toml: key 'clock': found 'sundial' (text), allowed: real, virtual"),
        ({"clock": ["real"]}, "f.toml: key 'clock': found ['real'] (array), allowed: real, virtual"),
        ({"role": "c"}, "f.toml: key 'role': found 'c' (text), allowed: a, b"),
        ({"options": {"bs": [4096]}}, "key 'options.bs': found [4096] (array), allowed: integer or text or number"),
        ({"options": {"bs": True}}, "key 'options.bs': found true (boolean), allowed: integer or text or number"),
        ({"raw": []}, "f.toml: key 'raw': found [] (array), allowed: table"),
        ({"pair": ["x"]}, "f.toml: key 'pair': found ['x'] (array), allowed: array of 2"),
        ({"sumary": 1}, "f.toml: unknown key 'sumary' (did you mean 'summary'?); known: clock, note, "),
    ],
)  # fmt: skip
def test_an_error_names_file_key_found_and_allowed(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        typed.STRICT.read(Whole, {"summary": "s"} | change, "f.toml")
    assert said in str(error.value)


def test_what_is_no_table_at_all() -> None:
    with pytest.raises(InputError, match=r"f.toml: found \[\] \(array\), allowed: a table with the keys name, size"):
        typed.STRICT.read(Part, [], "f.toml")
    with pytest.raises(InputError, match=r"f.toml: key 'name' is missing"):
        typed.STRICT.read(Part, {}, "f.toml")


def test_an_unknown_key_is_passed_over_where_the_format_wants_it() -> None:
    assert typed.TOLERANT.read(Part, {"name": "p", "later": 1}, "file") == Part("p")


def test_keys_that_are_no_field_are_kept_and_written_again() -> None:
    @attrs.frozen
    class Open:
        name: str
        more: Rest = Rest()

    one = typed.STRICT.read(Open, {"name": "x", "later": {"a": [1]}}, "file")
    assert one == Open("x", Rest({"later": {"a": [1]}}))
    assert typed.STRICT.write(one) == {"name": "x", "later": {"a": [1]}}
    # A file cannot reach the field itself by its name.
    assert typed.STRICT.read(Open, {"name": "x", "more": 1}, "file").more == Rest({"more": 1})


def test_a_class_kept_in_other_units_names_the_keys_of_the_file() -> None:
    @attrs.frozen
    class Seconds:
        rtt_s: float

    @attrs.frozen
    class Milliseconds:
        rtt_ms: float

    @attrs.frozen
    class Holder:
        path: Seconds | None = None

    def read(raw: Milliseconds) -> Seconds:
        if raw.rtt_ms < 0:
            raise InputError("no path is as short as that")
        return Seconds(raw.rtt_ms / 1e3)

    form = typed.Format()
    form.convert(Seconds, Milliseconds, read, lambda one: Milliseconds(one.rtt_s * 1e3))
    holder = form.read(Holder, {"path": {"rtt_ms": 50}}, "file")
    assert holder == Holder(Seconds(0.05))
    assert form.write(holder) == {"path": {"rtt_ms": 50.0}}
    with pytest.raises(InputError, match="file: key 'path.rtt_ms': found 'far'"):
        form.read(Holder, {"path": {"rtt_ms": "far"}}, "file")
    with pytest.raises(InputError, match="file: path: no path is as short"):
        form.read(Holder, {"path": {"rtt_ms": -1}}, "file")


def test_a_mistake_in_the_classes_is_no_mistake_of_the_user() -> None:
    @attrs.frozen
    class Broken:
        name: str

        def __attrs_post_init__(self) -> None:
            raise TypeError("a defect")

    with pytest.raises(TypeError, match="a defect"):
        typed.STRICT.read(Broken, {"name": "x"}, "file")

# SPDX-License-Identifier: GPL-2.0-or-later
"""Raw JSON and TOML into frozen classes and back, with errors that name file, key, what was found and what is allowed.

A file format is a frozen attrs class (or dataclass) with a field a key: a field without a default is a key that must
be there, ``X | None`` may be null, ``Annotated[int, at_least(1)]`` says what is allowed besides the type, ``Json``
is kept as it is, and a field ``Rest`` keeps all keys that are no field.

    @attrs.frozen
    class Disk:
        name: str
        size_bytes: Annotated[int, at_least(1)]
        role: Annotated[str, one_of_words("data", "log")] = "data"

    disk = typed.STRICT.read(Disk, raw, "disks.toml")
    # InputError: disks.toml: key 'size_bytes': found 0 (integer), allowed: 1 or more
"""

import contextlib
import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

import attrs
import cattrs
from cattrs.errors import ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from fabtune.errors import FabtuneError, InputError
from fabtune.model.document import Json, Rest

T = TypeVar("T")
U = TypeVar("U")

_TYPE_NAMES = {
    bool: "boolean", int: "integer", float: "number", str: "text", list: "array", dict: "table", type(None): "null",
}  # fmt: skip
# Where an error happened, as cattrs notes it on the exception.
_PLACE = re.compile(r"Structuring .* @ (attribute|index|key) (.*)", re.DOTALL)
_HALF = re.compile("[\ud800-\udfff]")
_OMITTED = "fabtune: left out where it has its default"
# The largest integer that surely is a float too.
_MAX_INTEGER = 2**1000


class WrongError(Exception):
    """A value is not what is allowed; `allowed` says what is."""

    def __init__(self, found: object, allowed: str) -> None:
        super().__init__(found, allowed)
        self.found, self.allowed = found, allowed


@attrs.frozen
class Check(Generic[T]):
    """What a value must satisfy besides its type, for ``Annotated``; `allowed` says it in words."""

    fits: Callable[[T], bool]
    allowed: str


def one_of_words(*words: str) -> Check[str]:
    """Allow these words alone."""
    return Check(lambda value: value in words, ", ".join(sorted(words)))


def at_least(low: float) -> Check[float]:
    """Allow numbers from `low` on."""
    return Check(lambda value: value >= low, f"{low} or more")


def between(low: float, high: float) -> Check[float]:
    """Allow numbers from `low` to `high`, both included."""
    return Check(lambda value: low <= value <= high, f"{low} to {high}")


@typing.overload
def omitted() -> None: ...
@typing.overload
def omitted(default: T) -> T: ...
def omitted(default: object = None) -> object:
    """Return a field whose key is left out of what is written where it has its default."""
    return attrs.field(default=default, metadata={_OMITTED: True})


def describe(value: object) -> str:
    """Return what was found, for an error: the value and its type."""
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return f"{text[:60]} ({_TYPE_NAMES.get(type(value), type(value).__name__)})"


def suggestion(word: str, known: Collection[str]) -> str:
    """Return " (did you mean 'x'?)" for a near miss, else nothing."""
    # Only an error needs it.
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""


def one_of(word: str, known: Collection[str], where: str, what: str) -> str:
    """Return `word` if it is known.  Raises InputError listing what is."""
    if word not in known:
        raise InputError(
            f"{where}: unknown {what} '{word}'{suggestion(word, known)}; known: {', '.join(sorted(known)) or 'none'}"
        )
    return word


class Format:
    """How one family of files is read and written; with `unknown_keys` a key that is no field is passed over."""

    def __init__(self, *, unknown_keys: bool = False) -> None:
        self._unknown_keys = unknown_keys
        self._converter = converter = cattrs.Converter()
        for plain in (bool, int, str):
            converter.register_structure_hook(plain, _plain)
        converter.register_structure_hook(float, _number)
        for fits, factory in (
            (_is_class, self._class_reader),
            (lambda kind: typing.get_origin(kind) in (list, tuple), self._array_reader),
            (_is_table, self._table_reader),
            (lambda kind: typing.get_origin(kind) in (typing.Union, types.UnionType), self._union_reader),
            (lambda kind: typing.get_origin(kind) is typing.Literal, _literal_reader),
            (lambda kind: typing.get_origin(kind) is typing.Annotated, self._annotated_reader),
        ):
            converter.register_structure_hook_factory(fits, factory)
        converter.register_unstructure_hook_factory(_is_class, self._class_writer)
        # Nothing in it is ours.
        converter.register_structure_hook_func(_is_document, _as_it_is)
        converter.register_unstructure_hook_func(
            lambda kind: _is_document(kind) or (_is_table(kind) and _is_document(typing.get_args(kind)[1])), _as_it_is
        )
        converter.register_structure_hook(Rest, _as_it_is)
        converter.register_unstructure_hook(Rest, lambda rest: rest.keys)

    def convert(self, kind: type[T], via: type[U], read: Callable[[U], T], write: Callable[[T], U]) -> None:
        """Keep `kind` in the file as `via`: for other units or names than the program's.

        `read` raises WrongError or InputError.
        """
        converter = self._converter
        converter.register_structure_hook(kind, lambda raw, _: read(converter.structure(raw, via)))
        converter.register_unstructure_hook(kind, lambda value: converter.unstructure(write(value), via))

    def read(self, kind: type[T], raw: object, where: str) -> T:
        """Return the parsed JSON or TOML `raw` as a `kind`.  Raises InputError, which begins with `where`."""
        try:
            return self._converter.structure(raw, kind)
        except Exception as error:
            raise InputError(f"{where}: {self._explained(*_first(error))}") from None

    def write(self, value: object) -> dict[str, Json]:
        """Return `value`, of a class that is a file format, as dicts, lists and plain values."""
        table: dict[str, Json] = self._converter.unstructure(value)
        return table

    def _explained(self, place: str, error: BaseException) -> str:
        if isinstance(error, WrongError):
            key = f"key '{place}': " if place else ""
            return f"{key}found {describe(error.found)}, allowed: {error.allowed}"
        if isinstance(error, KeyError):
            return f"key '{place}' is missing"
        if isinstance(error, ForbiddenExtraKeysError):
            known = _keys(error.cl)
            # Sets have no order, and the error names one.
            word = min(map(str, error.extra_fields))
            prefix = f"{place}." if place else ""
            return f"unknown key '{prefix}{word}'{suggestion(word, known)}; known: {', '.join(sorted(known))}"
        if isinstance(error, FabtuneError | ValueError):
            return f"{place}: {error}" if place else str(error)
        raise error

    def _class_reader(self, kind: Any) -> Callable[[Any, Any], Any]:
        rest = _rest_field(kind)
        read = make_dict_structure_fn(kind, self._converter, _cattrs_forbid_extra_keys=not (self._unknown_keys or rest))
        keys = _keys(kind)

        def structure(raw: Any, _: Any) -> Any:
            if type(raw) is not dict:
                raise WrongError(raw, f"a table with the keys {', '.join(keys)}")
            if rest:
                unknown = {key: raw[key] for key in raw.keys() - keys}
                raw = {key: raw[key] for key in raw.keys() & keys} | {rest: Rest(unknown)}
            return read(raw, kind)

        return structure

    def _class_writer(self, kind: Any) -> Callable[[Any], dict[str, Any]]:
        overrides = {
            field.name: override(omit_if_default=True) for field in _fields(kind) if _OMITTED in field.metadata
        }
        write: Callable[[Any], dict[str, Any]] = make_dict_unstructure_fn(kind, self._converter, **overrides)
        rest = _rest_field(kind)
        if rest is None:
            return write
        key: str = rest

        def unstructure(value: Any) -> dict[str, Any]:
            table = write(value)
            table |= table.pop(key)
            return table

        return unstructure

    def _array_reader(self, kind: Any) -> Callable[[Any, Any], Any]:
        inner = typing.get_args(kind)
        make = list if typing.get_origin(kind) is list else tuple
        fixed = None if make is list or inner[-1] is ... else len(inner)
        tables = self._tables_reader(inner[0]) if fixed is None else None

        def structure(raw: Any, _: Any) -> Any:
            if type(raw) is not list or (fixed is not None and len(raw) != fixed):
                raise WrongError(raw, "array" if fixed is None else f"array of {fixed}")
            if tables is not None:
                # The samples of a run record, by the thousand; which one is wrong is looked for only where one is.
                with contextlib.suppress(Exception):
                    return make([tables(value, None) for value in raw])
            kinds = inner if fixed is not None else inner[:1] * len(raw)
            return make(
                self._item(value, one, f"index {index}")
                for index, (value, one) in enumerate(zip(raw, kinds, strict=True))
            )

        return structure

    def _tables_reader(self, kind: Any) -> Callable[[Any, Any], Any] | None:
        """Return what reads each table of an array, None where these are no tables."""
        if typing.get_origin(kind) is typing.Annotated and _is_table(typing.get_args(kind)[0]):
            return self._annotated_reader(kind)
        return self._table_reader(kind) if _is_table(kind) else None

    def _table_reader(self, kind: Any) -> Callable[[Any, Any], Any]:
        _, inner = typing.get_args(kind)
        plain = {int, float} if inner is float else {inner} if inner in (int, str) else set()

        def structure(raw: Any, _: Any) -> Any:
            if type(raw) is not dict:
                raise WrongError(raw, "table")
            # Looked at one by one only where something is odd; a sum is finite where all are.
            if _is_document(inner) or (
                plain and plain.issuperset(map(type, raw.values())) and _sums_up(raw.values(), inner)
            ):
                return raw
            return {key: self._item(value, inner, f"key {key}") for key, value in raw.items()}

        return structure

    def _item(self, raw: Any, kind: Any, place: str) -> Any:
        try:
            return self._converter.structure(raw, kind)
        except Exception as error:
            error.add_note(f"Structuring item @ {place}")
            raise

    def _union_reader(self, kind: Any) -> Callable[[Any, Any], Any]:
        """Read ``X | None``, or one of several plain types such as ``int | str``."""
        members = [one for one in typing.get_args(kind) if one is not type(None)]
        may_be_null = len(members) < len(typing.get_args(kind))
        # An integer stays one where it may be either.
        members.sort(key=lambda one: one is float)

        def structure(raw: Any, _: Any) -> Any:
            if raw is None and may_be_null:
                return None
            if len(members) == 1:
                return self._converter.structure(raw, members[0])
            for one in members:
                if type(raw) is (typing.get_origin(one) or one) or (one is float and type(raw) is int):
                    return self._converter.structure(raw, one)
            raise WrongError(raw, " or ".join(_TYPE_NAMES[typing.get_origin(one) or one] for one in members))

        return structure

    def _annotated_reader(self, kind: Any) -> Callable[[Any, Any], Any]:
        origin, *checks = typing.get_args(kind)

        def structure(raw: Any, _: Any) -> Any:
            value = self._converter.structure(raw, origin)
            for check in checks:
                if not check.fits(value):
                    raise WrongError(raw, check.allowed)
            return value

        return structure


def _is_table(kind: Any) -> bool:
    return typing.get_origin(kind) in (dict, Mapping)


def _is_document(kind: Any) -> bool:
    return kind is Any or bool(kind == Json)


def _as_it_is(raw: object, _: object = None) -> object:
    return raw


def _is_class(kind: Any) -> bool:
    return isinstance(kind, type) and (attrs.has(kind) or dataclasses.is_dataclass(kind))


def _fields(kind: Any) -> tuple[Any, ...]:
    return tuple(attrs.fields(kind) if attrs.has(kind) else dataclasses.fields(kind))


def _keys(kind: Any) -> list[str]:
    return [field.name for field in _fields(kind) if field.type is not Rest]


def _rest_field(kind: Any) -> str | None:
    return next((field.name for field in _fields(kind) if field.type is Rest), None)


def _plain(raw: Any, kind: Any) -> Any:
    # bool is an int to Python, never to us.
    if type(raw) is not kind:
        raise WrongError(raw, _TYPE_NAMES[kind])
    # JSON can have half a character ("\ud800"), which no page and no terminal can show.
    if kind is str and _HALF.search(raw):
        raise WrongError(raw, "text of whole characters")
    return raw


def _number(raw: Any, _: Any) -> float:
    """Return a finite number, an integer as it is: it is printed as it was written."""
    if type(raw) not in (int, float):
        raise WrongError(raw, "number")
    if abs(raw) >= _MAX_INTEGER if type(raw) is int else not math.isfinite(raw):
        raise WrongError(raw, "a finite number")
    return typing.cast(float, raw)


def _sums_up(values: Collection[Any], kind: type) -> bool:
    """Tell quickly whether numbers that are to be floats all are finite; a no may be wrong."""
    try:
        return kind is not float or math.isfinite(sum(values))
    except OverflowError:
        return False


def _literal_reader(kind: Any) -> Callable[[Any, Any], Any]:
    allowed = typing.get_args(kind)

    def structure(raw: Any, _: Any) -> Any:
        if not any(type(raw) is type(one) and raw == one for one in allowed):
            raise WrongError(raw, ", ".join(map(str, allowed)))
        return raw

    return structure


def _first(error: BaseException) -> tuple[str, BaseException]:
    """Return where in the raw data the first error is, as ``steps[0].name``, and that error itself."""
    place = ""
    while True:
        for note in reversed(getattr(error, "__notes__", [])):
            if found := _PLACE.fullmatch(note):
                place += f"[{found[2]}]" if found[1] == "index" else f".{found[2]}" if place else found[2]
        if not isinstance(error, BaseExceptionGroup):
            return place, error
        # A misspelt key is an unknown one and a missing one; the former tells more.
        inner = error.exceptions
        error = next((one for one in inner if isinstance(one, ForbiddenExtraKeysError)), inner[0])


# A key that is no field is an error in one, passed over in the other.
STRICT = Format()
TOLERANT = Format(unknown_keys=True)

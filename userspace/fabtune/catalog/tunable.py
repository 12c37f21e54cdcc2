# SPDX-License-Identifier: GPL-2.0-or-later
"""The vocabulary: every knob once, parsed from ``tunables/*.toml``; native text to typed value and back."""

import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from fabtune import backends
from fabtune.catalog import keepers
from fabtune.errors import InputError
from fabtune.host import targets, userfile
from fabtune.installed import data_dir
from fabtune.model import typed
from fabtune.model.typed import Check, WrongError, at_least, one_of_words

Value = int | bool | str

# What a change needs before it is felt, mildest first.
EFFECTS = {
    "live": "at once",
    "new-connections": "new connections",
    "reconnect": "new connection",
    "relogin": "next login",
    "kills-session": "ends live sessions",
    "refused-while-exported": "not while exported",
    "reload": "module reload",
    "reboot": "reboot",
}
# Whom a value of each scope concerns on this host, nearest first; a scope that is not here is a target's.
TOUCHES = {
    "connection": "connection", "record": "session", "session": "session", "block": "disk", "srp-port": "login",
    "route": "route", "nic": "NIC", "netns": "namespace", "host": "host", "module": "host",
}  # fmt: skip
ROLES = ("initiator", "target")
UNITS = {  # unit -> how many of it make one base unit (byte, second, count)
    "": 1.0, "bytes": 1.0, "KiB": 1 / 1024, "sectors": 1 / 512, "pages": 1 / 4096,
    "s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9, "bytes/s": 1.0,
}  # fmt: skip

# Ten times the largest file that is shipped; its parser takes a second for a megabyte.
MAX_FILE_BYTES = 128 << 10
_KERNEL = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})")
# The kernel's largest types have 64 bits: a text with more digits is damage, and no number.
LEAST, MOST = -(1 << 63), (1 << 64) - 1
_NUMBER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})")


def kernel_version(release: str) -> tuple[int, int]:
    """Return (major, minor) of a kernel release such as 6.12.107+deb13-amd64; (0, 0) if it has none."""
    match = _KERNEL.match(release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _number(native: str) -> Value:
    """Return `native` as a number, or unchanged if the kernel would not write such a number."""
    text = native.strip()
    # As C has it, 010 is no 10.
    if not _NUMBER.fullmatch(text) or re.match(r"[-+]?0+[1-9]", text):
        return native
    number = int(text, 0)
    return number if LEAST <= number <= MOST else native


def _are_roles(found: tuple[str, ...]) -> bool:
    for word in found:
        if word not in ROLES:
            raise WrongError(word, ", ".join(ROLES))
    return True


class Numbers(tuple[int, ...]):
    """Numbers that switch a thing off or remove its limit, instead of being an amount: one, or an array."""


class Words(tuple[tuple[str, int], ...]):
    """The words that some numbers are written as: a table."""


class Since(tuple[tuple[str, Value], ...]):
    """The defaults of later kernels, oldest first: a table."""


@dataclass(frozen=True)
class Tunable:
    """One knob: what it is, where it lives, which values it takes and when they are felt."""

    name: str
    summary: str
    backend: Annotated[str, one_of_words(*backends.NAMES)]
    key: str
    scope: Annotated[str, one_of_words(*targets.every_scope())]
    type: Literal["int", "bool", "text"]
    effect: Annotated[str, one_of_words(*EFFECTS)]
    roles: Annotated[tuple[str, ...], Check(_are_roles, "")]
    source: str
    # What keeps it over a reboot, by which name where that is not its key, or why nothing does.
    persist: Annotated[str, one_of_words(*keepers.KEEPERS)]
    persist_as: str = ""
    persist_why: str = ""
    why: str = ""
    spelling: Annotated[
        tuple[str, ...], Check(lambda found: len(found) == 2, "two texts, the one for false and the one for true")
    ] = ("0", "1")
    values: tuple[str, ...] = ()
    unit: Annotated[str, one_of_words(*UNITS)] = ""
    minimum: int | None = None
    maximum: int | None = None
    limit: str = ""
    multiple_of: Annotated[int, at_least(1)] = 1
    power_of_two: bool = False
    off: Numbers = Numbers()
    unlimited: Numbers = Numbers()
    words: Words = Words()
    rounds: bool = False
    default: Value | None = None
    default_since: Since = Since()
    default_note: str = ""
    # The kernel gives at most this fraction of its memory: 128 for a 128th.
    default_memory_share: int = 0
    # Whether profile `default` gives its default back: not where it is the administrator's choice or each host's own.
    in_default: bool = True
    auto: Value | None = None
    # What autotuning may reach and nobody has to: raised, it takes nothing from anybody.
    ceiling: bool = False
    after: tuple[str, ...] = ()
    not_above: str = ""
    disturbs: tuple[str, ...] = ()
    note: str = ""

    def default_for(self, release: str) -> Value | None:
        """Return the default of kernel `release` on a host with much memory, or None where it depends on the device."""
        default = self.default
        for since, value in self.default_since:
            if kernel_version(release) >= kernel_version(since):
                default = value
        return default

    def kept_by(self) -> str:
        """Return in words what keeps the value over a reboot, or why nothing does."""
        if self.persist == keepers.NONE:
            return f"nothing: {self.persist_why}"
        return f"{self.persist} ({self.persist_as})" if self.persist_as else self.persist

    def parse(self, native: str) -> Value:
        """Return the typed value of native text; text that does not fit its type stays text."""
        if self.type == "int":
            word = dict(self.words).get(native.strip())
            if word is not None:
                return word
            return _number(native)
        if self.type == "bool":
            lowered = native.lower()
            for truth, spelling in enumerate(self.spelling):
                if lowered == spelling.lower():
                    return bool(truth)
            return {"0": False, "1": True, "n": False, "y": True, "no": False, "yes": True}.get(lowered, native)
        return " ".join(native.split())

    @property
    def touches(self) -> str:
        """Whom a change concerns: a session, its disk, a route, NIC, namespace, host, or all initiators of a target."""
        return "nobody else" if self.ceiling else self.widest

    @property
    def widest(self) -> str:
        """Whom a change concerns at most."""
        return TOUCHES.get(self.scope, "target")

    def fits(self, value: object) -> bool:
        """Tell whether `value` is of this tunable's type; text that `parse` could not read is not."""
        return type(value) is {"int": int, "bool": bool, "text": str}[self.type]

    def native(self, value: Value) -> str:
        """Return the text to write for `value`."""
        if self.type == "bool":
            return self.spelling[int(value)] if isinstance(value, bool) else str(value)
        return next((word for word, number in self.words if number == value), str(value))

    def is_off(self, value: Value) -> bool:
        """Tell whether `value` switches the thing off; such a number is not a small amount."""
        return self.type == "int" and value in self.off

    def amount(self, value: Value) -> float | None:
        """Return how much `value` is: infinity for no limit, None if it is not a number."""
        if self.type != "int" or not isinstance(value, int):
            return None
        # Where one negative number means no limit, the kernel takes all of them so.
        if value in self.unlimited or (value < 0 and any(one < 0 for one in self.unlimited)):
            return math.inf
        return value

    def same(self, first: str, second: str) -> bool:
        """Tell whether two native texts mean the same value."""
        one, other = self.parse(first), self.parse(second)
        return one == other or (self.amount(one) == math.inf == self.amount(other))

    def check(self, value: object, where: str) -> Value:
        """Return `value` if this tunable may take it.  Raises InputError naming `where` and what is allowed."""
        if not self.fits(value):
            raise InputError(f"{where}: {self.name}: found {typed.describe(value)}, allowed: {self.allowed()}")
        assert isinstance(value, int | bool | str)
        if self.type == "int":
            number = int(value)
            if number in (*self.off, *self.unlimited):
                return number
            low, high = self.minimum, self.maximum
            if (low is not None and number < low) or (high is not None and number > high) or number % self.multiple_of:
                raise InputError(f"{where}: {self.name}: found {number}, allowed: {self.allowed()}")
            if self.power_of_two and (number < 1 or number & (number - 1)):
                raise InputError(f"{where}: {self.name}: found {number}, allowed: {self.allowed()}")
        elif self.type == "text":
            text = str(value)
            if self.values and text not in self.values:
                raise InputError(f"{where}: {self.name}: found '{text}', allowed: {self.allowed()}")
            if not text.isprintable() or len(text) > 256:
                raise InputError(f"{where}: {self.name}: found {text[:60]!r}, allowed: one line of printable text")
        return value

    def allowed(self) -> str:
        """Return the allowed values in words."""
        if self.type == "bool":
            return "true or false"
        if self.type == "text":
            return ", ".join(repr(value) for value in self.values) or "text"
        low = "any" if self.minimum is None else str(self.minimum)
        high = "any" if self.maximum is None else str(self.maximum)
        text = f"an integer from {low} to {high}" + (f" ({self.unit})" if self.unit else "")
        if self.multiple_of > 1:
            text += f", a multiple of {self.multiple_of}"
        text += ", a power of two" if self.power_of_two else ""
        for numbers, meaning in ((self.off, "off"), (self.unlimited, "no limit")):
            for number in numbers:
                native = self.native(number)
                word = f", written {native}" if native != str(number) else ""
                text += f"; {number} is {meaning}{word}"
        return text


def _numbers(raw: Any) -> Numbers:
    found = raw if isinstance(raw, list) else [raw]
    for number in found:
        if type(number) is not int:
            raise WrongError(number, "integer")
    return Numbers(found)


def _since(raw: dict[str, Value]) -> Since:
    for release in raw:
        if not _KERNEL.fullmatch(release):
            raise InputError(f"found '{release}', allowed: a kernel such as 6.16")
    return Since(sorted(raw.items(), key=lambda pair: kernel_version(pair[0])))


_FORMAT = typed.Format()
_FORMAT.convert(Numbers, cast(Any, Any), _numbers, list)
_FORMAT.convert(Words, dict[str, int], lambda raw: Words(raw.items()), dict)
_FORMAT.convert(Since, cast(Any, dict[str, int | bool | str]), _since, dict)


def parse_tunable(name: str, table: object, where: str) -> Tunable:
    """Return the tunable that `table` describes.  Raises InputError."""
    named = {**table, "name": table.get("name", name)} if isinstance(table, dict) else table
    tunable = _FORMAT.read(Tunable, named, where)
    if tunable.name != name:
        raise InputError(f"{where}: unknown key 'name': a tunable is called after its file and table")
    _check_special(tunable, where)
    keepers.check_keeper(
        tunable.persist, tunable.backend, tunable.scope, tunable.key, tunable.persist_as, tunable.persist_why, where
    )
    for value in (tunable.default, tunable.auto, *(value for _, value in tunable.default_since)):
        if value is not None:
            tunable.check(value, where)
    return tunable


def _check_special(tunable: Tunable, where: str) -> None:
    """Check the numbers that mean off or unlimited and the words for them."""
    special = (*tunable.off, *tunable.unlimited)
    for number in special:
        if number in tunable.off and number in tunable.unlimited:
            raise InputError(f"{where}: {number} stands in both 'off' and 'unlimited'; it can mean one thing")
    for word, number in tunable.words:
        if number not in special:
            raise InputError(
                f"{where}: key 'words': '{word}' is {typed.describe(number)}, allowed: a number of 'off' or 'unlimited'"
            )
    if special and tunable.type != "int":
        raise InputError(f"{where}: 'off' and 'unlimited' need type \"int\", found {typed.describe(tunable.type)}")


@dataclass(frozen=True)
class Catalog:
    """Every tunable by name."""

    tunables: dict[str, Tunable]

    def get(self, name: str, where: str) -> Tunable:
        """Return the tunable called `name`.  Raises InputError with the nearest name."""
        if name not in self.tunables:
            near = typed.suggestion(name, self.tunables)
            raise InputError(f"{where}: unknown tunable '{name}'{near}; `fabtune tunables` lists all")
        return self.tunables[name]


def load_catalog(directory: Path) -> Catalog:
    """Return the vocabulary in `directory`; file ``tcp.toml``, table ``[rmem_max]`` is ``tcp.rmem_max``."""
    tunables: dict[str, Tunable] = {}
    files: dict[str, Path] = {}
    for path in sorted(directory.glob("*.toml")):
        for table_name, table in userfile.read_toml(path, MAX_FILE_BYTES).items():
            name = f"{path.stem}.{table_name}"
            tunables[name] = parse_tunable(name, table, f"{path}: [{table_name}]")
            files[name] = path
    for name, tunable in tunables.items():
        for other in (*tunable.after, *tunable.disturbs, *filter(None, [tunable.not_above])):
            typed.one_of(other, tunables, f"{files[name]}: [{name.partition('.')[2]}]", "tunable")
    return Catalog(tunables)


@cache
def shipped_catalog() -> Catalog:
    """Return the vocabulary that fabtune ships."""
    return load_catalog(data_dir("tunables"))

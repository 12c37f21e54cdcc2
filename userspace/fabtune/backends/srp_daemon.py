# SPDX-License-Identifier: GPL-2.0-or-later
"""Login options of srp_daemon.conf: those of its first rule for all targets (``a queue_size=128,ch_count=4``).

The first rule that matches a target wins, so nothing behind that one counts, and rules for named targets stay
untouched.  An empty value means that the rule does not set the option.  A file that srp_daemon could not read, or that
keeps it from targets which no rule names, is left alone.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import FabtuneError, UnsupportedError, explained
from fabtune.host import files, tree
from fabtune.model.device import Device

# As srp_daemon reads it (rdma-core, srp_daemon.c, get_rules_file).  What makes a rule speak of one target only, with
# the most digits; what only an allowing rule may have; and how many characters of these it takes in one rule.
_NAMES = {"id_ext": 16, "ioc_guid": 16, "dgid": 32, "service_id": 16, "pkey": 9}
_OPTIONS = (
    "allow_ext_sg", "ch_count", "cmd_sg_entries", "comp_vector", "max_cmd_per_lun", "max_sect", "queue_size",
    "sg_tablesize", "tl_retry_count",
)  # fmt: skip
_NAME = "|".join(rf"{name}=[0-9A-Fa-f]{{0,{digits}}}" for name, digits in _NAMES.items())
_WORD = re.compile(rf"(?P<word>{_NAME}|(?:{'|'.join(_OPTIONS)})=[0-9]{{1,16}})(?:[, \t]|\Z)[ \t]*")
_VERB = re.compile(r"[AaDd][ \t]*")
_MOST_READ, _MOST_BYTES = 127, 253
# A login has 254 characters at most, or is left out: as its service runs srp_daemon, a target's names take 156 of them.
_MOST_OF_OURS = 98
# Stands before a rule that fabtune added: no other is ever removed.
_MARK = "# The rule in the next line is fabtune's: `fabtune revert` removes it."


@dataclass(frozen=True)
class _Rule:
    """A rule of the file: the place of its line, and each of its words with where that begins."""

    place: int
    words: tuple[tuple[str, int], ...]

    @property
    def is_for_all(self) -> bool:
        """Whether no target is named: of a name that stands twice the last one counts, and an empty one is none."""
        named = dict(word.split("=") for word, _ in self.words)
        return not any(named.get(name) for name in _NAMES)

    @property
    def options(self) -> dict[str, str]:
        """The login options, of two with one name the last."""
        found = dict(word.split("=") for word, _ in self.words)
        return {name: value for name, value in found.items() if name in _OPTIONS}

    @property
    def length(self) -> int:
        """How many characters the options take in a login."""
        return sum(len(f",{word}") for word, _ in self.words if word.partition("=")[0] in _OPTIONS)


def _path() -> Path:
    return tree.ETC / "srp_daemon.conf"


def _lines(path: Path) -> list[str]:
    """Return the lines, and behind the last newline what follows it."""
    # Other people's comments may be in any encoding: they go back as they came.
    return path.read_bytes().decode(errors="surrogateescape").split("\n")


def _unreadable(place: int, why: str) -> FabtuneError:
    return FabtuneError(f"{_path()}: line {place + 1} {why}; correct it first")


def _rules(lines: Sequence[str]) -> Iterator[_Rule]:
    """Yield every rule.  Raises FabtuneError for a line at which srp_daemon would end, or read what is not there."""
    for place, line in enumerate(lines):
        if len(line.encode(errors="surrogateescape")) > _MOST_BYTES:
            raise _unreadable(place, f"has more than the {_MOST_BYTES} characters that srp_daemon reads")
        if not line or line.startswith("#"):
            continue
        if place == len(lines) - 1:
            raise _unreadable(place, "has no newline at its end, and srp_daemon reads on behind it")
        rule = _parsed(place, line)
        if rule is None or (line[0] in "Dd" and rule.options):
            raise _unreadable(place, f"is no rule as srp_daemon reads them ('{line:.80}')")
        if rule.length > _MOST_READ:
            raise _unreadable(place, f"has more than the {_MOST_READ} characters of options that srp_daemon takes")
        yield rule


def _parsed(place: int, line: str) -> _Rule | None:
    """Return the rule in `line`, None where it is none."""
    verb = _VERB.match(line)
    at, words = verb.end() if verb else 0, []
    while verb and at < len(line):
        found = _WORD.match(line, at)
        if found is None:
            return None
        words.append((found["word"], at))
        at = found.end()
    return _Rule(place, tuple(words)) if verb else None


def _rule_for_all(lines: Sequence[str]) -> _Rule | None:
    """Return the rule by which targets that no rule names are logged in to, None without one: then all are.

    Raises FabtuneError where they are not, or the file cannot be read.
    """
    found = next((one for one in list(_rules(lines)) if one.is_for_all), None)
    if found and lines[found.place][0] in "Dd":
        raise FabtuneError(
            f"{_path()}: line {found.place + 1} keeps srp_daemon from every target that no rule before it allows: "
            "options are for these alone, in their own rules"
        )
    return found


def _with(line: str, rule: _Rule, key: str, value: str) -> str:
    """Return `line` with the option set, and each other byte as it was."""
    places = [(word, at) for word, at in rule.words if word.startswith(f"{key}=")]
    if places:
        word, at = places[-1]
        return f"{line[:at]}{key}={value}{line[at + len(word) :]}"
    word, at = rule.words[-1] if rule.words else (line[0], 0)
    end = at + len(word)
    return f"{line[:end]}{',' if rule.words else ' '}{key}={value}{line[end:]}"


def _without(line: str, rule: _Rule, key: str) -> str:
    """Return `line` without the option: where `_with` added it, as it was before that."""
    word, at = next(one for one in reversed(rule.words) if one[0].startswith(f"{key}="))
    before, after = line[:at], line[at + len(word) :]
    if before.endswith(",") or (not after.startswith(",") and before[1:]):
        return before[:-1] + after
    return before + after.removeprefix(",")


def login_options() -> dict[str, str]:
    """Return the login options of every target that no rule names.  Raises FabtuneError where none is logged in to."""
    with explained("srp_daemon.conf"):
        rule = _rule_for_all(_lines(_path()))
    return rule.options if rule else {}


class _SrpDaemon:
    def read(self, device: Device, key: str) -> str:
        return login_options().get(key, "")

    def write(self, device: Device, key: str, value: str) -> None:
        with explained(f"srp_daemon.conf: {key}={value}"):
            lines = _lines(_path())
            rule = _rule_for_all(lines)
            if rule and value:
                lines[rule.place] = _with(lines[rule.place], rule, key, value)
            elif value:
                # Before what follows the last newline, which may be no rule.
                lines[-1:-1] = [_MARK, f"a {key}={value}"]
            elif rule and key in rule.options:
                lines[rule.place] = _without(lines[rule.place], rule, key)
                if lines[rule.place] == "a" and lines[rule.place - 1 : rule.place] == [_MARK]:
                    del lines[rule.place - 1 : rule.place + 1]
            now = _rule_for_all(lines)
            if (now.options if now else {}).get(key, "") != value:
                raise FabtuneError(f"{_path()}: {key}={value!r:.80} is nothing that a rule for all targets could say")
            if now and now.length > max(_MOST_OF_OURS, rule.length if rule else 0):
                raise UnsupportedError(
                    f"{_path()}: the options of a login would have {now.length} characters; with a target's names "
                    f"srp_daemon passes over what has more than {_MOST_OF_OURS}"
                )
            files.amend(_path(), "\n".join(lines))


BACKEND = _SrpDaemon()

# SPDX-License-Identifier: GPL-2.0-or-later
"""The parser of every verb, and argument types that several share."""

import argparse
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from fabtune.errors import InputError
from fabtune.model.units import LEAST_MTU, MOST_MTU, parse_bit_per_s, parse_bytes, parse_ms, parse_percent

T = TypeVar("T")
# What skips a question, overwrites or ends what is in use is typed by who knows it; --help is named anyway.
_NOT_PROPOSED = ("--yes", "--force", "--end-sessions", "--help")
_NEAR = 0.75

# As catalog/ has them; importing that takes longer than all the rest of a `--help`.
ROLES = ("initiator", "target")


class Parser(argparse.ArgumentParser):
    """Raises InputError for what is wrong, with the nearest option or choice, instead of printing and exiting."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(allow_abbrev=False, **keywords)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self._verb()}{message}{_near_choice(message)}; see `{self.prog} --help`")

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        """Return the parsed words.  Raises InputError."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            # After an unknown option its value may follow: the option is the one to name.
            word = next((word for word in unknown if word.startswith("-")), unknown[0])
            name = word.partition("=")[0]
            what = "option" if word.startswith("-") else "word"
            parser = self._of_sub_verb(found)
            near = _near_option(name, parser._options()) if what == "option" else ""
            raise InputError(f"{parser._verb()}unknown {what} '{name}'{near}; see `{parser.prog} --help`")
        return found

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the parsed words, with the options that got another value than they have untold as their `given`."""
        found, unknown = super().parse_known_args(args, namespace)
        # No word at all of a kind of which there may be any number is an empty list.
        told = [one for one in self._actions if getattr(found, one.dest, one.default) not in (one.default, [])]
        # A sub-verb's parser has noted its own already.
        found.given = {*getattr(found, "given", ()), *(_name_of(one) for one in told)}
        return found, unknown

    def _verb(self) -> str:
        words = self.prog.split()[1:]
        return f"{' '.join(words)}: " if words else ""

    def _options(self) -> list[str]:
        """Return every option."""
        return [word for action in self._actions for word in action.option_strings]

    def _of_sub_verb(self, found: argparse.Namespace) -> "Parser":
        """Return the parser of the sub-verb that `found` names; this one without any."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                chosen: Parser = action.choices[getattr(found, action.dest)]
                return chosen
        return self


def _name_of(action: argparse.Action) -> str:
    """Return what a user calls it: the long option, or the word for a positional argument."""
    return action.option_strings[0] if action.option_strings else str(action.metavar or action.dest)


def first_given(args: argparse.Namespace, *options: str) -> str:
    """Return the first of `options` that was given, with another value than it has untold; '' for none.

    A verb that would do nothing with it is to refuse it.
    """
    return next((option for option in options if option in args.given), "")


def _suggestion(word: str, known: Sequence[str]) -> str:
    # Imported here: it brings what only an error needs.
    from fabtune.model import typed

    return typed.suggestion(word, known)


def _near_option(word: str, options: Sequence[str]) -> str:
    bare = word.strip("-")
    near = [one for one in options if one.startswith("--") and one not in _NOT_PROPOSED and _is_near(bare, one[2:])]
    return _suggestion(word, near)


def _is_near(word: str, name: str) -> bool:
    """Tell whether `word` is a misspelt `name` or one of its words.

    Short options have letters in common and nothing else; a slip seldom changes the first one.
    """
    import difflib

    if word in name.split("-"):
        return True
    return word[:1] == name[:1] and difflib.SequenceMatcher(None, word, name).ratio() >= _NEAR


def _near_choice(message: str) -> str:
    match = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
    return _suggestion(match[1], [word.strip("' ") for word in match[2].split(",")]) if match else ""


def quantity(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return `parse` as an argument type: its InputError becomes a usage error."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def seconds_between(option: str, low_s: float, high_s: float, expected: str) -> Callable[[str], float]:
    """Return the type of a time of `option` from `low_s` to `high_s` seconds, which an error calls `expected`."""

    def convert(text: str) -> float:
        try:
            found = parse_ms(text, option) / 1e3
        except InputError:
            # What a time is at all its own range shows, too.
            found = math.nan
        if not low_s <= found <= high_s:
            raise InputError(f"{option} {text}: expected {expected}")
        return found

    return convert


def plain_seconds(low_s: float, high_s: float, example: str) -> Callable[[str], float]:
    """Return the type of seconds without a unit from `low_s` to `high_s`."""

    def convert(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not low_s <= found <= high_s:
            raise argparse.ArgumentTypeError(
                f"'{text}': expected seconds from {low_s:.10g} to {high_s:.10g}, such as {example}"
            )
        return found

    return convert


def whole_between(low: int, high: int) -> Callable[[str], int]:
    """Return the type of a whole number from `low` to `high`."""

    def convert(text: str) -> int:
        # No number of more digits is in the range, and Python refuses to read one of thousands.
        if not text.isdecimal() or len(text) > len(str(high)) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"'{text}': expected a whole number from {low} to {high}")
        return int(text)

    return convert


# What QEMU and Python's generators take, and a record keeps.
seed = whole_between(0, 2**63 - 1)
# Until 2106, and no more than a program can sleep.
unix_time = plain_seconds(0, 2**32 - 1, "what `date +%s` prints and some more")


def add_look(parser: argparse.ArgumentParser, low_s: int, high_s: int) -> None:
    """Add ``--for TIME``, how long to look."""
    kind = seconds_between("--for", low_s, high_s, f"{low_s}s to {high_s}s")
    words = "how long to look (default: 10s)"
    parser.add_argument("--for", dest="seconds", type=kind, default=10.0, metavar="TIME", help=words)


milliseconds = quantity(parse_ms)
bit_per_s = quantity(parse_bit_per_s)
percent = quantity(parse_percent)


def _each_once(numbers: list[int], text: str) -> list[int]:
    """Return `numbers`.  Raises ArgumentTypeError where `text` has one twice: its tests are told apart by nothing."""
    if len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"'{text}': a value stands there twice, expected each once")
    return numbers


sizes = quantity(lambda text: _each_once([parse_bytes(word) for word in text.split(",")], text))


def counts(text: str) -> list[int]:
    """Return whole numbers from 1, separated by commas, each once.  Raises ArgumentTypeError."""
    numbers = [int(word) if word.isdigit() else 0 for word in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': expected whole numbers above zero, such as 1,4")
    return _each_once(numbers, text)


def count(text: str) -> int:
    """Return a whole number from 1.  Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': expected a whole number from 1")
    return int(text)


def mtu_bytes(text: str) -> int:
    """Return an MTU that a link can have.  Raises ArgumentTypeError."""
    if not text.isdecimal() or not LEAST_MTU <= int(text) <= MOST_MTU:
        raise argparse.ArgumentTypeError(f"'{text}': expected bytes from {LEAST_MTU} to {MOST_MTU}, such as 1500")
    return int(text)

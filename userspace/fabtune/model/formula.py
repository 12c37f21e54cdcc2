# SPDX-License-Identifier: GPL-2.0-or-later
"""Formulas in profiles: arithmetic over the path and the profile's parameters, nothing else.

    max(4 * bdp, 6MiB)      if(bdp > 256KiB, 0, 512KiB)      pow2(in_flight / io_size)

Numbers may carry a unit; quantities are in bytes, seconds and bytes per second.  There are no
loops, names resolve only to the variables passed in, and size and depth are bounded, so a
formula from a file can neither run code nor run long.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fabtune.errors import InputError
from fabtune.model import full_queue, units

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)(?P<unit>[a-zA-Z]*)|(?P<name>[a-z_][a-z0-9_]*)|(?P<op><=|>=|==|!=|[-+*/(),<>]))"
)
_MAX_LENGTH = 400
_MAX_DEPTH = 40
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def _pow2(value: float) -> float:
    """Round up to a power of two, at least 1."""
    return float(1 << math.ceil(math.log2(value))) if value > 1 else 1.0


def _if(condition: float, then: float, otherwise: float) -> float:
    """Choose; both branches are always computed."""
    return then if condition else otherwise


# name -> (function, smallest and largest number of arguments)
_FUNCTIONS: dict[str, tuple[Callable[..., float], int, int]] = {
    "min": (min, 2, 16),
    "max": (max, 2, 16),
    "ceil": (math.ceil, 1, 1),
    "floor": (math.floor, 1, 1),
    "pow2": (_pow2, 1, 1),
    "if": (_if, 3, 3),
    "full_queue": (full_queue.leaves_s, 3, 3),
}


@dataclass
class _Parser:
    text: str
    variables: Mapping[str, float]
    what: str
    position: int = 0
    depth: int = 0

    def error(self, problem: str) -> InputError:
        return InputError(f"{self.what}: formula '{self.text}': {problem}")

    def peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self.text, self.position)

    def accept(self, *operators: str) -> str | None:
        token = self.peek()
        if token is None:
            return None
        word = token["op"] or token["name"]
        if word not in operators:
            return None
        self.position = token.end()
        return word

    def expect(self, operator: str) -> None:
        if not self.accept(operator):
            found = self.text[self.position :].strip() or "the end"
            raise self.error(f"expected '{operator}' before '{found}'")

    def disjunction(self) -> float:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.error(f"nested deeper than {_MAX_DEPTH} levels")
        value = self.conjunction()
        while self.accept("or"):
            right = self.conjunction()
            value = value or right
        self.depth -= 1
        return value

    def conjunction(self) -> float:
        value = self.comparison()
        while self.accept("and"):
            right = self.comparison()
            value = right if value else value
        return value

    def comparison(self) -> float:
        value = self.total()
        if operator := self.accept(*_COMPARE):
            return float(_COMPARE[operator](value, self.total()))
        return value

    def total(self) -> float:
        value = self.product()
        while operator := self.accept("+", "-"):
            right = self.product()
            value = value + right if operator == "+" else value - right
        return value

    def product(self) -> float:
        value = self.atom()
        while operator := self.accept("*", "/"):
            right = self.atom()
            if operator == "/" and right == 0:
                raise self.error("divides by zero")
            value = value * right if operator == "*" else value / right
        return value

    def atom(self) -> float:
        if self.accept("("):
            value = self.disjunction()
            self.expect(")")
            return value
        token = self.peek()
        if token is None or token["op"]:
            found = self.text[self.position :].strip() or "nothing"
            raise self.error(f"expected a number, a name or '(', found '{found}'")
        self.position = token.end()
        if token["number"]:
            return _quantity(token["number"], token["unit"], self)
        return self.name(token["name"])

    def name(self, name: str) -> float:
        if name in _FUNCTIONS:
            return self.call(name)
        if name not in self.variables:
            known = ", ".join([*sorted(self.variables), *(f"{function}()" for function in _FUNCTIONS)])
            raise self.error(f"unknown name '{name}'; known here: {known}")
        return self.variables[name]

    def call(self, name: str) -> float:
        function, least, most = _FUNCTIONS[name]
        self.expect("(")
        arguments = [self.disjunction()]
        while self.accept(","):
            arguments.append(self.disjunction())
        self.expect(")")
        if not least <= len(arguments) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise self.error(f"{name}() takes {wanted} arguments, found {len(arguments)}")
        try:
            return float(function(*arguments))
        except ZeroDivisionError:
            raise self.error("divides by zero") from None


def _quantity(number: str, unit: str, parser: _Parser) -> float:
    if not unit:
        return float(number)
    try:
        if unit in ("us", "ms", "s"):
            return units.parse_ms(number + unit) / 1e3
        if unit.endswith("bit"):
            return units.parse_bit_per_s(number + unit) / 8
        return float(units.parse_bytes(number + unit))
    except InputError:
        raise parser.error(f"'{number}{unit}' has no known unit; write bytes, KiB, MiB, ms, s or gbit") from None


def evaluate(text: str, variables: Mapping[str, float], what: str = "value") -> float:
    """Return the value of formula `text`; `what` names its place in errors.  Raises InputError."""
    if len(text) > _MAX_LENGTH:
        raise InputError(f"{what}: formula of {len(text)} characters; at most {_MAX_LENGTH} are allowed")
    parser = _Parser(text.rstrip(), variables, what)
    try:
        value = parser.disjunction()
    except OverflowError:
        raise parser.error("the result is too large") from None
    if parser.position != len(parser.text):
        raise parser.error(f"cannot read '{parser.text[parser.position :].strip()}'")
    if not math.isfinite(value):
        raise parser.error("the result is not a finite number")
    return value


def variables(text: str) -> set[str]:
    """Return the variables formula `text` names."""
    tokens = (match for match in _TOKEN.finditer(text))
    return {token["name"] for token in tokens if token["name"]} - _FUNCTIONS.keys() - {"and", "or"}

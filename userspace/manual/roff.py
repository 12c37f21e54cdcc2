# SPDX-License-Identifier: GPL-2.0-or-later
"""Prose and words as mdoc(7) takes them."""

import re
import textwrap
from collections.abc import Iterable

_PUNCTUATION = set(".,:;()[]?!|")


def text(words: str) -> str:
    """Return prose as mdoc lines: a sentence begins a line of its own, and no line begins with a control character."""
    # A function's name would ask for markup of its own.
    escaped = words.replace("\\", "\\e").replace("()", "\\&()")
    sentences = re.sub(r"(?<=[a-z)'0-9][.!?]) +(?=[A-Z])", "\n", escaped).split("\n")
    lines = [line for one in sentences for line in textwrap.wrap(one, 78, break_on_hyphens=False)]
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines)


def sentence(words: str) -> str:
    """Return `words`, which have no full stop, as a sentence.  Code in backquotes is quoted."""
    return text(re.sub(r"`([^`]*)`", r"'\1'", f"{words[:1].upper()}{words[1:]}."))


def word(value: str) -> str:
    """Return `value` as one argument of a macro."""
    escaped = value.replace("\\", "\\e").replace('"', '""')
    # A word of two letters may be the name of a macro, and punctuation has a meaning of its own.
    if value in _PUNCTUATION or value[:1] in (".", "'") or re.fullmatch(r"[A-Z][a-z]", value):
        escaped = f"\\&{escaped}"
    return f'"{escaped}"' if " " in escaped else escaped


def items(rows: Iterable[tuple[str, str]], macro: str = "Cm") -> str:
    """Return a list of words, each with what it means."""
    return "\n".join([".Bl -tag -width Ds", *(f".It {macro} {word(name)}\n{told}" for name, told in rows), ".El"])

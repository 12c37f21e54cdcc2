# SPDX-License-Identifier: GPL-2.0-or-later
"""Breaks valid documents: JSON by structure, texts by lines, all by bytes."""

import copy
import json
import random
from typing import Any

ODD_TEXTS = (
    "", " ", "0", "-1", "true", "null", "nan", "inf", "-inf", "1e999", "0x10", "0b1", "1_000", "9" * 400, "9" * 5000,
    "\x00", "\x1b[2J\x1b[31m", "\r", "a\nb", "\x7f\x9b", "\u202eright to left", "\u2028", "\ufeff", "\ud800",
    "\U0001f9e8", "٣", "²", "../../../../../../etc/passwd", "/etc/shadow", "/proc/1/ns/net",
    "net.ipv4.tcp_rmem[99999999999999999999]", "net.ipv4.tcp_rmem[-1]", "..", ".", "*", "[", "(" * 90, "%s%n",
    "$(reboot)", "; reboot", "--help", "x" * 3000, ",,,", "10.2.0.1", "fe80::1%eth0", "::ffff:1.2.3.4", "[::1]:3260",
    "999.1.1.1", "max", "auto", "default", "1/0", "1979-05-27",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 0.5, 2**31, 2**63, 2**64, -(2**63), 10**400, 1e308, -1e308, float("nan"),
    float("inf"), [], {}, [[]], [None], {"": ""}, [1, "a"], {"kind": []},
)  # fmt: skip
# What makes a text odd where it stands between other text.
_PIECES = (
    b"\x00", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\x1b]0;x\x07", b"\n", b"\r\n", b"\n\n", b"\t", b" ", b'"', b"'",
    b"\\", b"{", b"}", b"[", b"]", b"[[", b",", b":", b"=", b" = ", b"#", b'"""', b"[" * 3000, b"{\"a\":" * 1500,
    b"9" * 5000, b"-", b"e999", b"NaN", b"\\ud800",
)  # fmt: skip


def odd_value(draw: random.Random) -> Any:
    """Return a value that hardly any key expects."""
    # A copy: what is put inside it must show in no other case, nor in itself.
    return draw.choice(ODD_TEXTS) if draw.random() < 0.6 else copy.deepcopy(draw.choice(ODD_VALUES))


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Collect (container, key) of every value inside `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found.append((value, key))
        _places(inner, found)
    return found


def break_json(value: Any, draw: random.Random, most: int = 3) -> Any:
    """Replace, remove, rename, double or swap up to `most` values inside `value`, in place; return it."""
    for _ in range(draw.randint(1, most)):
        places = _places(value, [])
        if not places:
            break
        container, key = draw.choice(places)
        action = draw.random()
        if action < 0.55:
            container[key] = odd_value(draw)
        elif action < 0.7:
            del container[key]
        elif action < 0.85:
            other, place = draw.choice(places)
            # A copy: a value inside itself has no end.
            container[key] = json.loads(json.dumps(other[place]))
        elif isinstance(container, dict):
            container[str(draw.choice(ODD_TEXTS))] = container.pop(key)
        else:
            container.append(json.loads(json.dumps(container[key])))
    return value


def dump(value: Any, draw: random.Random) -> bytes:
    """Return JSON in one of the spellings that parsers meet; a few objects name a key twice."""
    text = json.dumps(value, ensure_ascii=draw.random() < 0.8).encode(errors="surrogatepass")
    if draw.random() < 0.05 and isinstance(value, dict) and value:
        key = json.dumps(draw.choice(list(value))).encode()
        text = text[:-1] + b", " + key + b": " + json.dumps(odd_value(draw)).encode() + b"}"
    return text


def break_bytes(data: bytes, draw: random.Random, most: int = 3) -> bytes:
    """Flip, cut, double, insert or replace up to `most` pieces of `data`."""
    for _ in range(draw.randint(1, most)):
        start = draw.randrange(len(data) + 1)
        end = min(len(data), start + draw.choice((0, 1, 1, 4, 30)))
        action = draw.random()
        if action < 0.3 and data:
            place = min(start, len(data) - 1)
            data = data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :]
        elif action < 0.4:
            data = data[:start]
        elif action < 0.55:
            data = data[:start] + data[end:]
        elif action < 0.7:
            data = data[:end] + data[start:]
        else:
            piece = draw.choice(_PIECES) if action < 0.9 else draw.choice(ODD_TEXTS).encode(errors="surrogatepass")
            data = data[:start] + piece + data[end:]
    return data


def break_lines(data: bytes, draw: random.Random, separator: bytes = b" = ") -> bytes:
    """Remove, double or swap lines, or give a `key = value` line another value; then perhaps break bytes."""
    lines = data.split(b"\n")
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(lines))
        action = draw.random()
        if action < 0.5 and separator in lines[place]:
            odd = str(odd_value(draw)).encode(errors="surrogatepass")
            lines[place] = lines[place].partition(separator)[0] + separator + odd
        elif action < 0.65 and len(lines) > 1:
            del lines[place]
        elif action < 0.8:
            lines.insert(draw.randrange(len(lines)), lines[place])
        else:
            other = draw.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
    data = b"\n".join(lines)
    return break_bytes(data, draw, 2) if draw.random() < 0.3 else data


def noise(draw: random.Random) -> bytes:
    """Return bytes that are no document at all."""
    return draw.randbytes(draw.choice((0, 1, 3, 40, 300)))

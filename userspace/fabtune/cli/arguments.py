# SPDX-License-Identifier: GPL-2.0-or-later
"""Argument types that several verbs share."""

import argparse


def count(text: str) -> int:
    """Return a whole number from 1.  Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': expected a whole number from 1")
    return int(text)

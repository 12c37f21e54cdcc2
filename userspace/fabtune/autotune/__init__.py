# SPDX-License-Identifier: GPL-2.0-or-later
"""Tunes sessions under their load without being told the path: look, lift what limits, look again, keep or restore."""

# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps watch over what was applied: values that drift, records and sessions that lost theirs, paths that moved."""

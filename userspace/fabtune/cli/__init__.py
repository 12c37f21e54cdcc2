# SPDX-License-Identifier: GPL-2.0-or-later
"""Argument parsing and printing, one file a group of verbs."""

# SPDX-License-Identifier: GPL-2.0-or-later
"""Floor 4: argument parsing and printing, one file a group of verbs."""

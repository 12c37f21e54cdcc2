# SPDX-License-Identifier: GPL-2.0-or-later
"""What is pure: paths, formulas, units, statistics, record types; nothing here reads the host."""

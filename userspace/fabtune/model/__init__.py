# SPDX-License-Identifier: GPL-2.0-or-later
"""Floor 1: pure formulas and units; nothing here reads the host."""

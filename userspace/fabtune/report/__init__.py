# SPDX-License-Identifier: GPL-2.0-or-later
"""Floor 3: statistics, terminal tables, SVG and HTML."""

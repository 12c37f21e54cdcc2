# SPDX-License-Identifier: GPL-2.0-or-later
"""Floor 1: read and write one kind of tunable each."""

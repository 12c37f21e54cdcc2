# SPDX-License-Identifier: GPL-2.0-or-later
"""Floor 1: snapshots of fabstat.ko and what follows from two of them."""

# SPDX-License-Identifier: GPL-2.0-or-later
"""Floor 2: what this host is, which devices it has, and what its tunables hold now."""

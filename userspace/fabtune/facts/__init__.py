# SPDX-License-Identifier: GPL-2.0-or-later
"""What this host is, which devices it has, and what its tunables hold now."""

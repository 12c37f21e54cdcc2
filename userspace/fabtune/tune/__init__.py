# SPDX-License-Identifier: GPL-2.0-or-later
"""Floor 3: plan, journal, apply, verify, revert and lint."""

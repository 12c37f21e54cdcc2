# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan, journal, apply, verify, revert, persistence and re-login."""

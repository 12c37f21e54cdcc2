# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks for settings that lose data, stall or cost throughput, on this host or in a saved facts file."""

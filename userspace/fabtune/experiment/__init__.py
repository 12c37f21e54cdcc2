# SPDX-License-Identifier: GPL-2.0-or-later
"""Experiments over matrices of settings and hosts."""

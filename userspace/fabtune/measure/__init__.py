# SPDX-License-Identifier: GPL-2.0-or-later
"""Floor 2: one workload on one host makes one immutable run record."""

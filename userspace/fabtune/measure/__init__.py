# SPDX-License-Identifier: GPL-2.0-or-later
"""One workload on one host makes one immutable run record."""

# SPDX-License-Identifier: GPL-2.0-or-later
"""What this host's fabric does, as metrics for Prometheus: gathered, written out, served."""

# SPDX-License-Identifier: GPL-2.0-or-later
"""Floor 1: guest images, virtual machines and emulated paths."""

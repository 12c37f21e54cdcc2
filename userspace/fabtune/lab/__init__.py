# SPDX-License-Identifier: GPL-2.0-or-later
"""Guest images, virtual machines, emulated paths and fabrics."""

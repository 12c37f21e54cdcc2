# SPDX-License-Identifier: GPL-2.0-or-later
"""Floor 3: experiments over matrices of settings and hosts."""

# SPDX-License-Identifier: GPL-2.0-or-later
"""What limits a session: evidence of an observation, shares of time, and what lifts them."""

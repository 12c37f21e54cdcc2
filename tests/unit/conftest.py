# SPDX-License-Identifier: GPL-2.0-or-later
"""What all unit tests start with."""

import signal

from hypothesis import HealthCheck, settings

# A shell starts what it puts into the background with Ctrl-C ignored, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy this machine is, nothing about the code.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

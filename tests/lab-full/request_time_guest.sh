#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs request_time_guest.py with the guest's own Python and this tree's package.
PYTHONPATH=/fabtune/userspace:/fabtune/tests/bench exec python3 /fabtune/tests/lab-full/request_time_guest.py "$@"

#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# A session that profile wan has tuned, at 20 ms and 100 Mb/s, and what `fabtune why` costs it.
set -e
export PYTHONPATH=/fabtune/userspace
insmod /fabtune/kmod/fabstat.ko
python3 -m fabtune.lab.guest up --rtt 20ms --rate 100mbit
python3 -m fabtune.lab.guest login >/dev/null
python3 -m fabtune apply wan --yes --role target --netns target --rtt 20ms --rate 100mbit >/dev/null || [ $? -eq 4 ]
python3 -m fabtune apply wan --yes --role initiator --rtt 20ms --rate 100mbit --allow-relogin >/dev/null
exec python3 /fabtune/tests/lab-full/why_cost.py

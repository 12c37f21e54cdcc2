#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# In a guest: one request of 16 KiB at a time over iSER at 1 Gb/s.
set -e
export PYTHONPATH=/fabtune/userspace
python3 -m fabtune.lab.guest up --fabric iser --rtt 0ms --rate 1gbit
disk=$(python3 -m fabtune.lab.guest login --fabric iser)
for direction in read write; do
	fio --name=one --filename="/dev/$disk" --direct=1 --ioengine=libaio --iodepth=1 --bs=16k --rw=$direction \
		--time_based --runtime=6 --output=/dev/null
	echo "moved: $direction"
done

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A request that never comes back, what drgn says of it on the live kernel, and a crash.
set -eu
modprobe qemu_fw_cfg
modprobe virtio_blk
mkdir /tmp/symbols
mount -t squashfs /dev/vda /tmp/symbols
modprobe sd_mod
modprobe scsi_debug delay=0 dev_size_mb=8
until [ -b /dev/sda ]; do read -rt 0.1 <> <(:) || true; done
udevadm settle 2> /dev/null || true
echo 100000 > /sys/block/sda/device/timeout
# In jiffies: longer than this guest lives.
echo 100000000 > /sys/bus/pseudo/drivers/scsi_debug/delay
dd if=/dev/sda of=/dev/null bs=8192 count=1 iflag=direct skip=3 &
under_way() { read -r reads _ < /sys/block/sda/inflight && [ "$reads" -eq 1 ]; }
until under_way; do read -rt 0.1 <> <(:) || true; done
began=$SECONDS
# Old enough by the time that drgn has read its symbols, or soon after.
while :; do
	drgn -q -k -s /tmp/symbols/vmlinux /job/fabtune-stuck.drgn.py 5 > /tmp/found 2>&1 || { cat /tmp/found; break; }
	grep -q 'in flight' /tmp/found && break
	[ $((SECONDS - began)) -lt 300 ] || break
done
echo "live: $(cat /tmp/found)"
sync
echo c > /proc/sysrq-trigger

#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite bookworm --clock real --accel uml
# guest-full: --suite trixie --clock real
# Who uses a disk: each user alone keeps the disk's session from being logged out.

CORE=/sys/kernel/config/target/core
TPG=/sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:target/tpgt_1

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 0ms --keeps-data --size-mib 64
	python3 -m fabtune.lab.guest login
	for module in sg st loop; do
		modprobe -q $module || true
	done
}

setup() {
	load common
	disk=/dev/$(cd /sys/block && echo sd*)
	number=$(cat "/sys/block/${disk#/dev/}/dev")
	session=$(ls /sys/class/iscsi_session)
	cat > relogin.toml <<-'EOT'
		summary = "one value that counts from the next login on"
		[initiator."iscsi.queue_depth"]
		value = 64
		why = "a test"
	EOT
}

teardown() {
	exec 9<&-
	[ -z "$holder" ] || kill "$holder" 2>/dev/null || true
	rm -rf /var/lib/fabtune
	iscsiadm -m node -o update -n node.session.queue_depth -v 32
}

# refused [WORDS]: a re-login is asked for and not done, and the reason has the words.
refused() {
	run fabtune apply "$PWD/relogin.toml" --role initiator --allow-relogin
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"in use by"*"$1"* ]]
	[ "$(ls /sys/class/iscsi_session)" = "$session" ]
}

# hold COMMAND...: runs it in the background until the test ends, and waits until it says "ready".
hold() {
	"$@" > ready 3>&- &
	holder=$!
	for _ in $(seq 100); do
		grep -q ready ready && return
		sleep 0.1
	done
	return 1
}

@test "a disk that nobody uses is logged out" {
	run fabtune apply "$PWD/relogin.toml" --role initiator --allow-relogin
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(ls /sys/class/iscsi_session)" != "$session" ]
}

@test "a disk open through a node of another name is in use" {
	mknod other b "${number%:*}" "${number#*:}"
	exec 9< other
	refused "process"
}

@test "a disk open through its generic SCSI node alone is in use" {
	sg=$(ls "/sys/block/${disk#/dev/}/device/scsi_generic") || skip "no sg driver"
	exec 9< "/dev/$sg"
	refused "process"
}

@test "a disk open through its bsg node alone is in use" {
	node=$(echo "/sys/block/${disk#/dev/}"/device/bsg/*/dev)
	[ -e "$node" ] || skip "no bsg"
	mknod bsg c $(tr : ' ' < "$node")
	exec 9< bsg
	refused "process"
}

@test "a disk that is only mapped into memory is in use" {
	hold python3 -c "
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
fd = os.open('$disk', os.O_RDONLY)
kept = libc.mmap(None, ctypes.c_size_t(4096), 1, 1, fd, ctypes.c_long(0))  # PROT_READ, MAP_SHARED
assert kept not in (None, 2**64 - 1)
os.close(fd)
print('ready', flush=True)
time.sleep(100)"
	refused "process $holder"
}

@test "a disk that only a thread with descriptors of its own has open is in use" {
	hold python3 -c "
import ctypes, os, threading, time
def alone():
    assert ctypes.CDLL(None).unshare(0x400) == 0  # CLONE_FILES
    os.open('$disk', os.O_RDONLY)
    print('ready', flush=True)
    time.sleep(100)
threading.Thread(target=alone).start()"
	refused "process $holder"
}

@test "a disk mounted in another mount namespace alone is in use" {
	mkfs.ext4 -q "$disk"
	hold unshare --mount --propagation private sh -c "mount $disk /mnt && echo ready && exec sleep 100"
	! grep -q "$disk" /proc/mounts
	refused "a mount on /mnt"
}

@test "a swap space, and a volume on a partition, are users" {
	mkswap "$disk" >/dev/null
	swapon "$disk"
	refused "swap"
	swapoff "$disk"
	wipefs --all --quiet "$disk"
	dmsetup create volume --table "0 2048 linear $disk 0"
	refused "volume"
	dmsetup remove volume
}

@test "a disk below a loop device is in use" {
	loop=$(losetup --find --show "$disk") || skip "no loop devices"
	refused "loop"
	losetup --detach "$loop"
}

@test "a disk that LIO exports, as a file or as it is, is in use" {
	mkdir -p $CORE/fileio_7/file
	echo "fd_dev_name=$disk,fd_dev_size=1048576" > $CORE/fileio_7/file/control
	echo 1 > $CORE/fileio_7/file/enable
	refused "LIO backstore"
	rmdir $CORE/fileio_7/file $CORE/fileio_7
	mkdir -p $CORE/iblock_7/block
	echo "udev_path=$disk" > $CORE/iblock_7/block/control
	echo 1 > $CORE/iblock_7/block/enable
	refused "LIO backstore"
	rmdir $CORE/iblock_7/block $CORE/iblock_7
}

@test "a disk that nvmet exports is in use" {
	modprobe -q nvmet || skip "no nvmet"
	namespace=/sys/kernel/config/nvmet/subsystems/harm/namespaces/1
	mkdir -p /sys/kernel/config/nvmet/subsystems/harm
	mkdir $namespace
	echo -n "$disk" > $namespace/device_path
	echo 1 > $namespace/enable
	refused "NVMe namespace"
	echo 0 > $namespace/enable
	rmdir $namespace /sys/kernel/config/nvmet/subsystems/harm
}

@test "a tape that a process has open keeps its session, whose disk nobody uses" {
	modprobe -q scsi_debug ptype=1 max_luns=1 && modprobe -q st || skip "no tape to be had"
	device=$(basename "$(ls -d /sys/bus/pseudo/drivers/scsi_debug/adapter0/host*/target*/*:*:*:*)")
	mkdir -p $CORE/pscsi_7/tape
	IFS=: read -r host channel id lun <<< "$device"
	echo "scsi_host_id=$host,scsi_channel_id=$channel,scsi_target_id=$id,scsi_lun_id=$lun" > $CORE/pscsi_7/tape/control
	for _ in $(seq 50); do
		generic=$(ls "/sys/class/scsi_device/$device/device/scsi_generic") && break
		sleep 0.1
	done
	echo "/dev/$generic" > $CORE/pscsi_7/tape/udev_path
	echo 1 > $CORE/pscsi_7/tape/enable
	mkdir $TPG/lun/lun_1
	ln -s $CORE/pscsi_7/tape $TPG/lun/lun_1/tape
	iscsiadm -m session --rescan >/dev/null
	for _ in $(seq 50); do
		tape=$(ls "/sys/class/iscsi_session/$session"/device/target*/*/scsi_tape 2>/dev/null | grep -x 'nst[0-9]*') && break
		sleep 0.1
	done
	[ -n "$tape" ]
	exec 9<> "/dev/$tape"
	refused "process"
	exec 9<&-
	rm $TPG/lun/lun_1/tape
	rmdir $TPG/lun/lun_1
	echo 1 > "$(dirname "$(dirname "$(readlink -f "/sys/class/iscsi_session/$session"/device/target*/*/scsi_tape/"$tape")")")/delete"
}

# second_lun: maps the disk as LUN 1 as well, and waits for its disk.
second_lun() {
	mkdir $TPG/lun/lun_1
	ln -s $CORE/rd_mcp_0/disk0 $TPG/lun/lun_1/disk0
	iscsiadm -m session --rescan >/dev/null
	for _ in $(seq 50); do
		compgen -G "/sys/class/iscsi_session/$session/device/target*/*:1/block/sd*" && return
		sleep 0.1
	done
	return 1
}

@test "a disk whose LUN the target no longer has keeps its session: a login would not bring it back" {
	second_lun
	rm $TPG/lun/lun_1/disk0
	rmdir $TPG/lun/lun_1
	run fabtune apply "$PWD/relogin.toml" --role initiator --allow-relogin
	for stale in /sys/class/iscsi_session/"$session"/device/target*/*:1/delete; do
		echo 1 > "$stale"
	done
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"no LUN 1 any more"* ]]
	[ "$(ls /sys/class/iscsi_session)" = "$session" ]
}

@test "a disk with persistent reservations keeps its session: another one may not have them" {
	reservation register 0 0xabc
	run fabtune apply "$PWD/relogin.toml" --role initiator --allow-relogin
	reservation register 0xabc 0
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"persistent reservations"* ]]
	[ "$(ls /sys/class/iscsi_session)" = "$session" ]
}

# reservation register OLD NEW: what <linux/pr.h> offers for the disk.
reservation() {
	python3 -c "
import fcntl, os, struct
IOC_PR_REGISTER = 0x401870C8
fd = os.open('$disk', os.O_RDWR)
fcntl.ioctl(fd, IOC_PR_REGISTER, struct.pack('=QQII', $2, $3, 1, 0))"
}

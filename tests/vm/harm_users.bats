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
	load until
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
	# What a failed test leaves behind must not fail the next.
	for store in $CORE/*_7/*; do [ ! -d "$store" ] || rmdir "$store" "${store%/*}"; done
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

# The disks of sessions that something is mounted on, as show tells.
mounted() {
	fabtune show --json | python3 -c 'import json, sys; print(*json.load(sys.stdin)["mounted"])'
}

# hold COMMAND...: runs it in the background until the test ends, and waits until it says "ready".
hold() {
	"$@" > ready 3>&- &
	holder=$!
	until_true 'grep -q ready ready'
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

# mapped PROTECTION [END]: maps the disk and keeps no descriptor; with END the process's first thread ends. Says "ready" and stays.
mapped() {
	exec python3 -c "
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
fd = os.open('$disk', os.O_RDONLY)
kept = libc.mmap(None, ctypes.c_size_t(4096), int(sys.argv[1]), 1, fd, ctypes.c_long(0))  # MAP_SHARED
assert kept not in (None, 2**64 - 1)
os.close(fd)
def stay():
    while sys.argv[2:] and open('/proc/self/maps').read():
        time.sleep(0.1)
    print('ready', flush=True)
    time.sleep(100)
if sys.argv[2:]:
    threading.Thread(target=stay).start()
    libc.pthread_exit(None)
stay()" "$@"
}

@test "a disk that is only mapped into memory is in use, be it as code or by a process whose first thread has ended" {
	hold mapped 1
	refused "process $holder"
	kill "$holder"
	hold mapped 5
	refused "process $holder"
	kill "$holder"
	hold mapped 1 end
	refused "process $holder"
}

# ring PATH...: an io_uring with these files registered, and no descriptor of them; says "ready" and stays.
ring() {
	exec python3 -c "
import ctypes, os, sys, time
IO_URING_SETUP, IO_URING_REGISTER, IORING_REGISTER_FILES = 425, 427, 2
syscall = ctypes.CDLL(None).syscall
ring = syscall(IO_URING_SETUP, 8, ctypes.create_string_buffer(120))
files = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]
if files:
    assert syscall(IO_URING_REGISTER, ring, IORING_REGISTER_FILES, (ctypes.c_int * len(files))(*files), len(files)) == 0
for fd in files:
    os.close(fd)
print('ready', flush=True)
time.sleep(100)" "$@"
}

@test "a disk that is only registered with an io_uring is in use" {
	hold ring "$disk"
	refused "process $holder"
}

@test "a ring with other files, or none, keeps no disk's session" {
	hold ring /dev/null /
	other=$holder
	hold ring
	run fabtune apply "$PWD/relogin.toml" --role initiator --allow-relogin
	kill $other
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "a disk whose only descriptor is on its way from one process to another is in use" {
	hold python3 -c "
import os, socket, time
here, there = socket.socketpair()
fd = os.open('$disk', os.O_RDONLY)
socket.send_fds(here, [b'x'], [fd])
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
	! grep -q "$disk" /proc/mounts || false
	refused "a mount on /mnt"
	[ "$(mounted)" = "${disk#/dev/}" ]
}

@test "a swap space, and a volume on a partition, are users" {
	mkswap "$disk" >/dev/null
	swapon "$disk"
	refused "swap"
	[ "$(mounted)" = "${disk#/dev/}" ]
	swapoff "$disk"
	wipefs --all --quiet "$disk"
	dmsetup create volume --table "0 2048 linear $disk 0"
	refused "volume"
	[ -z "$(mounted)" ]
	volume=/dev/dm-$(dmsetup info --columns --noheadings --options minor volume)
	mkfs.ext4 -q "$volume"
	mount "$volume" /mnt
	[ "$(mounted)" = "${disk#/dev/}" ]
	umount /mnt
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

@test "a file with a blank in its path that LIO exports keeps no disk's session" {
	mkdir -p $CORE/fileio_7/file
	truncate -s 1M "an image"
	echo "fd_dev_name=$PWD/an image,fd_dev_size=1048576" > $CORE/fileio_7/file/control
	echo 1 > $CORE/fileio_7/file/enable
	run fabtune apply "$PWD/relogin.toml" --role initiator --allow-relogin
	rmdir $CORE/fileio_7/file $CORE/fileio_7
	echo "$output"
	[ "$status" -eq 0 ]
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

@test "an export whose node is gone may be of any disk, and so may those that are not to be seen" {
	mkdir -p $CORE/fileio_7/file
	mknod other b "${number%:*}" "${number#*:}"
	echo "fd_dev_name=$PWD/other,fd_dev_size=1048576" > $CORE/fileio_7/file/control
	echo 1 > $CORE/fileio_7/file/enable
	rm other
	refused "LIO backstore fileio_7/file, perhaps"
	rmdir $CORE/fileio_7/file $CORE/fileio_7
	fabtune() {
		command unshare --mount sh -c 'umount /sys/kernel/config && exec fabtune "$@"' fabtune "$@"
	}
	refused "LIO, perhaps"
}

@test "the disk of an OCFS2 cluster's heartbeat is in use" {
	modprobe -q ocfs2_nodemanager || skip "no OCFS2"
	cluster=/sys/kernel/config/cluster/harm
	region=$cluster/heartbeat/0123456789ABCDEF0123456789ABCDEF
	mkdir $cluster $cluster/node/here
	echo 7777 > $cluster/node/here/ipv4_port
	echo 10.1.0.1 > $cluster/node/here/ipv4_address
	echo 0 > $cluster/node/here/num
	echo 1 > $cluster/node/here/local
	echo global > $cluster/heartbeat/mode
	mkdir $region
	echo 512 > $region/block_bytes
	echo 64 > $region/start_block
	echo 255 > $region/blocks
	exec 9<> "$disk"
	# Returns once the heartbeat is steady.
	echo 9 > $region/dev
	exec 9<&-
	refused "OCFS2's heartbeat in cluster harm"
	rmdir $region $cluster/node/here $cluster
}

@test "a file on a server that does not answer, be it open, mapped, below a loop device or exported, keeps nobody waiting" {
	modprobe -q fuse || skip "no FUSE"
	mkdir far
	hold python3 /fabtune/tests/vm/dead_server.py far dead
	served=$holder
	# Whoever inherits its descriptor waits for the server as he ends.
	hold python3 -c "
import mmap, time
file = open('far/file', 'rb')
kept = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
print('ready', flush=True)
time.sleep(1000)"
	loop=$(losetup --find --show --read-only far/file)
	mkdir -p $CORE/fileio_7/file
	echo "fd_dev_name=$PWD/far/file,fd_dev_size=1048576" > $CORE/fileio_7/file/control
	echo 1 > $CORE/fileio_7/file/enable
	touch dead
	run timeout --signal=KILL 120 fabtune apply "$PWD/relogin.toml" --role initiator --allow-relogin
	rm dead
	rmdir $CORE/fileio_7/file $CORE/fileio_7
	losetup --detach "$loop"
	umount --lazy far
	kill $served
	echo "$output"
	[ "$status" -eq 0 ]
}

# other_path: logs in to the disk through a second portal as well; its disk is \$second, its record not due.
other_path() {
	ip -n target addr add 10.2.0.2/24 dev t0
	nsenter --net=/run/netns/target mkdir $TPG/np/10.2.0.2:3260
	iscsiadm -m discovery -t st -p 10.2.0.1:3260 >/dev/null
	iscsiadm -m node -p 10.2.0.2:3260 --login >/dev/null
	iscsiadm -m node -p 10.2.0.2:3260 -o update -n node.session.queue_depth -v 64
	until_true 'second=/dev/$(cd /sys/block && ls -d sd* | grep -vx "${disk#/dev/}") && [ -b "$second" ]'
	session=$(ls /sys/class/iscsi_session)
}

no_other_path() {
	iscsiadm -m node -p 10.2.0.2:3260 --logout >/dev/null
	iscsiadm -m node -p 10.2.0.2:3260 -o delete
	rmdir $TPG/np/10.2.0.2:3260
	ip -n target addr del 10.2.0.2/24 dev t0
}

@test "an export made by a link that leads to another path of its disk by now keeps both paths" {
	other_path
	ln -s "$disk" by-id
	mkdir -p $CORE/fileio_7/file
	echo "fd_dev_name=$PWD/by-id,fd_dev_size=1048576" > $CORE/fileio_7/file/control
	echo 1 > $CORE/fileio_7/file/enable
	ln -sfn "$second" by-id
	refused "LIO backstore fileio_7/file"
	rmdir $CORE/fileio_7/file $CORE/fileio_7
	no_other_path
}

@test "a path of a multipath device stays whose file system holds a swap file" {
	other_path
	modprobe dm_multipath
	modprobe dm_service_time
	dmsetup create many --uuid mpath-many --table "0 $(cat "/sys/block/${disk#/dev/}/size") multipath 0 0 1 1 \
		service-time 0 2 1 $disk 1 $second 1"
	dmsetup mknodes
	mkfs.ext4 -q /dev/mapper/many
	mkdir place
	mount /dev/mapper/many place
	dd if=/dev/zero of=place/swap bs=1M count=8 2>/dev/null
	chmod 600 place/swap
	mkswap place/swap >/dev/null
	swapon place/swap
	run fabtune apply "$PWD/relogin.toml" --role initiator --allow-relogin
	swapoff place/swap
	umount place
	dmsetup remove many
	no_other_path
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"carries swap space"* ]]
}

@test "a tape that a process has open keeps its session, whose disk nobody uses" {
	modprobe -q scsi_debug ptype=1 max_luns=1 && modprobe -q st || skip "no tape to be had"
	device=$(basename "$(ls -d /sys/bus/pseudo/drivers/scsi_debug/adapter0/host*/target*/*:*:*:*)")
	mkdir -p $CORE/pscsi_7/tape
	IFS=: read -r host channel id lun <<< "$device"
	echo "scsi_host_id=$host,scsi_channel_id=$channel,scsi_target_id=$id,scsi_lun_id=$lun" > $CORE/pscsi_7/tape/control
	until_true 'generic=$(ls "/sys/class/scsi_device/$device/device/scsi_generic")'
	echo "/dev/$generic" > $CORE/pscsi_7/tape/udev_path
	echo 1 > $CORE/pscsi_7/tape/enable
	mkdir $TPG/lun/lun_1
	ln -s $CORE/pscsi_7/tape $TPG/lun/lun_1/tape
	iscsiadm -m session --rescan >/dev/null
	until_true 'tape=$(ls "/sys/class/iscsi_session/$session"/device/target*/*/scsi_tape 2>/dev/null | grep -x "nst[0-9]*")'
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
	until_true 'compgen -G "/sys/class/iscsi_session/$session/device/target*/*:1/block/sd*"'
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

@test "a LUN that was removed by hand stays away: its session is not logged in anew, and that is said" {
	second_lun
	echo 1 > "$(ls -d /sys/class/iscsi_session/"$session"/device/target*/*:1)/delete"
	run fabtune apply "$PWD/relogin.toml" --role initiator --allow-relogin
	rm $TPG/lun/lun_1/disk0
	rmdir $TPG/lun/lun_1
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"offers LUN 1"*"rescan"* ]]
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

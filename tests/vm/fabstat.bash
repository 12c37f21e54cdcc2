# SPDX-License-Identifier: GPL-2.0-or-later
# What the tests of the module share.  Loaded with `load fabstat`.

PARAMETERS=/sys/module/fabstat/parameters

load_fabstat() {
	insmod /fabtune/kmod/fabstat.ko "$@"
}

unload_fabstat() {
	! [ -e /sys/module/fabstat ] || rmmod fabstat
}

# seen DISK EXPRESSION...: what the module has counted of DISK, a line each, e.g. seen sda 'events["busy"]'.  Names:
# d the device, events, read and write (its ops), completed(op), hist(op, time), i the whole interval.
seen() {
	python3 - "$@" <<-'PYTHON'
		import sys
		from fabtune.stat import Op, since_seen, snapshot
		i = since_seen(snapshot()).device(sys.argv[1])
		d, events, ops = i.device, i.events, i.ops
		read, write, flush, discard, other = (ops.get(op, Op()) for op in ("read", "write", "flush", "discard", "other"))
		hist = lambda op, time="device": ops[op].histograms[time]
		books = all(op.issued == op.completed + op.sent_back for op in ops.values())
		print(*map(eval, sys.argv[2:]), sep="\n")
	PYTHON
}

# expect DISK EXPRESSION...: fails, and shows the device, unless each expression is true.  All are asked of one reading.
expect() {
	local found
	found=$(seen "$@") && ! grep -qvx True <<< "$found" && return
	echo "on $1,"
	paste -d '\n' <(printf "'%s' is\n" "${@:2}") - <<< "$found"
	fabtune stat "$1"
	return 1
}

# balanced [DISK...]: fails, and shows the devices, unless all books balance and nothing is in flight.  At a quiet moment.
balanced() {
	/usr/bin/python3 /fabtune/tests/vm/books.py "$@"
}

# guest SCRIPT ARGUMENT...: runs it; what it says is in endurance.txt of the results as well.
guest() (
	set -o pipefail
	/usr/bin/python3 /fabtune/tests/vm/"$@" | tee -a /results/endurance.txt
)

# slab_kib: what the kernel has taken for itself, all of the module's memory included.
slab_kib() {
	awk '/^(SUnreclaim|Percpu):/ { sum += $2 } END { print sum }' /proc/meminfo
}

# wait_for COMMAND...: until it succeeds, one minute at most.
wait_for() {
	local deadline=$((SECONDS + 60))
	until "$@"; do
		[ "$SECONDS" -lt "$deadline" ] || { echo "waited in vain for: $*"; return 1; }
		sleep 0.05
	done
}

# scsi_debug_disk [PARAMETER...]: loads scsi_debug and prints the name of its disk.
scsi_debug_disk() {
	modprobe sd_mod
	modprobe scsi_debug "$@"
	wait_for debug_disk >/dev/null
	debug_disk
}

debug_disk() {
	local model
	for model in /sys/block/sd*/device/model; do
		if [ -e "$model" ] && grep -q scsi_debug "$model"; then
			model=${model%/device/model}
			[ -b "/dev/${model##*/}" ] && dd if="/dev/${model##*/}" of=/dev/null bs=4k count=1 status=none && echo "${model##*/}" && return
		fi
	done
	return 1
}

# inject DISK RULE: scsi_debug's error injection (6.7 and later).
inject() {
	local host
	host=$(basename "$(readlink -f "/sys/block/$1/device")")
	echo "$2" > "/sys/kernel/debug/scsi_debug/$host/error"
}

# requires_injection: skips the test on a kernel whose scsi_debug cannot inject errors into single commands.
requires_injection() {
	[ -d /sys/kernel/debug/scsi_debug ] || skip "scsi_debug injects single errors from Linux 6.7 on"
}

# load_disk DISK FIO-OPTION...: direct I/O with fio; prints nothing.
load_disk() {
	local disk=$1
	shift
	fio --name=load "--filename=/dev/$disk" --direct=1 --ioengine=libaio --output=/tmp/fio.log "$@" || { cat /tmp/fio.log; return 1; }
}

# exact: skips a test of times on a kernel whose sanitizers stretch them.
exact() {
	case $(uname -r) in
		*-kasan | *-kcsan | *-rt | *-scsi-builtin) skip "times here are the sanitizers'" ;;
	esac
}

# at_most NS: NS on the virtual clock, which has one CPU; by the real one, which several have, a delay may last longer.
at_most() {
	[ "$(nproc)" -eq 1 ] && echo "$1" || echo 1e18
}

# at_least RATIO: the same for what is reached by a clock that waits for nobody.
at_least() {
	[ "$(nproc)" -eq 1 ] && echo "$1" || echo 0
}

# no_nvme_paths NQN: takes away what nvme_two_paths made.
no_nvme_paths() {
	local target=/sys/kernel/config/nvmet/subsystems/$1
	nvme disconnect-all
	rm -f /sys/kernel/config/nvmet/ports/[12]/subsystems/"$1"
	rmdir /sys/kernel/config/nvmet/ports/[12] "$target/namespaces/1" "$target"
	modprobe -r null_blk
}

# nvme_two_paths NQN [MS [PARAMETER...]]: makes nvme0n1, a disk of two paths over the loopback whose requests take 20 ms
# each, or MS; it lies on null_blk, with further PARAMETERs.
nvme_two_paths() {
	local number port target=/sys/kernel/config/nvmet/subsystems/$1
	modprobe nvme_core multipath=Y
	modprobe -a nvme_tcp nvmet_tcp
	modprobe null_blk queue_mode=2 irqmode=2 completion_nsec="${2:-20}000000" nr_devices=1 gb=1 "${@:3}"
	mkdir -p "$target/namespaces/1"
	echo 1 > "$target/attr_allow_any_host"
	echo /dev/nullb0 > "$target/namespaces/1/device_path"
	echo 1 > "$target/namespaces/1/enable"
	for number in 1 2; do
		port=/sys/kernel/config/nvmet/ports/$number
		mkdir "$port"
		echo ipv4 > "$port/addr_adrfam"; echo tcp > "$port/addr_trtype"
		echo 127.0.0.1 > "$port/addr_traddr"; echo $((4419 + number)) > "$port/addr_trsvcid"
		ln -s "$target" "$port/subsystems/$1"
		nvme connect --transport tcp --traddr 127.0.0.1 --trsvcid $((4419 + number)) --nqn "$1"
	done
	wait_for test -b /dev/nvme0n1
}

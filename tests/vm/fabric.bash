# SPDX-License-Identifier: GPL-2.0-or-later
# What the tests of fabrics share.  $FABRIC names the one under test.
load fabstat

# bring_up FABRIC [OPTIONS]: FABRIC over a path of 2 ms, with a disk of 64 MiB that keeps data; the module is loaded.
bring_up() {
	export FABRIC=$1
	lab up --rtt 2ms --size-mib 64 --keeps-data "${@:2}"
	load_fabstat
}

lab() {
	python3 -m fabtune.lab.guest "$@" --fabric "$FABRIC"
}

# passed DEVICE: packets that the router's qdisc on DEVICE has sent on.
passed() {
	{ ip netns exec shaper tc -s -j qdisc show; ip netns exec wan tc -s -j qdisc show; } |
		python3 -c '
import json, sys
text, decoder = sys.stdin.read(), json.JSONDecoder()
rows = []
while text.strip():
	found, end = decoder.raw_decode(text.lstrip())
	rows += found
	text = text.lstrip()[end:]
print(sum(row["packets"] for row in rows if row["dev"] == sys.argv[1] and row.get("root")))' "$1"
}

# verified DISK MIB: writes random blocks of MIB MiB with checksums and reads them back; fio fails on a wrong byte.
verified() {
	fio --name=verify "--filename=/dev/$1" --direct=1 --ioengine=libaio --iodepth=8 --rw=randwrite --bs=64k "--size=${2}m" \
		--verify=crc32c --output=/tmp/verify.log || { cat /tmp/verify.log; return 1; }
}

# crossed MIB COMMAND...: COMMAND succeeds, and at least MIB MiB passed the routers in each direction.
crossed() {
	local least=$(($1 * 1024 * 1024 / 1500)) before after device
	shift
	before=$(for device in s0 w0 s1 w1; do passed $device; done | xargs)
	"$@" || return 1
	after=$(for device in s0 w0 s1 w1; do passed $device; done | xargs)
	python3 - "$least" "$before" "$after" <<-'PYTHON'
		import sys
		least = int(sys.argv[1])
		moved = [b - a for a, b in zip(*(map(int, text.split()) for text in sys.argv[2:]))]
		print("packets through s0 w0 s1 w1:", moved)
		assert all(count >= least for count in moved), (moved, least)
	PYTHON
}

# flip_is_noticed DISK: changes one byte on DISK and lets fio read it back, which must fail.
flip_is_noticed() {
	verified "$1" 1 || return 1
	printf '\x00\xff\x00' | dd "of=/dev/$1" bs=1 seek=70000 conv=notrunc,fsync status=none
	! fio --name=verify "--filename=/dev/$1" --direct=1 --ioengine=libaio --rw=randwrite --bs=64k --size=1m \
		--verify=crc32c --verify_only --output=/tmp/flip.log || return 1
}

# measures DISK: `fabtune measure` has a figure for reads and for writes, and keeps it in /results.
measures() {
	local disk=$1 op
	for op in read write; do
		fabtune measure xdd --on "/dev/$disk" --set op=$op --runtime 2s --ramp 1s --confirm "$disk" --out "/results/$FABRIC" --json > figures.json
		python3 -c '
import json, sys
text = json.dumps(json.load(open("figures.json")))
print(sys.argv[1], text[:600])
assert "mb_per_s" in text, text' $op
	done
}

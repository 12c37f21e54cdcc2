# SPDX-License-Identifier: GPL-2.0-or-later
# `load climbing`, with `load until`: `fabtune tune` on $DISK under a load.

# under_load KIND DEPTH: returns when slow start is over, as 6 MB have passed.
under_load() {
	fio --name=x --filename="/dev/$DISK" --direct=1 --ioengine=libaio --rw="$1" --bs=256k --iodepth="$2" --size=900m \
		--time_based --runtime=3600 >/dev/null 2>&1 3>&- 4>&- &
	LOAD=$!
	local begun
	begun=$(moved)
	until_true "[ \$((\$(moved) - $begun)) -gt 12000 ]"
}

moved() {
	awk '{ print $3 + $7 }' "/sys/block/$DISK/stat"
}

rest() {
	[ -z "${LOAD:-}" ] || { kill "$LOAD" && wait "$LOAD"; } 2>/dev/null || true
	LOAD=""
}

# of KEY: a value of the document that tune printed.
of() {
	python3 -c 'import json, sys; print(eval("document" + sys.argv[1], {"document": json.load(open("tune.json"))}))' "$1"
}

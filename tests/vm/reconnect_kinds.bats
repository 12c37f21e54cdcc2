#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite bookworm --clock real --accel uml
# New connections in place of sessions that are more than plain: with digests, CHAP, values set by hand.

bats_require_minimum_version 1.5.0

BURSTS=$BATS_TEST_DIRNAME/bursts.toml
REFUSED=$BATS_TEST_DIRNAME/refused.toml

TPG=(/sys/kernel/config/target/iscsi/iqn.*/tpgt_1)
CONF=/etc/iscsi/iscsid.conf

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 0ms --keeps-data --size-mib 64
	DISK=$(python3 -m fabtune.lab.guest login)
	export DISK
	mkfs.ext4 -q -F -E nodiscard "/dev/$DISK"
	mkdir -p /m
}

setup() {
	load common
	load until
	cp $CONF kept.conf
}

teardown() {
	touch stop
	echo CRC32C,None > "${TPG[0]}/param/HeaderDigest"
	fabtune revert --reconnect >/dev/null 2>&1 || true
	cat kept.conf > $CONF
}

session() {
	echo /sys/class/iscsi_session/session*
}

digests() {
	echo $(cat /sys/class/iscsi_connection/connection*/{header,data}_digest)
}

record() {
	iscsiadm -m node -o update -n "$1" -v "$2"
}

busy() {
	mount "/dev/$DISK" /m
	python3 "$BATS_TEST_DIRNAME/fsync_writer.py" /m/file stop written.json 3>&- 4>&- &
	WRITER=$!
	until_true '[ -s written.json.steps ]'
}

all_is_well() {
	touch stop
	wait $WRITER
	umount /m
	cat written.json
	grep -q '"errors": \[\], "bytes_wrong": 0' written.json
}

@test "digests and the disk's depth come and go in place, under a busy file system" {
	cat > digests.toml <<-'EOF'
		summary = "digests of both kinds"
		[initiator."iscsi.header_digest"]
		value = "CRC32C"
		why = "a test"
		[initiator."iscsi.data_digest"]
		value = "CRC32C"
		why = "a test"
		[initiator."iscsi.queue_depth"]
		value = 20
		why = "a test"
	EOF
	busy
	before=$(session)
	run -0 fabtune apply ./digests.toml --role initiator --reconnect
	[ "$(digests)" = "1 1" ]
	# By an iscsid that sets it at a login alone, too.
	[ "$(cat "/sys/block/$DISK/device/queue_depth")" = 20 ]
	run -0 fabtune revert --reconnect
	[ "$(digests)" = "0 0" ]
	[ "$(cat "/sys/block/$DISK/device/queue_depth")" = 32 ]
	[ "$before" = "$(session)" ]
	all_is_well
}

@test "a session with CHAP comes back with it, unless iscsid.conf would give it other algorithms" {
	python3 -m fabtune.lab.guest logout
	echo 1 > "${TPG[0]}/attrib/authentication"
	printf someone > "${TPG[0]}/auth/userid"
	printf a-secret-word > "${TPG[0]}/auth/password"
	record node.session.auth.authmethod CHAP
	record node.session.auth.username someone
	record node.session.auth.password a-secret-word
	iscsiadm -m node --login
	until_true '[ -b /dev/$DISK ]'
	[ "$(cat $(session)/username)" = someone ]
	busy
	run -0 fabtune apply "$BURSTS" --role initiator --reconnect
	[ "$(cat $(session)/max_burst_len)" = 131072 ]
	run -0 fabtune revert --reconnect
	# The algorithms that only the record has are not those of an iscsid that starts.
	record node.session.auth.chap_algs SHA256
	run -4 fabtune apply "$BURSTS" --role initiator --reconnect
	[[ "$(echo "$output" | tr -s ' \n' ' ')" == *"chap_algs is SHA256, and an iscsid that starts takes MD5 from iscsid.conf"* ]]
	[ "$(cat $(session)/max_burst_len)" = 262144 ]
	echo "node.session.auth.chap_algs = SHA256" >> $CONF
	run -0 fabtune apply "$BURSTS" --role initiator --reconnect
	[ "$(cat $(session)/max_burst_len)" = 131072 ]
	all_is_well
	# teardown gives iscsid.conf back: a record that says otherwise would have the next reconnect refused.
	record node.session.auth.chap_algs MD5
}

kept() {
	cat /var/lib/fabtune/journal/*.jsonl | grep -c '"kept"'
}

@test "a depth set by hand comes back with the next fabtune where the one that reconnected was killed" {
	[ "$LENGTH" = full ] || skip "in the full run: a kill beside a busy guest may come too late; tests/unit/test_reconnect_kept.py has what is owed"
	depth=/sys/block/$DISK/device/queue_depth
	echo 17 > "$depth"
	before=$(kept)
	fabtune apply "$BURSTS" --role initiator --reconnect >/dev/null 2>&1 3>&- 4>&- &
	victim=$!
	# The line stands there before iscsid ends, and the session may be away for less than a look at it takes.
	until_true '[ "$(kept)" -gt "$before" ]'
	kill -9 $victim
	wait $victim || true
	until_true '[ "$(cat $(session)/state)" = LOGGED_IN ]'
	# What an iscsid since 2.1.10 makes of it; an older one leaves it alone.
	echo 32 > "$depth"
	run -3 fabtune verify
	[[ "$(echo "$output" | tr -s ' \n' ' ')" == *"queue_depth"*"was so before a new connection"* ]]
	run -0 fabtune revert --reconnect
	[ "$(cat "$depth")" = 17 ]
	[ "$(cat $(session)/max_burst_len)" = 262144 ]
	echo 32 > "$depth"
}

states() {
	cat /sys/class/iscsi_session/session*/state | sort | uniq -c | tr -s ' \n' ' '
}

@test "two sessions that the target refuses in the middle of a killed reconnect come back, a depth set by hand with them" {
	record node.session.nr_sessions 2
	iscsiadm -m node --login
	until_true '[ "$(states)" = " 2 LOGGED_IN " ]'
	depth=/sys/block/$DISK/device/queue_depth
	echo 17 > "$depth"
	echo None > "${TPG[0]}/param/HeaderDigest"
	busy
	refused=$(refused_logins)
	fabtune apply "$REFUSED" --role initiator --reconnect >/dev/null 2>&1 3>&- 4>&- &
	victim=$!
	until_true '[[ "$(states)" == *FAILED* ]]'
	# Each session's, if not both of one's.
	until_true '[ "$(refused_logins)" -ge $((refused + 2)) ]'
	kill -9 $victim
	wait $victim || true
	echo "before: $(states)"
	[[ "$(states)" == *FAILED* ]]
	run -0 fabtune revert --json
	echo "$output"
	[ "$(states)" = " 2 LOGGED_IN " ]
	[ "$(digests)" = "0 0 0 0" ]
	[ "$(cat "$depth")" = 17 ]
	all_is_well
	echo 32 > "$depth"
	run -0 fabtune verify
	iscsiadm -m session -r "$(basename $(session | cut -d' ' -f2) | tr -dc 0-9)" --logout
	record node.session.nr_sessions 1
}

@test "an fq taken from under BBR leaves a connection that nobody paces: it is due for a new one, CUBIC's is not" {
	cat > fq.toml <<-'EOF'
		summary = "pacing by the qdisc"
		[initiator."qdisc.kind"]
		value = "fq"
		why = "a test"
	EOF
	port() { cat /sys/class/iscsi_connection/connection*/local_port; }
	send() { dd if=/dev/zero of="/dev/$DISK" bs=64k count=16 oflag=direct status=none; }
	run -0 fabtune apply ./fq.toml --role initiator
	send
	run -0 fabtune revert
	modprobe tcp_bbr
	route=$(ip -oneline route show 10.2.0.0/24)
	ip route change $route congctl bbr
	iscsiadm -m node -u
	iscsiadm -m node -l
	until_true '[ -b "/dev/$DISK" ]'
	run -0 fabtune apply ./fq.toml --role initiator
	send
	before=$(port)
	run -4 fabtune revert
	[ "$(port)" = "$before" ]
	run -0 fabtune revert --reconnect
	[ "$(port)" != "$before" ]
	ip route change $route
}

@test "few requests are let through while the connection of a disk is made anew whose load waits for its line" {
	depth=/sys/block/$DISK/device/queue_depth
	before=$(cat "$depth")
	python3 -m fabtune.lab.guest path --rtt 50ms --rate 50mbit
	fio --name=x --filename="/dev/$DISK" --readonly --direct=1 --ioengine=libaio --rw=read --bs=256k --iodepth=32 --size=60m \
		--time_based --runtime=3600 >/dev/null 2>&1 3>&- 4>&- &
	load=$!
	until_true '[ "$(awk "{print \$1 + \$2}" /sys/block/$DISK/inflight)" -ge 24 ]'
	(while [ ! -e stop ]; do cat "$depth"; sleep 0.05; done > depths) 3>&- 4>&- &
	run -0 fabtune apply "$BURSTS" --role initiator --reconnect
	[[ "$output" == *"requests at once until they are there, so that not all are sent again together: $DISK "*" (of $before)"* ]]
	[ "$(cat "$depth")" = "$before" ]
	touch stop
	[ "$(sort -n depths | head -n 1)" -le 8 ]
	kill -0 $load
	kill $load && wait $load || true
	python3 -m fabtune.lab.guest path --rtt 0ms
}

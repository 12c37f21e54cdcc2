#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie+ops --clock real --accel uml
# What is attached to a bug report: sos's plugin and the file of facts, without a secret of any record.

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 1ms
	python3 -m fabtune.lab.guest login
	iscsiadm -m node -o update -n node.session.auth.username -v somebody
	iscsiadm -m node -o update -n node.session.auth.password -v do-not-tell-1234
	iscsiadm -m node -o update -n node.session.auth.password_in -v do-not-tell-5678
	sed -i 's/^#\?node.session.auth.password = .*/node.session.auth.password = do-not-tell-9012/' /etc/iscsi/iscsid.conf
	mkdir -p /etc/fabtune
	cat > /etc/fabtune/notes <<-'EOT'
		password = "do-not-tell-3456"
		node.session.auth.password = it's do-not-tell, two words
		"auth.password": "a \"quoted\" do-not-tell", "kept": "this"
		password_mutual = do-not-tell
		CHAP_PASSWORD=do-not-tell
		password = "do-not-tell
		incominguser bob do-not-tell
		password =
		kept = "this, too"
	EOT
	echo 'password = "do-not-tell-7890"' > /etc/default/fabtune-guard
	fabtune apply wan --role initiator --rtt 50ms --rate 1gbit --persist || [ $? -eq 4 ]
	cp /fabtune/support/sos_fabtune.py /usr/lib/python3/dist-packages/sos/report/plugins/fabtune.py
	cd /tmp
	sos report --batch -o fabtune --tmp-dir /tmp/report --build > /tmp/sos.log 2>&1 || { mkdir -p /tmp/report; sos report --batch -o fabtune --tmp-dir /tmp/report --build > /tmp/sos.log 2>&1; }
}

@test "the report has what a bug needs" {
	cat /tmp/sos.log
	cd /tmp/report/*/sos_commands/fabtune
	ls
	grep -q '"fabtune_facts": 1' fabtune_show_--json
	grep -q 'wan' fabtune_history
	grep -q 'checked' fabtune_verify
	grep -q 'fabtune_session_state' fabtune_export_--textfile*
	grep -q '"begin"' /tmp/report/*/var/lib/fabtune/journal/*.jsonl
}

@test "no secret is in it" {
	! grep -r do-not-tell /tmp/report || false
	# What was scrubbed is there, without its value.
	grep -r 'password = "\*\*\*\*\*\*"' /tmp/report/*/etc/fabtune/notes
	grep -r 'password = "\*\*\*\*\*\*"' /tmp/report/*/etc/default/fabtune-guard
	grep -r '"auth.password": "\*\*\*\*\*\*", "kept": "this"' /tmp/report/*/etc/fabtune/notes
	grep -r 'kept = "this, too"' /tmp/report/*/etc/fabtune/notes
	# It was there to be found.
	grep -qr do-not-tell /etc/iscsi
}

@test "the facts are one file that names host, kernel, sessions, sockets, records and targets, for another host to judge" {
	fabtune show --json > /tmp/facts.json
	! grep do-not-tell /tmp/facts.json || false
	python3 - <<-'PYTHON'
		import json
		facts = json.load(open("/tmp/facts.json"))
		assert {"host", "sessions", "sockets", "nics", "readings", "owners"} <= set(facts), sorted(facts)
		assert facts["made_with"]["fabtune"] and "Debian" in facts["made_with"]["distribution"], facts["made_with"]
		assert facts["host"]["kernel"] and facts["sessions"][0]["target"] and facts["sockets"][0]["busy_us"] >= 0
		assert any(one["tunable"] == "iscsi.tcp_window" for one in facts["readings"])
	PYTHON
	run fabtune lint /tmp/facts.json
	[ "$status" -eq 0 ] || [ "$status" -eq 3 ]
}

@test "a pod enters the host's namespaces: its own iscsiadm sees no record, the host's does" {
	iscsiadm -m node > /tmp/records
	[ -s /tmp/records ]
	cat > /tmp/in-pod <<-'END'
		# Where it keeps them depends on its version.
		for directory in /etc/iscsi /var/lib/iscsi; do
			[ ! -d $directory ] || mount -t tmpfs none $directory
		done
		mkdir /tmp/pod
		cp /fabtune/container/on-host /tmp/pod/iscsiadm
		chmod 755 /tmp/pod/iscsiadm
		! iscsiadm -m node > /tmp/own || exit 1
		PATH=/tmp/pod:$PATH
		iscsiadm -m node > /tmp/entered
		fabtune show --json > /tmp/shown
	END
	PYTHONPATH=/fabtune/userspace unshare --mount --propagation private sh -ec '. /tmp/in-pod'
	diff /tmp/records /tmp/entered
	grep -q '"node.session.cmds_max\|"iscsi.cmds_max"' /tmp/shown
}

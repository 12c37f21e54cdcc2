#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# `fabtune why --fleet` with three local hosts through Ansible; what each host's fabtune sees is a kept observation.
bats_require_minimum_version 1.5.0

setup_file() {
	cd "$BATS_TEST_DIRNAME/../.."
	export PYTHONPATH=userspace FLEET=$BATS_FILE_TMPDIR
	# Two hosts' disks are of the target with the slow disk, the third's of another; the target says no more than that it is one.
	/usr/bin/python3 - "$FLEET" <<-'PYTHON'
		import gzip, json, pathlib, sys
		kept = json.loads(gzip.decompress(pathlib.Path("tests/unit/data/observations.json.gz").read_bytes()))
		def host(name, *disks):
		    devices = [{"observation": one} for one in disks]
		    script = pathlib.Path(sys.argv[1], name)
		    pathlib.Path(sys.argv[1], name + ".said").write_text(json.dumps({"devices": devices}, indent=2))
		    script.write_text(f'#!/bin/sh\necho "$*" > "$0.asked"\ncat "$0.said"\n')
		    script.chmod(0o755)
		def disk(name, target):
		    seen = json.loads(json.dumps(kept[name])) | {"rate_bytes_per_s": 25e6, "rate_by": "--rate"}
		    seen["session"] |= {"target": target, "portal": f"{target}:3260"}
		    return seen
		host("one", disk("loss-read", "iqn.far"), disk("wan-read", "iqn.near"))
		host("two", disk("loss-read", "iqn.far"), disk("wan-read", "iqn.near"))
		host("store")
		pathlib.Path(sys.argv[1], "store.said").write_text(json.dumps({"ends": []}, indent=2))
	PYTHON
	cat > "$FLEET/hosts.ini" <<-EOF
		[targets]
		store fabtune_executable=$FLEET/store
		[initiators]
		one fabtune_executable=$FLEET/one
		two fabtune_executable=$FLEET/two
		[all:vars]
		ansible_connection=local
	EOF
}

setup() { cd "$BATS_TEST_DIRNAME/../.."; }

fleet() { /usr/bin/python3 -m fabtune why --fleet "$FLEET/hosts.ini" --for 2s "$@"; }

@test "what the slow ones have in common is said, from what all hosts saw at once" {
	run -0 --separate-stderr fleet
	[[ ${lines[0]} == "2 of 4 are slow, 2 of these by loss; these and no others have the path iqn.far:3260 in common" ]]
	[[ $output == *one*read*loss*iqn.far* ]]
	[[ $(cat "$FLEET/one.asked") =~ ^why\ --json\ --for\ 2s\ --at\ [0-9.]+$ ]]
	# All begin at the same instant.
	[ "$(cat "$FLEET/store.asked")" = "$(cat "$FLEET/one.asked") --end target" ]
	run -0 --separate-stderr fleet --json
	[ "$(python3 -c "import json, sys; d = json.load(sys.stdin); print(d['common'], d['names'], d['slow'], len(d['members']))" <<< "$output")" = "path ['iqn.far:3260'] 2 4" ]
}

@test "a host that says nothing is named, the others are judged all the same, exit 1" {
	printf '#!/bin/sh\necho "fabtune: no iSCSI session is logged in" >&2; exit 2\n' > "$FLEET/two"
	run -1 --separate-stderr fleet
	[[ $output == *"1 of 2 are slow"* ]]
	[[ $output == *"two: Look at the sessions"* ]]
}

@test "more hosts than Ansible takes at once by default begin together" {
	local host
	printf '#!/bin/sh\ndate +%%s.%%N >> "%s/begun"; sleep 4; cat "%s/one.said"\n' "$FLEET" "$FLEET" > "$FLEET/slow"
	chmod +x "$FLEET/slow"
	{
		printf '[targets]\nstore fabtune_executable=%s/store\n[initiators]\n' "$FLEET"
		for host in {1..12}; do echo "h$host fabtune_executable=$FLEET/slow"; done
		printf '[all:vars]\nansible_connection=local\n'
	} > "$FLEET/many.ini"
	run -0 --separate-stderr /usr/bin/python3 -m fabtune why --fleet "$FLEET/many.ini" --for 4s
	[[ $output == *"12 of 24 are slow"* ]]
	# None waited for another's end.
	sort -n "$FLEET/begun" | awk '{ last = $1; if (NR == 1) first = $1 } END { exit !(NR == 12 && last - first < 4) }'
}

@test "an inventory without the groups is refused before anything is asked" {
	printf '[initiators]\none\n' > "$FLEET/short.ini"
	run -2 /usr/bin/python3 -m fabtune why --fleet "$FLEET/short.ini"
	[[ $output == *"no host in the group 'targets'"* ]]
	run -2 /usr/bin/python3 -m fabtune why sda --fleet "$FLEET/hosts.ini"
}

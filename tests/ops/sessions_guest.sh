#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Many real sessions with one LIO target, and what each verb takes and says of them.
#   sessions_guest.sh COUNT
set -euo pipefail
export PYTHONPATH=/fabtune/userspace COUNT=$1
python3 -m fabtune.lab.guest up --rtt 1ms --size-mib 64
iscsiadm -m discovery -t st -p 10.2.0.1 > /dev/null
iscsiadm -m node -o update -n node.session.nr_sessions -v "$COUNT"
iscsiadm -m node --login > /tmp/login.log 2>&1 || { tail -3 /tmp/login.log; exit 1; }
all() { [ "$(find /sys/block -name 'sd*' | wc -l)" -eq "$COUNT" ]; }
for _ in $(seq 600); do all && break; read -rt 0.5 <> <(:) || true; done
all
python3 - <<'PYTHON'
import json, os, re, resource, subprocess
from pathlib import Path

count = int(os.environ["COUNT"])

def fabtune(*words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(["python3", "-m", "fabtune", *words], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert "Traceback" not in done.stderr, done.stderr
    print(f"fabtune {' '.join(words)}: exit {done.returncode}, {cpu_s:.1f} s of CPU", flush=True)
    found[words[0]] = round(cpu_s, 2)
    return done

found = {}
facts = json.loads(fabtune("show", "--json").stdout)
assert len(facts["sessions"]) == count and len({one["place"] for one in facts["sessions"]}) == count
disks = {lun for one in facts["sessions"] for lun in one["luns"]}
assert len(disks) == count
affine = [one for one in facts["readings"] if one["tunable"] == "block.rq_affinity"]
assert {one["device"]["label"] for one in affine} >= disks, len(affine)
rows = json.loads(fabtune("plan", "wan", "--rtt", "50ms", "--rate", "100mbit", "--json").stdout)["rows"]
mine = [one for one in rows if one["tunable"] == "block.read_ahead_kb"]
assert len({one["identity"] for one in mine}) == count, mine[:2]
text = fabtune("export", "--textfile", "-").stdout
assert len(re.findall(r'^fabtune_session_state{.*state="LOGGED_IN"} 1$', text, re.MULTILINE)) == count
assert len(re.findall(r"^fabtune_tcp_rtt_seconds{", text, re.MULTILINE)) == count
assert fabtune("verify").returncode == 0
assert fabtune("lint", "--json").returncode in (0, 3)
# Nothing loads them: that is what there is to say.
assert fabtune("why", "--json").returncode in (0, 5)
Path("/results/figures-sessions.json").write_text(json.dumps({"sessions": count, "cpu_s_under_uml": found}) + "\n")
print(f"right with {count} sessions")
PYTHON

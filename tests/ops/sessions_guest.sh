#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Many real sessions with one LIO target, and what each verb takes and says of them: CPU seconds, and those of the guest's
# clock, which in a guest with the virtual one are its instructions, a thousand million to the second.
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
insmod /fabtune/kmod/fabstat.ko
# The module lists what had a request since then.
find /sys/block -name 'sd*' -printf '/dev/%f\n' | xargs -I{} dd if={} of=/dev/null bs=4k count=1 iflag=direct status=none
python3 - <<'PYTHON'
import json, os, re, resource, subprocess, time
from pathlib import Path

count = int(os.environ["COUNT"])

def fabtune(*words):
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(["python3", "-m", "fabtune", *words], capture_output=True, text=True)
    after, took_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began_s
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert "Traceback" not in done.stderr, done.stderr
    print(f"fabtune {' '.join(words)}: exit {done.returncode}, {cpu_s:.1f} s of CPU, {took_s:.1f} s", flush=True)
    found[" ".join(words[:2])] = {"cpu_s": round(cpu_s, 2), "took_s": round(took_s, 2)}
    return done

found = {}
shown = fabtune("show", "--json").stdout
facts = json.loads(shown)
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
assert len(json.loads(fabtune("stat", "--json").stdout)["devices"]) >= count
assert fabtune("lint", "--json").returncode in (0, 3)
Path("/tmp/facts.json").write_text(shown)
assert fabtune("lint", "/tmp/facts.json", "--json").returncode in (0, 3)
# Nothing loads them: that is what there is to say.
assert fabtune("why", "--for", "1s", "--json").returncode in (0, 5)
Path("/results/figures-sessions.json").write_text(json.dumps({"sessions": count, "verbs": found}) + "\n")
print(f"right with {count} sessions")
PYTHON

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What a newcomer types on the host after `apt install`, in a guest that booted what newcomer.sh installed.
set -eu
. /root/common
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
# The lab's own, which this host would not have.
rm -f /usr/local/bin/fabtune
hash -r
[ "$(command -v fabtune)" = /usr/bin/fabtune ]

fabtune doctor > /results/doctor-before && fail "ready without the module" || [ $? -eq 4 ]
grep -q "to do: modprobe fabstat" /results/doctor-before
modprobe fabstat
fabtune doctor > /results/doctor || { cat /results/doctor; fail "doctor: not ready"; }
fabtune stat --json > /results/stat.json
fabtune plan wan --rtt 50ms --rate 1gbit > /results/plan
grep -q tcp.rmem_max /results/plan

# What is in force stays in force, and whoever installs fabtune again can take it back.
before=$(cat /proc/sys/net/ipv4/tcp_rmem)
fabtune apply wan --yes --role initiator --rtt 50ms --rate 1gbit > /results/apply || [ $? -eq 4 ]
inforce=$(cat /proc/sys/net/ipv4/tcp_rmem)
[ "$before" != "$inforce" ]
apt-get -y -q purge fabtune > /results/purge 2>&1
[ "$(cat /proc/sys/net/ipv4/tcp_rmem)" = "$inforce" ]
grep -q "values that fabtune wrote stay in force" /results/purge
grep -q "/var/lib/fabtune stays" /results/purge
dpkg -i /root/debs/fabtune_*.deb > /dev/null
fabtune revert > /results/revert || [ $? -eq 4 ]
[ "$(cat /proc/sys/net/ipv4/tcp_rmem)" = "$before" ]

# A kernel that takes only what somebody it trusts has signed refuses the module; that is said.
rmmod fabstat
echo 1 > /sys/module/module/parameters/sig_enforce
! modprobe fabstat 2> /dev/null || fail "an untrusted signature was taken"
fabtune stat 2> /results/refused && fail "stat without a module"
grep -q "mokutil --import /var/lib/dkms/mok.pub" /results/refused || { cat /results/refused; fail "why the module is refused"; }

apt-get -y -q purge fabtune fabstat-dkms fabtune-doc > /results/purge-all 2>&1 || { cat /results/purge-all; fail "purge"; }
left=$(ours | grep -v "^/job" || true)
[ -z "$left" ] || fail "left behind: $left"
echo "a newcomer's host: right"

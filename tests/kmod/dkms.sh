#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# dkms.sh ROOT TOP WORK: in a copy of the Debian root ROOT, made in the empty directory WORK, installs TOP as a user
# would, and has DKMS build, sign, install and remove the module.  Runs as root in a mount namespace of its own, with
# which the copy vanishes.
set -e
root=$1
top=$2
work=$3
mount -t tmpfs -o size=3g tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" "$work/root"
mount --bind /dev "$work/root/dev"
mount -t proc proc "$work/root/proc"
cp /etc/resolv.conf "$work/root/etc/resolv.conf"
make -s -C "$top" install "DESTDIR=$work/root" PREFIX=/usr/local
chroot "$work/root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive sh -ec '
	quietly() { "$@" > /tmp/log 2>&1 || { tail -20 /tmp/log; echo "failed: $*"; exit 1; }; }
	quietly apt-get update -q
	quietly apt-get install -y -q --no-install-recommends dkms openssl
	kernel=$(ls /lib/modules | head -1)
	version=$(ls -d /usr/src/fabstat-*)
	version=${version##*-}
	quietly dkms add "fabstat/$version"
	quietly dkms install "fabstat/$version" -k "$kernel"
	module=$(modinfo -k "$kernel" -F filename fabstat)
	[ "${module#*/updates/dkms/}" != "$module" ] || { echo "installed as $module"; exit 1; }
	[ "$(modinfo -F version "$module")" = "$version" ] || { echo "$module is not version $version"; exit 1; }
	[ -n "$(modinfo -F signer "$module")" ] || { echo "$module is not signed"; exit 1; }
	quietly dkms remove "fabstat/$version" --all
	[ ! -e "$module" ] || { echo "$module is still there"; exit 1; }
'

#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# newcomer.sh ROOT DEBS OLDER WORK: in a copy of the bare Debian root ROOT, made in the empty directory WORK, does with the
# packages in DEBS what people do: installs them over the version before (OLDER), removes, installs and purges them.
# Leaves the installed root as WORK/root.squashfs for a guest.  Runs as root in a mount namespace of its own.
set -e
root=$1 debs=$2 older=$3 work=$4
mkdir "$work/upper" "$work/overlay" "$work/root"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/overlay" "$work/root"
mount --bind /dev "$work/root/dev"
mount -t proc proc "$work/root/proc"
cp /etc/resolv.conf "$work/root/etc/resolv.conf"
mkdir "$work/root/root/debs" "$work/root/root/older"
cp "$debs"/*.deb "$work/root/root/debs/"
cp "$older"/*.deb "$work/root/root/older/"
inside() {
	chroot "$work/root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive SUDO_FORCE_REMOVE=yes sh -ec "$1"
}
cat > "$work/root/root/common" <<-'SCRIPT'
	quietly() { "$@" > /root/log 2>&1 || { tail -40 /root/log; echo "failed: $*"; exit 1; }; }
	fail() { echo "failed: $*"; exit 1; }
	# What the tools keep for themselves changes with any package.
	list() {
		find / -xdev \( -path /proc -o -path /dev -o -path /sys -o -path /tmp -o -path /run -o -path /root -o -path /var/lib/apt \
			-o -path /var/cache -o -path /var/log -o -path /var/lib/dpkg -o -path /var/lib/systemd \) -prune -o ! -name '*.pyc' \
			! -name __pycache__ -print | sort
	}
	ours() { find / -xdev \( -path /proc -o -path /sys -o -path /root -o -path /var/lib/apt -o -path /var/cache -o -path /var/log \) -prune \
		-o \( -name '*fabtune*' -o -name '*fabstat*' \) -print; }
	apt="apt-get -y -q -o APT::Install-Recommends=true -o Dpkg::Use-Pty=0"
SCRIPT

inside '
	. /root/common
	quietly apt-get update -q
	list > /root/before
	dpkg --verify > /root/verified || true
	kernel=$(ls /lib/modules | head -n 1)
	# The headers of the kernel that the root has: a newcomer has those of the one that runs.
	quietly $apt install "linux-headers-$kernel" /root/older/*.deb
	[ "$(dpkg-query -W -f "\${Version}" fabtune)" = 0.1.9 ] || fail "the older version"
	dkms status | grep -q "^fabstat/0.1.9, $kernel, .*: installed" || fail "dkms: $(dkms status)"
	mkdir -p /var/lib/fabtune/journal /etc/fabtune/profiles
	chmod 700 /var/lib/fabtune /var/lib/fabtune/journal
	echo "summary = \"ours\"" > /etc/fabtune/profiles/ours.toml
	quietly $apt install /root/debs/*.deb
	version=$(dpkg-query -W -f "\${Version}" fabtune)
	dkms status | grep -q "^fabstat/$version, $kernel, .*: installed" || fail "dkms: $(dkms status)"
	! dkms status | grep -q 0.1.9 || fail "dkms still has the older one: $(dkms status)"
	[ ! -e /usr/src/fabstat-0.1.9 ] || fail "/usr/src/fabstat-0.1.9 is still there: $(find /usr/src/fabstat-0.1.9)"
	[ -s /etc/fabtune/profiles/ours.toml ] || fail "an upgrade took the own profile"
	dpkg --verify fabtune fabstat-dkms fabtune-doc
	[ "$(fabtune --version)" = "fabtune $version" ] || fail "$(fabtune --version)"
	fabtune profiles | grep -q "^ours " || fail "no own profile"
	[ "$(modinfo -k "$kernel" -F version fabstat)" = "$version" ] || fail "$(modinfo -k "$kernel" fabstat)"
	[ -n "$(modinfo -k "$kernel" -F signer fabstat)" ] || fail "fabstat is not signed"
	systemctl --root=/ list-unit-files --state=enabled --no-legend 2>/dev/null | grep fabtune && fail "a unit of fabtune is enabled"
	rm /etc/fabtune/profiles/ours.toml
'
# Lazily: what a maintainer's script has left running may end a moment later.
umount --lazy "$work/root/proc" "$work/root/dev"
mksquashfs "$work/root" "$work/root.squashfs" -noappend -no-progress -no-xattrs -noI -noD -noF -noX -wildcards -e 'usr/lib/gcc' 'usr/libexec/gcc' \
	'usr/lib/linux-kbuild-*' 'usr/src/linux-*' 'var/cache/*' 'boot/*' > "$work/mksquashfs.log" 2>&1
truncate --size=%128M "$work/root.squashfs"
mount --bind /dev "$work/root/dev"
mount -t proc proc "$work/root/proc"
inside '
	. /root/common
	quietly $apt remove fabtune fabstat-dkms fabtune-doc
	[ -d /var/lib/fabtune ] || fail "remove took the journal"
	[ ! -e /usr/bin/fabtune ] && [ ! -e /usr/lib/fabtune ] || fail "left after remove: $(find /usr/lib/fabtune)"
	! modinfo -k "$(ls /lib/modules | head -n 1)" fabstat 2> /dev/null || fail "fabstat is still there"
	# No firmware here has Secure Boot: what stands in for mokutil says what it would say there.
	mkdir /root/stand-in
	printf "#!/bin/sh\n[ \$1 = --sb-state ] && echo SecureBoot enabled || echo \$2 is not enrolled\n" > /root/stand-in/mokutil
	chmod +x /root/stand-in/mokutil
	quietly $apt -o DPkg::Path="/root/stand-in:$PATH" install /root/debs/*.deb
	grep -q "^fabstat: mokutil --import /var/lib/dkms/mok.pub " /root/log || { cat /root/log; fail "an unenrolled key is not told"; }
	quietly $apt purge fabtune fabstat-dkms fabtune-doc
	left=$(ours)
	[ -z "$left" ] || fail "left after purge: $left"
	quietly $apt autoremove --purge
	# What apt installed for it is gone as well; what other packages leave behind is not ours.
	list > /root/after
	{ diff /root/before /root/after || true; } > /root/difference
	dpkg --verify > /root/verified.after || true
	cmp /root/verified /root/verified.after || fail "changed: $(diff /root/verified /root/verified.after)"
	! grep -iE "fabtune|fabstat" /root/difference || fail "a difference of ours"
	cat /root/difference
'

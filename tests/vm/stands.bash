# SPDX-License-Identifier: GPL-2.0-or-later
# `load stands`: the emulated path, for files that share a guest.

# stands WORDS...: the path is as WORDS say: made so, with the ends of iSCSI, or shaped so where an earlier file of this guest
# has made it.  It stays; what else a file brings goes when that file ends.
stands() {
	local verb=up
	[ ! -e /run/netns/target ] || verb=path
	python3 -m fabtune.lab.guest $verb "$@"
}

#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock virtual
# The KUnit tests of the module's pure parts, inside the debug kernels (make check-sanitizers); Debian's have no KUnit.

teardown() {
	! [ -e /sys/module/fabstat_test ] || rmmod fabstat_test
}

@test "the pure parts of the module hold in the kernel, too" {
	if ! modprobe -q kunit; then
		case $(uname -r) in
			*-kasan | *-kcsan | *-rt | *-scsi-builtin) echo "a debug kernel without KUnit"; return 1 ;;
		esac
		skip "this kernel has no KUnit"
	fi
	echo "fabstat_kunit begins" > /dev/kmsg
	insmod /fabtune/kmod/fabstat_test.ko
	said=$(dmesg | sed '1,/fabstat_kunit begins/d')
	echo "$said"
	grep -Eq '# fabstat: pass:([0-9]{2}) fail:0 skip:0 total:\1$' <<< "$said"
	grep -q ' ok 1 fabstat$' <<< "$said"
}

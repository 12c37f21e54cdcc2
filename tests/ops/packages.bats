#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# The packages as a newcomer meets them: built, judged by lintian, installed on bare Debian, used, upgraded, purged.
bats_require_minimum_version 1.5.0

setup_file() {
	cd "$BATS_TEST_DIRNAME/../.."
	export OPS_OUT=${OPS_OUT:-$PWD/out/ops/packages} DEBS=$PWD/out/deb
	mkdir -p "$OPS_OUT"
	make -s deb > "$OPS_OUT/deb.log" 2>&1 || { tail -40 "$OPS_OUT/deb.log"; return 1; }
}

setup() {
	cd "$BATS_TEST_DIRNAME/../.."
}

@test "lintian has nothing to say, however pedantic" {
	run -0 lintian --allow-root --pedantic --display-info "$DEBS"/*.changes
	[ -z "$output" ]
}

@test "one tree makes one package, to the byte" {
	sha256sum "$DEBS"/*.deb > "$OPS_OUT/sums"
	make -s deb >> "$OPS_OUT/deb.log" 2>&1
	run -0 sha256sum --check --quiet "$OPS_OUT/sums"
}

@test "no link in the HTML leads nowhere" {
	dpkg-deb --fsys-tarfile "$DEBS"/fabtune-doc_*.deb | tar --extract --directory "$BATS_TEST_TMPDIR"
	cd "$BATS_TEST_TMPDIR/usr/share/doc/fabtune-doc/html"
	run -0 /usr/bin/python3 - <<-'PYTHON'
		import re
		from pathlib import Path
		pages = {path.name: path.read_text() for path in Path().glob("*.html")}
		assert len(pages) > 10
		for name, page in pages.items():
		    for link in re.findall(r'(?:href|src)="(?![a-z]+:)([^"]*)"', page):
		        file, _, place = link.partition("#")
		        if file and not Path(file).exists() or place and f'id="{place}"' not in pages[file or name]:
		            print(f"{name}: {link}")
	PYTHON
	[ -z "$output" ]
}

@test "mandoc has nothing to say of the manual" {
	run -0 /usr/bin/python3 -m pytest -q tests/unit/test_manual.py
	[[ "$output" != *skipped* ]]
}

@test "the RPM spec builds the same tree, and rpmlint has nothing to say" {
	version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' userspace/fabtune/__init__.py)
	mkdir -p "$BATS_TEST_TMPDIR/SOURCES"
	git ls-files -z | tar --create --gzip --null --files-from=- --transform "s,^,fabtune-$version/," \
		--file "$BATS_TEST_TMPDIR/SOURCES/fabtune-$version.tar.gz"
	# Debian's database of rpm knows no packages, and its macros no place for sources.
	PATH=/usr/sbin:/usr/bin:/sbin:/bin rpmbuild -ba --nodeps --define "_topdir $BATS_TEST_TMPDIR" --define "_usrsrc /usr/src" \
		userspace/rpm/fabtune.spec > "$OPS_OUT/rpm.log" 2>&1 || { tail -40 "$OPS_OUT/rpm.log"; false; }
	# What Debian's packages hold: the same names, but for what each distribution has in places of its own.
	rpm -qlp "$BATS_TEST_TMPDIR"/RPMS/noarch/*.rpm > "$BATS_TEST_TMPDIR/rpm"
	for deb in fabtune fabstat-dkms; do dpkg-deb --fsys-tarfile "$DEBS/${deb}_${version}_all.deb" | tar --list; done > "$BATS_TEST_TMPDIR/deb"
	same() { sed -e 's,^\.,,' -e 's,/$,,' -e 's,\.gz$,,' -e 's,/lib/systemd,/usr/lib/systemd,; s,^/usr/usr,/usr,' "$1" |
		grep -E '^/usr/(bin|src|lib/fabtune|share/man)/' | sort -u; }
	diff <(same "$BATS_TEST_TMPDIR/rpm") <(same "$BATS_TEST_TMPDIR/deb" | grep -vE '^/usr/share/man(/man[578])?$')
	# What runs on after an upgrade does so with the new program, and nothing is removed while an apply waits.
	scripts=$(rpm -qp --scripts "$BATS_TEST_TMPDIR"/RPMS/noarch/fabtune-"$version"-*.rpm)
	restarted=$(grep -o 'try-restart.*guard.service' <<< "$scripts" | xargs -n 1 | sed 1d | sort)
	[ "$restarted" = "$(grep -L '^Type=oneshot' userspace/systemd/*.service | sed 's,.*/,,' | sort)" ]
	[[ "$scripts" == *"waits for its confirmation"* ]]
	run rpmlint --config userspace/rpm/rpmlint.toml userspace/rpm/fabtune.spec "$BATS_TEST_TMPDIR"/RPMS/noarch/*.rpm "$BATS_TEST_TMPDIR"/SRPMS/*.rpm
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"0 errors, 0 warnings"* ]]
}

@test "TAB completes in zsh and fish too" {
	for shell in zsh fish; do
		command -v "$shell" || skip "$shell is not installed"
		run -0 /usr/bin/python3 tests/host/completion.py "$shell" 'fabtune expl^tcp.wmem_m^' 'fabtune apply wan --confirm-w^60s --scope=con^'
		[ "${lines[0]}" = "explain tcp.wmem_max" ]
		[ "${lines[1]}" = "apply wan --confirm-within 60s --scope=connection" ]
	done
}

@test "bare Debian 12: install over an older version, boot, doctor, plan, apply, purge; nothing is left" {
	/usr/bin/python3 tests/ops/newcomer.py bookworm "$DEBS" "$OPS_OUT/bookworm" > "$OPS_OUT/bookworm.log" 2>&1 || { tail -60 "$OPS_OUT/bookworm.log"; false; }
}

@test "bare Debian 13: install over an older version, boot, doctor, plan, apply, purge; nothing is left" {
	/usr/bin/python3 tests/ops/newcomer.py trixie "$DEBS" "$OPS_OUT/trixie" > "$OPS_OUT/trixie.log" 2>&1 || { tail -60 "$OPS_OUT/trixie.log"; false; }
}

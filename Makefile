# SPDX-License-Identifier: GPL-2.0-or-later
# Everything starts here: `make help` lists the targets.  Each target installs what it needs.

PREFIX ?= /usr/local
DESTDIR ?=
PYTHON := /usr/bin/python3
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' userspace/fabtune/__init__.py)
OUT := out
UNITS := $(PREFIX)/lib/systemd/system
RULES := $(PREFIX)/lib/udev/rules.d
SOS := $(PREFIX)/lib/python3/dist-packages/sos/report/plugins
CASES ?= 1000000
SEED ?= 1
SEQUENCES ?= 1000
REQUESTS ?= 1000000
FABTUNE := userspace/bin/fabtune

# What the package itself runs with, what boots guests, and what the tests need beside them.
PACKAGES_RUN := python3 python3-attr python3-cattr python3-rich python3-jinja2 python3-markupsafe
PACKAGES_LAB := qemu-system-x86 mmdebstrap squashfs-tools cpio kmod xz-utils util-linux debian-archive-keyring
PACKAGES_TEST := ansible-core python3-yaml python3-pytest python3-pytest-xdist python3-hypothesis python3-numpy python3-scipy python3-venv mypy shellcheck bats gcc libc6-dev fio \
	iproute2 iperf3 ethtool procps tshark python3-prometheus-client
# What judges rules and units.
PACKAGES_OPS := prometheus systemd
# What reads the module's source: checkpatch.pl and Coccinelle's rules come with the kernel's.
PACKAGES_KMOD := linux-source perl sparse coccinelle
# What builds the packages, and what judges them, the manual and completion.
PACKAGES_DEB := dpkg-dev debhelper dh-dkms dh-python pandoc clang libbpf-dev
PACKAGES_JUDGE := lintian rpm rpmlint mandoc zsh fish

.DEFAULT_GOAL := help
BENCHES := bench-plan bench-module bench-wan bench-power bench-experiments bench-in-place bench-cut-off bench-why bench-tune \
	bench-guard bench-told bench-share bench-latency bench-connection bench-depth-layout
.PHONY: help demo demo-runs demo-in-place figures check check-fast check-static check-unit compiled check-host check-vm check-lab \
	check-kmod check-full check-ops check-harm check-model check-sanitizers fuzz bench $(BENCHES) lab-shell lab-debug-kernels \
	beside-guests in-guests lab-image lab-uml-virtual deb devtools bpf bpf-if-possible deps-lab deps-ops deps-test install install-doc uninstall \
	clean clean-bpf distclean

help: ## list the targets, one line each
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s%s\n", $$1, $$2 }' Makefile

# Its runs leave a core idle at their end, as the picture's one would.
demo: deps-lab ## tune a real iSCSI session over an emulated WAN and show the effect (out/demo/)
	@$(MAKE) --no-print-directory --jobs 2 demo-runs demo-in-place

demo-runs:
	@$(FABTUNE) run demo --out $(OUT)/demo

demo-in-place:
	@$(PYTHON) tests/bench/demo_in_place.py --out $(OUT)/demo

figures: ## make every table and picture of README and Documentation from Documentation/results/ anew
	@$(PYTHON) tests/bench/figures.py

# Guests wait much of their time, and an image for its archive: what needs neither is tested beside them.
check: deps-lab deps-test devtools compiled ## every part tested, in guests too, what is long in its short form; installs what it needs
	@$(MAKE) --no-print-directory --jobs 2 beside-guests in-guests

beside-guests:
	@$(MAKE) --no-print-directory --output-sync=target check-unit check-static check-host

in-guests:
	@$(MAKE) --no-print-directory lab-image
	@$(MAKE) --no-print-directory check-vm

check-fast: deps-lab deps-test devtools ## the tests that need no guest, side by side
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target check-unit check-static check-host

# Shell scripts are known by their first line, but for what bash reads itself; busybox' shell is checked as dash (SC2187).
check-static: deps-test devtools ## types, style, floors, dead code, shell scripts, and that no figure of the documentation is stale
	mypy
	$(PYTHON) tests/bench/figures.py --check
	$(call devtool,ruff check --quiet .)
	$(call devtool,ruff format --quiet --check .)
	$(call devtool,lint-imports --no-logo)
	$(call devtool,vulture)
	! command -v promtool >/dev/null || promtool test rules userspace/monitoring/fabtune.rules.test.yml
	git ls-files -z | xargs -0 awk 'FNR == 1 && /^#!.*[\/ ](ba|da|k)?sh( |$$)/ { print FILENAME } { nextfile }' | \
		xargs shellcheck --severity=warning --exclude=SC2187 userspace/completions/fabtune

# A file's tests stay together, as they share what it builds once.
PYTEST := $(PYTHON) -m pytest -q --numprocesses 2 --dist loadfile

check-unit: deps-test compiled ## unit tests (pytest), two files at a time
	$(PYTEST) tests/unit

# Some copy the package: what others compile meanwhile would come and go under them.
compiled:
	@$(PYTHON) -m compileall -q userspace

check-host: compiled ## tests of the command line that need neither root nor a guest (bats)
	bats tests/host

check-vm: deps-lab ## tests of the lab and inside guests, three files at a time
	$(PYTHON) tests/vm/run.py --out $(OUT)/check

check-lab: deps-lab ## tests of the lab alone: failures, interrupts, repeats, topologies
	$(PYTHON) tests/vm/run.py --out $(OUT)/check tests/lab/*.bats

check-kmod: deps-lab ## compile the module for 5.10 to 7.2 without a warning; sparse, checkpatch, coccinelle
	$(call install-missing,$(PACKAGES_KMOD))
	$(PYTHON) tests/kmod/source.py

fuzz: deps-test ## 10^6 broken profiles, journals, facts and records behind a guard (CASES=..., SEED=...; out/fuzz/fuzz.json)
	$(PYTHON) tests/fuzz/fuzz.py --cases $(CASES) --seed $(SEED) --out $(OUT)/fuzz

check-full: deps-lab deps-test compiled check-kmod ## unit tests and those inside guests, on every kernel and at full length, and check-ops; hours
	LENGTH=full $(PYTEST) tests/unit
	bats tests/lab-full tests/fleet
	$(PYTHON) tests/vm/run.py --full --out $(OUT)/check-full
	$(MAKE) --no-print-directory check-ops

check-ops: deps-lab deps-test deps-ops ## what a host's operation needs, in guests: metrics, units over boots, packages (out/ops/summary.json; OPS=monitoring for one part)
	$(PYTHON) tests/ops/check_ops.py --out $(OUT)/ops $(OPS)

check-harm: deps-lab ## random sequences on random hosts, kill points and boots (SEQUENCES=1000, SEED=1; out/harm/harm.json); goes on where it stopped
	@mkdir -p $(OUT)/harm
	$(PYTHON) tests/harm/harm.py --sequences $(SEQUENCES) --seed $(SEED) --out $(OUT)/harm

bench: $(BENCHES) ## all long measurements

bench-plan: deps-test ## CPU seconds of plan, show, lint and verify beside 64 sessions, and of --version, against their bars
	$(PYTHON) tests/bench/plan.py

bench-module: deps-lab ## what fabstat.ko costs a request, beside BPF tools, on three kernels (out/bench/module.json); a reading
	$(PYTHON) tests/bench/module.py --out $(OUT)/bench
	$(PYTHON) tests/bench/snapshot.py --out $(OUT)/bench
	$(PYTHON) tests/bench/export.py --out $(OUT)/bench

bench-depth-layout: deps-test ## what one word for the depth costs beside one a queue, on this machine's CPUs (out/bench/depth-layout.json)
	$(PYTHON) tests/bench/depth_layout.py --out $(OUT)/bench

bench-wan: deps-lab ## every shipped experiment over a WAN (wan-*), against untouched and other tuners (out/bench/wan.json)
	$(PYTHON) tests/bench/wan.py --out $(OUT)/bench

bench-power: deps-test ## how often the verdicts of ab, report and compare are right, simulated (out/bench/power.json)
	$(PYTHON) tests/bench/power.py --out $(OUT)/bench

bench-experiments: deps-lab ## every other shipped experiment but the demo, whole (out/bench/NAME)
	@wrong=; for name in $$($(FABTUNE) run | awk 'NR > 2 && !/^( |wan-|demo )/ { print $$1 }'); do \
		$(FABTUNE) run $$name --out $(OUT)/bench/$$name || [ $$? -eq 5 ] || wrong="$$wrong $$name"; \
	done; \
	[ -z "$$wrong" ] || { echo "not as expected:$$wrong" >&2; exit 1; }

bench-in-place: deps-lab ## a mounted, busy session retuned in place beside a re-login, and under faults (out/bench/in-place.json)
	$(PYTHON) tests/bench/in_place.py --out $(OUT)/bench

bench-cut-off: deps-lab ## 100 hosts that an unconfirmed apply cuts off, struck in other ways as well, come back (out/bench/cut-off.json); resumes
	$(PYTHON) tests/bench/cut_off.py --out $(OUT)/bench

bench-why: deps-lab ## whether why names the true limiter and whatif foretells what lifting it brings (out/bench/why.json); resumes
	$(PYTHON) tests/bench/why.py --out $(OUT)/bench

bench-tune: deps-lab deps-test lab-uml-virtual ## what `fabtune tune`, told nothing, reaches on 64 paths beside other ways (out/bench/tune.json; CELLS=6 for the first six); resumes
	$(PYTHON) tests/bench/tune.py --out $(OUT)/bench $(if $(CELLS),--cells $(CELLS))

bench-share: deps-lab lab-uml-virtual ## what `fabtune tune` leaves a neighbour's flow of a line, and how evenly four sessions share one (out/bench/share.json); resumes
	$(PYTHON) tests/bench/share.py --out $(OUT)/bench

bench-latency: deps-lab lab-uml-virtual ## how long short requests take beside a stream, before `fabtune tune` and behind it (out/bench/latency.json; ACCEL=tcg for --goal latency as well); resumes
	$(PYTHON) tests/bench/latency.py --out $(OUT)/bench $(if $(ACCEL),--accel $(ACCEL))

bench-guard: deps-lab lab-uml-virtual ## how soon a load has its line again when its path steps 5, 150, 20 ms under `fabtune guard --heal` (out/bench/path-steps.json; HOLD=3600 for an hour's rest)
	$(PYTHON) tests/bench/path_steps.py --out $(OUT)/bench $(if $(HOLD),--hold $(HOLD))

bench-told: deps-lab lab-uml-virtual ## what lint and `fabtune tune` make of 30 paths that were told wrongly on purpose (out/bench/told.json; CELLS=6 for the first six); resumes
	$(PYTHON) tests/bench/told.py --out $(OUT)/bench $(if $(CELLS),--cells $(CELLS))

bench-connection: deps-lab ## pacing by connection: storage, another flow of the NIC, four sessions on one line (out/bench/connection.json)
	$(PYTHON) tests/bench/connection.py --out $(OUT)/bench

# What nearly every guest of check-vm boots from; one that is there costs nothing.
lab-image: deps-lab
	@$(FABTUNE) lab build

lab-debug-kernels: deps-lab ## build the kernels with sanitizers, PREEMPT_RT and SCSI built in, once (minutes each)
	@for kernel in kasan kcsan rt scsi-builtin; do $(FABTUNE) lab build --suite $$kernel || exit 1; done

lab-uml-virtual: deps-lab ## build User Mode Linux with a virtual clock, on which benches of cells run, once (minutes)
	@$(FABTUNE) lab build --suite uml-virtual

check-sanitizers: lab-debug-kernels ## every suite of the module on those kernels (out/sanitizers/summary.json); goes on where it stopped
	$(PYTHON) tests/vm/sanitizers.py --out $(OUT)/sanitizers

check-model: deps-lab ## the module's books against a model fed by blktrace, on four stacks (REQUESTS=1000000, SEED=1; out/model/model.json); resumes
	$(PYTHON) tests/vm/model.py --requests $(REQUESTS) --seed $(SEED) --out $(OUT)/model

lab-shell: deps-lab ## enter a booted guest with the iSCSI topology up
	@$(FABTUNE) lab shell

# A copy: debhelper leaves its work in debian/.  The sources' times are the changelog's, so that one tree makes one package.
deb: ## build the Debian packages fabtune, fabstat-dkms and fabtune-doc (out/deb)
	$(call install-missing,$(PACKAGES_DEB))
	rm -rf $(OUT)/deb
	mkdir -p $(OUT)/deb/fabtune-$(VERSION)
	git ls-files -z | tar --create --null --files-from=- | tar --extract --directory $(OUT)/deb/fabtune-$(VERSION)
	cd $(OUT)/deb/fabtune-$(VERSION) && PATH=/usr/sbin:/usr/bin:/sbin:/bin dpkg-buildpackage -us -uc
	rm -r $(OUT)/deb/fabtune-$(VERSION)

# Developers' tools that Debian 12 lacks, pinned.  Where pip cannot get them the other checks still run and decide.
devtools:
	@cmp -s .ci/devtools.txt .venv/devtools.txt || { \
		echo "Installing developers' tools into .venv: $$(grep -v '^#' .ci/devtools.txt | tr '\n' ' ')" >&2; \
		$(PYTHON) -m venv .venv && \
		.venv/bin/pip install --quiet --disable-pip-version-check --retries 1 -r .ci/devtools.txt && \
		cp .ci/devtools.txt .venv/; \
	} || echo "They are not to be had here: style, floors and dead code stay unchecked." >&2

# What the kernel runs for connection.*, and to tell the lab's CPU time apart, compiled by clang; without it fabtune paces a
# whole NIC instead.
PACKAGES_BPF := clang libbpf-dev
BPF_OBJECTS := $(patsubst %.c,%.o,$(wildcard userspace/fabtune/bpf/*.bpf.c))

bpf: ## compile what gives single connections their socket options, and what tells iSCSI's queues and the lab's CPU time apart
	$(call install-missing,$(PACKAGES_BPF))
	@$(MAKE) --no-print-directory $(BPF_OBJECTS)

# Complete or not there at all: several makes may run, and guests copy it meanwhile.
%.bpf.o: %.bpf.c
	clang -g -O2 -Wall -Wextra -Wno-unused-parameter -Werror -target bpf -I/usr/include/$$(uname -m)-linux-gnu -c $< -o $@.$$$$ && mv $@.$$$$ $@

deps-lab: bpf

install: bpf-if-possible

bpf-if-possible:
	@$(MAKE) --no-print-directory $(BPF_OBJECTS) || echo "Without clang and libbpf-dev: fabtune will pace NICs, not connections, and look into no iSCSI queue." >&2

clean: clean-bpf

clean-bpf:
	rm -f $(BPF_OBJECTS)

# $(call devtool,command): runs a tool of .venv, if it is the one that is pinned.
devtool = @! cmp -s .ci/devtools.txt .venv/devtools.txt || { echo "$(1)"; PYTHONPATH=userspace .venv/bin/$(1); }

# $(call install-missing,packages): says what it installs, and asks apt only when something is missing.
define install-missing
@missing=; for package in $(1); do \
	dpkg-query -W -f '$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$package"; \
done; \
if [ -n "$$missing" ]; then \
	echo "Installing Debian packages:$$missing" >&2; \
	$(SUDO) apt-get update -q >/dev/null; \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing >/dev/null; \
fi
endef

deps-lab:
	$(call install-missing,$(PACKAGES_RUN) $(PACKAGES_LAB))

deps-ops:
	$(call install-missing,$(PACKAGES_OPS) $(PACKAGES_DEB) $(PACKAGES_JUDGE))

deps-test:
	$(call install-missing,$(PACKAGES_RUN) $(PACKAGES_TEST))

# Where zsh looks differs between distributions.
ZSH_DIR ?= share/zsh/site-functions

# What is installed is everybody's to read, whatever umask root has, made the clone with, or had at an earlier install.
install: ## install the package, its data, manual pages, completion and the module's source (DKMS) under DESTDIR and PREFIX
	install -d $(DESTDIR)$(PREFIX)/lib/fabtune $(DESTDIR)$(PREFIX)/bin $(DESTDIR)/usr/src/fabstat-$(VERSION)
	cp -r --no-preserve=ownership userspace/fabtune userspace/experiments userspace/ansible tunables profiles $(DESTDIR)$(PREFIX)/lib/fabtune/
	find $(DESTDIR)$(PREFIX)/lib/fabtune -name __pycache__ -prune -exec rm -r {} +
	chmod -R u+rwX,go=rX $(DESTDIR)$(PREFIX)/lib/fabtune
	install -m 755 userspace/bin/fabtune userspace/bin/fabtune-pull $(DESTDIR)$(PREFIX)/bin/
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/man/,man5 man7 man8)
	$(PYTHON) userspace/manual/pages.py $(DESTDIR)$(PREFIX)/share/man
	chmod 644 $(DESTDIR)$(PREFIX)/share/man/man[578]/fabtune*.[578]
	install -D -m 644 userspace/completions/fabtune $(DESTDIR)$(PREFIX)/share/bash-completion/completions/fabtune
	install -D -m 644 userspace/completions/_fabtune $(DESTDIR)$(PREFIX)/$(ZSH_DIR)/_fabtune
	install -D -m 644 userspace/completions/fabtune.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/fabtune.fish
	install -m 644 kmod/*.c kmod/*.h kmod/Makefile kmod/Kbuild kmod/dkms.conf $(DESTDIR)/usr/src/fabstat-$(VERSION)/
	install -d $(DESTDIR)$(UNITS) $(DESTDIR)$(RULES) $(DESTDIR)$(PREFIX)/share/fabtune/monitoring
	for unit in userspace/systemd/*.service userspace/systemd/*.socket userspace/systemd/*.timer; do \
		sed 's#@PREFIX@#$(PREFIX)#' $$unit > $(DESTDIR)$(UNITS)/$${unit##*/} && chmod 644 $(DESTDIR)$(UNITS)/$${unit##*/} || exit 1; \
	done
	install -m 644 userspace/systemd/*.rules $(DESTDIR)$(RULES)/
	install -m 644 userspace/monitoring/* $(DESTDIR)$(PREFIX)/share/fabtune/monitoring/
	rm $(DESTDIR)$(PREFIX)/share/fabtune/monitoring/fabtune.rules.test.yml
	install -d $(DESTDIR)$(PREFIX)/share/fabtune/support $(DESTDIR)$(PREFIX)/share/fabtune/container
	install -m 644 userspace/container/Containerfile userspace/container/daemonset.yaml $(DESTDIR)$(PREFIX)/share/fabtune/container/
	install -m 755 userspace/container/on-host $(DESTDIR)$(PREFIX)/share/fabtune/container/
	install -m 644 userspace/support/*.drgn.py $(DESTDIR)$(PREFIX)/share/fabtune/support/
	install -D -m 644 userspace/support/sos_fabtune.py $(DESTDIR)$(SOS)/fabtune.py
	ln -sfn /usr/src/fabstat-$(VERSION) $(DESTDIR)$(PREFIX)/lib/fabtune/kmod
	@echo "Installed fabtune $(VERSION). The module: dkms add fabstat/$(VERSION) && dkms install fabstat/$(VERSION)"

install-doc: ## install the documentation as HTML (needs pandoc)
	install -d $(DESTDIR)$(PREFIX)/share/doc/fabtune-doc/html
	$(PYTHON) Documentation/make_html.py $(DESTDIR)$(PREFIX)/share/doc/fabtune-doc/html
	chmod -R u+rwX,go=rX $(DESTDIR)$(PREFIX)/share/doc/fabtune-doc/html

uninstall: ## remove what install put there; refuses while DKMS has the module or an apply waits for its confirmation
	@sh userspace/support/before-uninstall '$(DESTDIR)' '$(PREFIX)' '$(VERSION)'
	rm -f $(DESTDIR)$(PREFIX)/share/man/man[578]/fabtune*.[578] $(DESTDIR)$(PREFIX)/share/bash-completion/completions/fabtune \
		$(DESTDIR)$(PREFIX)/$(ZSH_DIR)/_fabtune $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/fabtune.fish
	rm -f $(DESTDIR)$(SOS)/fabtune.py $(patsubst userspace/systemd/%,$(DESTDIR)$(UNITS)/%,$(wildcard userspace/systemd/*.service userspace/systemd/*.socket userspace/systemd/*.timer)) \
		$(patsubst userspace/systemd/%,$(DESTDIR)$(RULES)/%,$(wildcard userspace/systemd/*.rules))
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/fabtune-doc/html $(DESTDIR)$(PREFIX)/share/fabtune $(DESTDIR)$(PREFIX)/lib/fabtune \
		$(DESTDIR)$(PREFIX)/bin/fabtune $(DESTDIR)$(PREFIX)/bin/fabtune-pull
	@[ -n '$(DESTDIR)' ] || [ ! -d /run/systemd/system ] || systemctl daemon-reload || true

clean: ## remove what was built in this tree
	rm -rf $(OUT) build .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis tests/unit/bin
	find userspace tests -name __pycache__ -prune -exec rm -r {} +

distclean: clean ## clean, and delete the developers' tools and the lab's cached images
	rm -rf .venv
	@$(FABTUNE) lab clean

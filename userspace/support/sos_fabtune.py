# SPDX-License-Identifier: GPL-2.0-or-later
"""sos report's plugin for fabtune: one file of facts, what was applied, what the module has seen.  No secrets.

Installed as sos/report/plugins/fabtune.py; `sos report -o fabtune` runs it alone.
"""

from sos.report.plugins import IndependentPlugin, Plugin

_NAME = r"(?i)((?:password|passwd|secret)\w*[\"']?[ \t]*[=:][ \t]*)"
# In double quotes, as JSON and TOML have them; to the end of the line; after the name in tgt's and ietd's files.
_SECRETS = (
    (_NAME + r'"(?:[^"\\\n]|\\.)*"', r'\1"******"'),
    (_NAME + r'(?!"\*{6}")[^\s][^\n]*', r"\1******"),
    (r"(?i)((?:incoming|outgoing)user\s+\S+\s+)[^\n]+", r"\1******"),
)


class Fabtune(Plugin, IndependentPlugin):
    """What a bug report about a storage fabric needs."""

    short_desc = "Storage fabrics: tuning, latency, refusals, stuck requests"
    plugin_name = "fabtune"
    profiles = ("storage", "network", "performance")
    packages = ("fabtune",)
    commands = ("fabtune",)

    def setup(self):
        """Name what is collected; each command reads only."""
        self.add_copy_spec(["/var/lib/fabtune/journal", "/var/lib/fabtune/pull.json", "/etc/fabtune",
                            "/etc/default/fabtune-*", "/run/fabtune/verify.json", "/run/fabtune/guard.json",
                            "/etc/sysctl.d/90-fabtune.conf", "/etc/modprobe.d/fabtune.conf",
                            "/etc/udev/rules.d/99-fabtune.rules", "/etc/systemd/network/*-fabtune-*.link",
                            "/etc/systemd/network/*.link.d/50-fabtune.conf",
                            "/sys/module/fabstat/version"])  # fmt: skip
        self.add_cmd_output([
            "fabtune --version", "fabtune show --json", "fabtune lint", "fabtune history", "fabtune verify",
            "fabtune stat --json --all", "fabtune stuck --json", "fabtune export --textfile -",
        ])  # fmt: skip
        self.add_cmd_output("cat /sys/kernel/debug/fabstat/stats", suggest_filename="fabstat-stats")
        # The last one is a pattern: each apply that waits for its confirmation has a unit of its own.
        self.add_journal(units=["fabtune-apply", "fabtune-apply-sessions", "fabtune-apply-late", "fabtune-verify",
                                "fabtune-guard", "fabtune-pull", "fabtune-exporter", "fabtune-reader",
                                "fabtune-unconfirmed*"])  # fmt: skip

    def postproc(self):
        """Take out what a record may hold, should any of the above ever quote one."""
        for secret, masked in _SECRETS:
            for where in (r"/var/lib/fabtune/.*", r"/etc/fabtune/.*", r"/etc/default/fabtune-.*", r"/run/fabtune/.*"):
                self.do_path_regex_sub(where, secret, masked)
            self.do_cmd_output_sub("fabtune", secret, masked)

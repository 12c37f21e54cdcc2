# SPDX-License-Identifier: GPL-2.0-or-later
"""Login options of srp_daemon.conf: the options of its one catch-all rule (``a queue_size=128,ch_count=4``).

Rules for named targets come first and stay untouched; the first rule that matches wins, so the
catch-all stands last.  An empty value means that the rule does not set the option.
"""

from pathlib import Path

from fabtune.errors import FabtuneError, explained
from fabtune.host import files, tree
from fabtune.model.device import Device

# What makes a rule speak of one target only.
_MATCH_KEYS = ("id_ext", "ioc_guid", "dgid", "service_id", "pkey")
# srp_daemon reads no more of a line (rdma-core srp_daemon.c).
_MAX_LINE = 254


def _options(line: str) -> dict[str, str] | None:
    """Return the options of a catch-all allow rule, None for any other line."""
    verb, _, rest = line.strip().partition(" ")
    if verb.lower() != "a" or line.lstrip().startswith("#"):
        return None
    pairs = [part.strip().partition("=") for part in rest.split(",") if part.strip()]
    options = {key.strip(): value.strip() for key, _, value in pairs}
    return None if any(key in options for key in _MATCH_KEYS) else options


def _lines(path: Path) -> list[str]:
    # Other people's comments may be in any encoding: they go back as they came.
    return path.read_text(errors="surrogateescape").splitlines()


def login_options() -> dict[str, str]:
    """Return the login options of the catch-all rule, as srp_daemon gives them to every target."""
    with explained("srp_daemon.conf"):
        for line in _lines(tree.ETC / "srp_daemon.conf"):
            options = _options(line)
            if options is not None:
                return options
    return {}


class _SrpDaemon:
    def read(self, device: Device, key: str) -> str:
        return login_options().get(key, "")

    def write(self, device: Device, key: str, value: str) -> None:
        path = tree.ETC / "srp_daemon.conf"
        with explained(f"srp_daemon.conf: {key}={value}"):
            lines = _lines(path)
            index = next((number for number, line in enumerate(lines) if _options(line) is not None), None)
            options = dict(_options(lines[index]) or {}) if index is not None else {}
            if value:
                options[key] = value
            else:
                options.pop(key, None)
            rule = "a " + ",".join(f"{name}={text}" for name, text in options.items())
            if len(rule) > _MAX_LINE:
                raise FabtuneError(f"{path}: the rule would have {len(rule)} characters; at most {_MAX_LINE} are read")
            if index is not None:
                # A catch-all without options is what no rule at all means too.
                lines[index : index + 1] = [rule] if options else []
            elif options:
                lines.append(rule)
            files.replace(path, "".join(f"{line}\n" for line in lines))


BACKEND = _SrpDaemon()

# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether the next login of a session would present itself as this one's did: the initiator's name and CHAP's secrets.

A target may refuse another name or secret, and then the session does not come back.  No secret gets into a text.
"""

from fabtune.backends import conf
from fabtune.errors import FabtuneError
from fabtune.host import iscsiadm, tree
from fabtune.host.sessions import Session
from fabtune.model.device import Device

# What the kernel shows of a session's login, by root alone, and the record's key that the next one takes it from.
_SENT = {
    "username": "node.session.auth.username",
    "password": "node.session.auth.password",
    "username_in": "node.session.auth.username_in",
    "password_in": "node.session.auth.password_in",
}
_NAMES = {name: key for name, key in _SENT.items() if name.startswith("username")}
_ALGORITHMS, _ALGORITHM = "node.session.auth.chap_algs", "MD5"
_HOST = Device("host", "host", "host")
# What the kernel writes where nothing was set.
_NOTHING = "(null)"


def why_another(session: Session, record: dict[str, str]) -> str:
    """Return what the next login by `record` would send otherwise than the login of `session` did, '' for nothing."""
    name, next_name = _shown(session, "initiatorname"), iscsiadm.initiator_name(record)
    if name and name != next_name:
        return f"it logged in as {name} and would log in again as {next_name or 'nobody'}, which its target may refuse"
    shown = {attribute: _shown(session, attribute) for attribute in _SENT}
    if all(value is None for value in shown.values()):
        return ""
    try:
        secrets = iscsiadm.credentials(session.target, session.portal, session.interface)
    except FabtuneError as error:
        return f"its node record's CHAP settings cannot be read: {error}"
    for attribute, value in shown.items():
        if value is not None and value != secrets.get(_SENT[attribute], ""):
            return f"its record's {_SENT[attribute]} is not what it logged in with, and its target may refuse that"
    return ""


def why_another_by_conf(session: Session) -> str:
    """Return what an iscsid that starts would send otherwise than the login of `session` did, '' for nothing.

    It takes CHAP's names and secrets from the kernel, and what is not there, the algorithms as well, from iscsid.conf
    instead of the record (usr/iscsid.c, sync_session).
    """
    try:
        there = conf.path().exists()
        found = {key: conf.BACKEND.read(_HOST, key) if there else "" for key in (_ALGORITHMS, *_NAMES.values())}
    except FabtuneError as error:
        return f"whether iscsid.conf would change its CHAP cannot be told: {error}"
    for attribute, key in _NAMES.items():
        if _shown(session, attribute) == "" and found[key]:
            return f"it logged in without {key}, and an iscsid that starts takes that from iscsid.conf"
    if not _shown(session, "username"):
        return ""
    try:
        record = iscsiadm.credentials(session.target, session.portal, session.interface)
    except FabtuneError as error:
        return f"its node record's CHAP settings cannot be read: {error}"
    own, general = _algorithms(record.get(_ALGORITHMS, "")), _algorithms(found[_ALGORITHMS])
    if own != general:
        return (
            f"its record's {_ALGORITHMS} is {','.join(own)}, and an iscsid that starts takes {','.join(general)} "
            "from iscsid.conf, which its target may refuse"
        )
    return ""


def _algorithms(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()] or [_ALGORITHM]


def _shown(session: Session, attribute: str) -> str | None:
    """Return an attribute of `session`, None where this kernel or user does not get it."""
    text = tree.read_text(session.directory / attribute)
    return "" if text == _NOTHING else text

# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether the next login of a session would present itself as this one's did: the initiator's name and CHAP's secrets.

A target may refuse another name or secret, and then the session does not come back.  No secret gets into a text.
"""

from fabtune.errors import FabtuneError
from fabtune.host import iscsiadm, tree
from fabtune.host.sessions import Session

# What the kernel shows of a session's login, by root alone, and the record's key that the next one takes it from.
_SENT = {
    "username": "node.session.auth.username",
    "password": "node.session.auth.password",
    "username_in": "node.session.auth.username_in",
    "password_in": "node.session.auth.password_in",
}
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


def _shown(session: Session, attribute: str) -> str | None:
    """Return an attribute of `session`, None where this kernel or user does not get it."""
    text = tree.read_text(session.directory / attribute)
    return "" if text == _NOTHING else text

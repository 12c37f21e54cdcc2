# SPDX-License-Identifier: GPL-2.0-or-later
"""What protects an iSCSI session: CHAP at login, digests over PDUs, IPsec or WireGuard below TCP."""

import base64
from pathlib import Path

from fabtune.host.run import finish, run
from fabtune.lab.shell import ip_batch, nsenter
from fabtune.lab.topology import INITIATOR_ADDRESS, TARGET, TARGET_ADDRESS

_USER, _PASSWORD = "initiator", "fabtune-lab-chap"
# Keys of a lab that nobody else can reach; fixed, so that the same seed gives the same packets.
_ESP_KEY = "0x" + "5a" * 20
_WIREGUARD_PORT = 51820
_WIREGUARD_KEYS = {"initiator": b"\x48" + b"\x11" * 30 + b"\x51", "target": b"\x50" + b"\x22" * 30 + b"\x52"}
_WIREGUARD_ADDRESSES = {"initiator": "10.9.0.1", "target": "10.9.0.2"}

# Node record and target settings of each kind.
VALUES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "none": ({}, {}),
    "chap": (
        {
            "node.session.auth.authmethod": "CHAP",
            "node.session.auth.username": _USER,
            "node.session.auth.password": _PASSWORD,
        },
        {"attrib/authentication": "1", "auth/userid": _USER, "auth/password": _PASSWORD},
    ),
    "digests": (
        {"node.conn[0].iscsi.HeaderDigest": "CRC32C", "node.conn[0].iscsi.DataDigest": "CRC32C"},
        {"param/HeaderDigest": "CRC32C", "param/DataDigest": "CRC32C"},
    ),
    "ipsec": ({}, {}),
    "wireguard": ({}, {}),
}


def protect_path(kind: str) -> str | None:
    """Protect what travels between initiator and target below TCP; return where the target is then to be reached.

    None: where it was.
    """
    if kind == "ipsec":
        _ipsec()
    return _wireguard() if kind == "wireguard" else None


def _ipsec() -> None:
    """AES-128-GCM in transport mode, both directions, every packet between the two addresses."""
    run(["modprobe", "esp4"], what="loading esp4")
    # What udev loads on a host whose CPU has AES; without it ESP computes in plain C.
    finish(["modprobe", "--quiet", "aesni_intel"])
    ends = ((INITIATOR_ADDRESS, TARGET_ADDRESS), (TARGET_ADDRESS, INITIATOR_ADDRESS))
    for namespace, own in ((None, INITIATOR_ADDRESS), (TARGET, TARGET_ADDRESS)):
        lines = []
        for source, destination in ends:
            pair = f"src {source} dst {destination}"
            cipher = f"aead rfc4106(gcm(aes)) {_ESP_KEY} 128"
            lines.append(f"xfrm state add {pair} proto esp spi 0x1001 mode transport {cipher}")
            way = "out" if source == own else "in"
            lines.append(f"xfrm policy add {pair} dir {way} tmpl {pair} proto esp mode transport")
        ip_batch(namespace, lines)


def _wireguard() -> str:
    run(["modprobe", "wireguard"], what="loading wireguard")
    places = {"initiator": (None, "target", TARGET_ADDRESS), "target": (TARGET, "initiator", INITIATOR_ADDRESS)}
    public = {name: _key_file(name) for name in places}
    for name, (namespace, peer, peer_address) in places.items():
        ip_batch(namespace, ["link add wg0 type wireguard"])
        words = [
            "private-key", f"/run/{name}.key", "listen-port", str(_WIREGUARD_PORT), "peer", public[peer],
            "endpoint", f"{peer_address}:{_WIREGUARD_PORT}", "allowed-ips", f"{_WIREGUARD_ADDRESSES[peer]}/32",
        ]  # fmt: skip
        run([*nsenter(namespace), "wg", "set", "wg0", *words], what="setting WireGuard up")
        ip_batch(namespace, [f"addr add {_WIREGUARD_ADDRESSES[name]}/24 dev wg0", "link set wg0 up"])
    return _WIREGUARD_ADDRESSES["target"]


def _key_file(name: str) -> str:
    """Write the private key of one end and return its public key."""
    private = base64.b64encode(_WIREGUARD_KEYS[name]).decode()
    file = Path(f"/run/{name}.key")
    file.touch(0o600)
    file.write_text(private + "\n")
    return run(["wg", "pubkey"], what="deriving a public key", stdin=private).strip()

# SPDX-License-Identifier: GPL-2.0-or-later
"""Fuzzed journals: read, verified and taken back.  Whatever they say, only values of the vocabulary are written."""

import json
import random
from pathlib import Path
from typing import Any

import hosttree
import mutate
import world
from bench import Bench, Files, claim

_FILE = "20260101T000000Z-000.jsonl"
_BOOT = "11111111-2222-3333-4444-555555555555"
_FORGED_KEYS = (
    "../../../../etc/passwd", "/etc/passwd", "queue/../../../../etc/iscsi/iscsid.conf", "kernel.core_pattern",
    "net.ipv4.ip_forward", "net.ipv4.tcp_rmem[9]", "net.ipv4.tcp_rmem[0]", "enable", "param/../enable",
    "device/delete", "attrib/../../enable", "etc/passwd", "etc/sysctl.d/90-fabtune.conf", "etc/sysctl.d/../passwd",
    "node.session.auth.password", "node.startup", "node.name", "rings.rx", "kind", "maxrate", "congctl",
    "InitiatorName", "attributes/x", "param/InitialR2T",
)  # fmt: skip
_FORGED_DEVICES = (
    "host",
    "netns:init",
    "modules",
    f"{hosttree.iqn(1)},tpgt_1",
    "fileio/disk1,",
    "name:eth0,netns:init",
    "x,y,z",
    ",,",
    "",
)


class Journal:
    """One journal file: broken lines, forged keys and devices, old values that no kernel takes."""

    name = "journal"

    def __init__(self, bench: Bench) -> None:
        from fabtune.catalog.tunable import shipped_catalog
        from fabtune.facts.collect import collect
        from fabtune.host.targets import every_scope

        self.bench, self.scopes = bench, every_scope()
        self.allowed = world.allowed_files(bench)
        catalog = shipped_catalog().tunables
        self.keys = {one.key.partition("[")[0].rpartition("/")[2].rpartition(".")[2] for one in catalog.values()}
        self.record_keys = {one.key for one in catalog.values() if one.backend == "record"}
        bench.tools.allowed_record_keys = frozenset(self.record_keys)
        readings = [one for one in collect(catalog.values()).readings if one.value is not None]
        self.steps = [self._step(catalog[one.tunable], one) for one in readings]
        self.steps += self._persisted()

    @staticmethod
    def _step(tunable: Any, reading: Any) -> dict[str, Any]:
        number = reading.value.isdigit()
        return {
            "kind": "write", "boot_id": _BOOT, "tunable": tunable.name, "backend": tunable.backend, "key": tunable.key,
            "device": {name: getattr(reading.device, name) for name in ("scope", "identity", "label")},
            "old": str(int(reading.value) * 2 + 2) if number else reading.value,
            "wrote": reading.value, "effect": tunable.effect, "rounds": tunable.rounds,
        }  # fmt: skip

    @staticmethod
    def _persisted() -> list[dict[str, Any]]:
        host = {"scope": "host", "identity": "host", "label": "host"}
        tpg = {"scope": "tpg", "identity": f"{hosttree.iqn(1)},tpgt_1", "label": "disk1 tpgt_1"}
        rows = [
            ("persist.sysctl.d", "textfile", "etc/sysctl.d/90-fabtune.conf", host, "", "x"),
            ("persist.iscsid.conf", "conf", "node.session.cmds_max", host, "64", "128"),
            ("persist.saveconfig", "saveconfig", "param/FirstBurstLength", tpg, "512", "65536"),
        ]
        return [
            {"kind": "write", "boot_id": _BOOT, "tunable": tunable, "backend": backend, "key": key, "device": device,
             "old": old, "wrote": wrote, "effect": "reboot", "rounds": False}
            for tunable, backend, key, device, old, wrote in rows
        ]  # fmt: skip

    def _lines(self, draw: random.Random) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = [
            {"kind": "begin", "version": 1, "transaction": _FILE[:-6], "time": "2026-01-01T00:00:00Z", "boot_id": _BOOT,
             "kernel": "6.12.1", "fabtune": "1", "profile": "wan", "roles": ["initiator", "target"], "netns": "",
             "rtt_ms": 50.0, "rate_bit_per_s": 1e9}
        ]  # fmt: skip
        for number in range(1, draw.randint(1, 4) + 1):
            step = json.loads(json.dumps(draw.choice(self.steps)))
            if draw.random() < 0.15:
                step["key"] = draw.choice(_FORGED_KEYS)
            if draw.random() < 0.08:
                step["device"] = {
                    "scope": draw.choice(self.scopes),
                    "identity": draw.choice(_FORGED_DEVICES),
                    "label": "forged",
                }
            lines.append(step | {"step": number})
            if draw.random() < 0.3:
                lines.append({"kind": "holds", "step": number, "value": step["wrote"]})
        where = {
            "identity": f"{hosttree.iqn(1)},10.2.0.1:3260,default",
            "label": "l",
            "sid": "1",
            "boot_id": _BOOT,
        }
        session = {"target": hosttree.iqn(1), "portal": "10.2.0.1:3260", "interface": "default"}
        tails: list[dict[str, Any]] = [
            {"kind": "due", "action": "relogin", **where}, {"kind": "pending", "action": "relogin", **where},
            {"kind": "logout", **where, **session}, {"kind": "login", **where, **session},
            {"kind": "claim", **json.loads(json.dumps(draw.choice(self.steps)))},
        ]  # fmt: skip
        lines += draw.sample(tails, draw.choice((0, 0, 1, 2)))
        ends: tuple[tuple[str, ...], ...] = (("applied",), ("applied",), (), ("closed",), ("unknown",))
        return lines + [{"kind": kind} for kind in draw.choice(ends)]

    def draw(self, draw: random.Random) -> Files:
        lines = self._lines(draw)
        for _ in range(draw.choice((0, 1, 1, 2))):
            mutate.break_json(draw.choice(lines), draw, 1)
        data = b"".join(mutate.dump(line, draw) + b"\n" for line in lines)
        action = draw.random()
        if action < 0.25:
            data = mutate.break_bytes(data, draw)
        elif action < 0.35:
            data = mutate.break_lines(data, draw)
        elif action < 0.37:
            data = mutate.noise(draw)
        how = draw.choices((b"undo", b"revert", b"verify", b"history", b"force"), (950, 3, 4, 3, 40))[0]
        return {f"file:state/journal/{_FILE}": data, "how": how} | self._kept_by_others(draw)

    @staticmethod
    def _kept_by_others(draw: random.Random) -> Files:
        """Return, now and then, a file that --persist writes single values into, broken."""
        action = draw.random()
        if action < 0.03:
            return {"file:host/etc/iscsi/iscsid.conf": mutate.break_lines(world.ISCSID_CONF.encode(), draw)}
        if action < 0.08:
            target = mutate.break_json(json.loads(json.dumps(world.SAVED_TARGET)), draw)
            data = mutate.dump(target, draw)
            return {"file:host/etc/target/saveconfig.json": mutate.break_bytes(data, draw) if action < 0.04 else data}
        return {}

    def run(self, files: Files) -> bool:
        how, names = files["how"].decode(), str(self.bench.state)
        before = self._contents()
        if how in ("undo", "force"):
            accepted = self.bench.result(lambda: self._undo(how == "force"), names, bad_input=False) is not None
        else:
            words = {"revert": ("revert", "--json"), "verify": ("verify", "--json"), "history": ("history",)}[how]
            code, _ = self.bench.verb(*words, names=names)
            accepted = code in (0, 3, 4)
        if how in ("verify", "history"):
            claim(not self._outside_journal(), f"{how} wrote {self._outside_journal()}")
        for name in self.bench.watch.written:
            claim(self.allowed.fullmatch(name) is not None, f"it wrote {name}, which no tunable names")
        self._check_contents(before)
        return accepted

    def _undo(self, force: bool) -> bool:
        from fabtune.backends import record
        from fabtune.tune.pending import Leave
        from fabtune.tune.undo import undo

        record.BACKEND.forget()
        undo(None, None, None, "", force, Leave(), lambda _: None)
        return True

    def _outside_journal(self) -> list[str]:
        return [name for name in self.bench.watch.written if not name.startswith(f"{self.bench.state}/")]

    def _contents(self) -> dict[str, bytes]:
        etc = self.bench.host / "etc"
        return {str(path): path.read_bytes() for path in (etc / "iscsi/iscsid.conf", etc / "target/saveconfig.json")}

    def _check_contents(self, before: dict[str, bytes]) -> None:
        """Check that no setting outside the vocabulary changed in a file that others' settings stand in."""
        for name in before.keys() & self.bench.watch.written:
            old, new = (_settings(name, data) for data in (before[name], Path(name).read_bytes()))
            changed = {key for key, value in (old ^ new)}
            claim(changed <= self.record_keys | self.keys, f"it changed {sorted(changed)} in {name}")


def _settings(name: str, data: bytes) -> set[tuple[str, str]]:
    """Return the settings of iscsid.conf or of a saved target, each with its last name alone."""
    text = data.decode(errors="replace")
    if not name.endswith(".json"):
        return {(line.partition("=")[0].strip(), line) for line in text.splitlines()}
    found: set[tuple[str, str]] = set()

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # Which settings a container has is told by the settings.
        found.update((key, repr(value)) for key, value in pairs if not isinstance(value, (dict, list)))
        return dict(pairs)

    json.loads(text, object_pairs_hook=keep)
    return found

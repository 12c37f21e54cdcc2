# SPDX-License-Identifier: GPL-2.0-or-later
"""A value that moves beside the one that is written: a revert gives it back where that was fabtune's doing alone."""

import signal
import time
from pathlib import Path

import hosttree
import pytest
from processes import in_child

from fabtune import backends
from fabtune.cli.main import main
from fabtune.host import tree
from fabtune.model.device import Device
from fabtune.tune import journal, watcher

_PROFILE = """
summary = "a scheduler"
[initiator."block.scheduler"]
value = "mq-deadline"
why = "a test"
"""
_QUEUE = "sys/block/sd1/queue"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tree of a host with a disk without a scheduler."""
    root = hosttree.make(tmp_path / "root", 1)
    hosttree.enter(root, monkeypatch)
    (tmp_path / "mine.toml").write_text(_PROFILE)
    hosttree.put(root / _QUEUE / "scheduler", "[none] mq-deadline")
    return root


def apply(host: Path, *words: str) -> int:
    path = ("--role", "initiator", "--rtt", "1ms", "--rate", "1gbit", *words)
    return main(["apply", str(host.parent / "mine.toml"), *path])


def requests(host: Path) -> str:
    return tree.read_text(host / _QUEUE / "nr_requests") or ""


def set_by_hand(host: Path, value: str = "512") -> None:
    hosttree.put(host / _QUEUE / "nr_requests", value)


def resets_requests(host: Path, monkeypatch: pytest.MonkeyPatch, **by: str) -> None:
    """Have the kernel reset nr_requests `by` each scheduler, as it does."""
    attributes = backends.get("attribute")
    real = attributes.write

    def write(device: Device, key: str, value: str) -> None:
        real(device, key, value)
        if key == "queue/scheduler":
            set_by_hand(host, by[value.replace("-", "_")])

    monkeypatch.setattr(attributes, "write", write)


def test_what_was_left_to_somebody_is_left_to_him_by_every_revert_after_that(host: Path) -> None:
    apply(host)
    set_by_hand(host)
    for _ in range(3):
        assert main(["revert"]) == 3
        assert requests(host) == "512"
    assert main(["revert", "--force"]) == 0
    assert requests(host) == "128"


def test_the_end_of_the_time_to_confirm_leaves_it_to_somebody_however_often_it_tries(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabtune.tune.armed.arm", lambda name: None)
    monkeypatch.setattr("fabtune.tune.confirm.require_way_back", lambda *words: None)
    monkeypatch.setattr("fabtune.host.systemd.manages_host", lambda: False)
    assert apply(host, "--confirm-within", "5s") == 0
    set_by_hand(host)
    end = time.clock_gettime(time.CLOCK_BOOTTIME) + 5.2
    monkeypatch.setattr("fabtune.tune.unconfirmed.now_s", lambda: end)
    monkeypatch.setattr("fabtune.tune.watcher.time.sleep", lambda seconds: None)
    told: list[str] = []
    watcher.watch(told.append)
    assert any("is not tried any more" in one for one in told)
    assert requests(host) == "512"


def test_an_apply_that_was_killed_before_it_wrote_leaves_what_somebody_set_since(host: Path) -> None:
    killed = 0
    while in_child(lambda: apply(host), f"kill:{killed + 1}") == -signal.SIGKILL:
        killed += 1
        if (host / _QUEUE / "scheduler").read_text().strip() == "[none] mq-deadline":
            set_by_hand(host)
            main(["revert"])
            assert requests(host) == "512", killed
        set_by_hand(host, "128")
        main(["revert"])
        hosttree.put(host / _QUEUE / "scheduler", "[none] mq-deadline")
    assert killed > 4


def test_what_a_killed_apply_or_revert_left_beside_goes_back(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's own values: nobody can tell them from somebody's but by what fabtune was about to do."""
    resets_requests(host, monkeypatch, none="64", mq_deadline="256")
    killed = 0
    while in_child(lambda: apply(host), f"kill:{killed + 1}") == -signal.SIGKILL:
        killed += 1
        main(["revert"])
        assert requests(host) == "128", killed
    # The last one was not killed.
    cut = 0
    while in_child(lambda: main(["revert"]), f"kill:{cut + 1}") == -signal.SIGKILL:
        cut += 1
        main(["revert"])
        assert requests(host) == "128", cut
        apply(host)
    assert killed > 4 and cut > 4


def test_what_the_write_back_made_of_it_is_ours_where_its_own_write_was_refused(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resets_requests(host, monkeypatch, none="64", mq_deadline="256")
    apply(host)
    attributes = backends.get("attribute")
    with monkeypatch.context() as refused:
        real = attributes.write

        def write(device: Device, key: str, value: str) -> None:
            if key == "queue/nr_requests":
                raise OSError(22, "Invalid argument")
            real(device, key, value)

        refused.setattr(attributes, "write", write)
        assert main(["revert"]) == 1
    assert requests(host) == "64"
    assert main(["revert"]) == 0
    assert requests(host) == "128"
    assert [one.state for one in journal.transactions()] == ["taken back"]

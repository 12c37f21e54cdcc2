# SPDX-License-Identifier: GPL-2.0-or-later
"""`python3 -m fabtune.lab.guest`: the topology's verbs inside a guest, for scripts and shells."""

import argparse
import sys
from dataclasses import replace

from fabtune.errors import FabtuneError, InputError
from fabtune.lab import fabrics, topology
from fabtune.lab.disks import Disk
from fabtune.model import factors

_OF_PATH = (
    "rtt", "rate", "rate_back", "nic_rate", "buffer", "loss", "loss_model", "jitter", "reorder", "duplicate", "cross",
    "mtu",
)  # fmt: skip
# What every verb has to be told again.
_OF_FABRIC = ("fabric", "target", "sessions", "targets")


def main() -> int:
    """Run one verb: up, path, login, logout."""
    parser = argparse.ArgumentParser(prog="fabtune.lab.guest", allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("up", "path"):
        words = verbs.add_parser(verb, help="create or change the emulated path")
        _add_factors(words, _OF_PATH)
        if verb == "up":
            words.add_argument("--size-mib", type=int, default=1024, help="size of each LUN")
            words.add_argument("--keeps-data", action="store_true", help="let the disk return what was written to it")
            words.add_argument(
                "--tail-delay-ms", type=int, default=0, help="extra time that requests to its last MiB take"
            )
    verbs.add_parser("login", help="log in and print the disk, or the device that joins several")
    verbs.add_parser("logout", help="log out")
    for words in verbs.choices.values():
        _add_factors(words, _OF_FABRIC)
    args = parser.parse_args()
    try:
        _run(args)
    except FabtuneError as error:
        print(f"fabtune.lab.guest: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _add_factors(parser: argparse.ArgumentParser, names: tuple[str, ...]) -> None:
    for name in names:
        factor = factors.FACTORS[name]
        parser.add_argument(
            f"--{name.replace('_', '-')}", default=factor.default, help=factor.summary.replace("%", "%%")
        )


def _run(args: argparse.Namespace) -> None:
    texts = {name: str(value) for name, value in vars(args).items() if name in factors.FACTORS}
    settings = factors.parse(texts, "fabtune.lab.guest")
    if why := topology.impossible(settings):
        raise InputError(why)
    disk = Disk(args.size_mib, args.keeps_data, tail_delay_ms=args.tail_delay_ms) if args.verb == "up" else Disk()
    fabric = fabrics.find(settings.fabric)(settings, disk)
    if args.verb in ("up", "path"):
        # Whatever the seed of the guest brings.
        path = replace(topology.emulated_path(settings), seed=None)
        if args.verb == "up":
            topology.up(path, one_namespace=fabric.ONE_NAMESPACE)
            fabric.start_target()
            fabric.start_initiator()
        else:
            topology.shape(path)
            topology.forget_paths()
    elif args.verb == "login":
        print(*fabric.join(fabric.login()))
    else:
        fabric.part()
        fabric.logout()


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: GPL-2.0-or-later
"""`python3 -m fabtune.lab.guest`: the topology's verbs inside a guest, for scripts and shells."""

import argparse
import sys

from fabtune.errors import FabtuneError
from fabtune.lab import fabrics, topology
from fabtune.lab.disks import Disk
from fabtune.model.units import parse_bit_per_s, parse_bytes, parse_ms, parse_percent


def main() -> int:
    """Run one verb: up, path, login, logout."""
    parser = argparse.ArgumentParser(prog="fabtune.lab.guest", allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("up", "path"):
        words = verbs.add_parser(verb, help="make or change the emulated path")
        words.add_argument("--rtt", default="0ms")
        words.add_argument("--rate", default="1gbit")
        words.add_argument("--loss", default="0%")
        words.add_argument("--loss-model", default="random", choices=("random", "gemodel"))
        words.add_argument("--mtu", type=int, default=1500)
        words.add_argument("--buffer", help="the bottleneck's queue, such as 1MiB; default: never drops")
        if verb == "up":
            words.add_argument("--size-mib", type=int, default=1024)
            words.add_argument("--keeps-data", action="store_true", help="a RAM disk that returns what was written")
            words.add_argument("--tail-delay-ms", type=int, default=0, help="what its last MiB takes longer")
    verbs.add_parser("login", help="log in, print the disk")
    verbs.add_parser("logout", help="log out")
    for words in verbs.choices.values():
        words.add_argument("--fabric", default="iscsi", choices=fabrics.FABRICS)
    args = parser.parse_args()
    chosen = fabrics.find(args.fabric)
    try:
        if args.verb in ("up", "path"):
            path = topology.Path(
                parse_ms(args.rtt), parse_bit_per_s(args.rate), parse_percent(args.loss), args.loss_model, args.mtu,
                parse_bytes(args.buffer) if args.buffer else None,
            )  # fmt: skip
            if args.verb == "up":
                topology.up(path, one_namespace=chosen.ONE_NAMESPACE)
                chosen.start_target(Disk(args.size_mib, args.keeps_data, tail_delay_ms=args.tail_delay_ms))
                chosen.start_initiator()
            else:
                topology.shape(path)
                topology.forget_paths()
        elif args.verb == "login":
            print(chosen.login())
        else:
            chosen.logout()
    except FabtuneError as error:
        print(f"fabtune.lab.guest: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

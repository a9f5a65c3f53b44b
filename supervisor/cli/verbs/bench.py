"""`bench`: how fast this machine is, and how fast a model is on it."""

from __future__ import annotations

import argparse
import os

from supervisor.cli.background import ensure
from supervisor.cli.exits import OK
from supervisor.cli.installing import engine_of
from supervisor.cli.loading import load, parse_target
from supervisor.cli.options import add_background
from supervisor.cli.progress import progress
from supervisor.cli.registry import Verb
from supervisor.cli.render import bold, print_json, print_table, say

VERB = Verb(
    summary="measure how fast this machine, or a model on it, is",
    order=185,
    description="""Without MODEL: time small generated models on the host and on every GPU, so that `plan` says how fast
any model will be. It takes a minute or a few, best while nothing else runs, and is kept. With MODEL: load it, and time
prompts and tokens through the daemon at several depths and with several requests at once, beside what was foretold.""",
    examples=(
        ("bench", "teach the program what this machine does"),
        ("bench owner/repo:Q4_K_M", "prefill and decode of one model"),
        ("bench demo --depth 0,2048 --at-once 1,4", "at these depths and with so many requests at once"),
    ),
)


def _numbers(text: str) -> tuple[int, ...]:
    found = tuple(int(part) for part in text.split(","))
    if min(found) < 0:
        raise argparse.ArgumentTypeError("no number may be below zero")
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", nargs="?", metavar="MODEL", help="a target of `load`; left out: the machine itself")
    parser.add_argument(
        "--depth", type=_numbers, metavar="N[,N…]", default=(0, 1024, 4096), help="tokens before (default: 0,1024,4096)"
    )
    parser.add_argument(
        "--at-once", type=_numbers, metavar="N[,N…]", default=(1, 2, 4), help="requests at once (default: 1,2,4)"
    )
    parser.add_argument("--tokens", type=int, metavar="N", default=32, help="tokens of each answer (default: 32)")
    add_background(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and show."""
    return _model(args) if args.target else _machine(args)


def _machine(args: argparse.Namespace) -> int:
    from supervisor.cli.measuring_here import measure_here  # noqa: PLC0415 - only this needs the engine's parts

    with progress() as report:
        found = measure_here(args.config, args.engine, os.environ, report)
    if args.json:
        print_json({"devices": found})
        return OK
    headers = ("DEVICE", "READS q8_0", "READS q4_K", "MULTIPLIES q8_0", "A LAYER", "A TOKEN")
    print_table(headers, [_machine_row(device, seconds) for device, seconds in found.items()])
    say("These are kept: `plan` says by them how fast a model will be.")
    return OK


def _machine_row(device: str, seconds: dict[str, float]) -> tuple[str, ...]:
    def rate(kind: str, unit: str) -> str:
        value = seconds.get(kind, 0.0)
        return f"{1e-9 / value:.1f} {unit}" if value else "-"

    def time(kind: str) -> str:
        return f"{seconds.get(kind, 0.0) * 1e6:.0f} µs"

    reads = (rate("read:q8_0", "GB/s"), rate("read:q4_K", "GB/s"))
    return (device, *reads, rate("multiply_many:q8_0", "GMAC/s"), time("layer"), time("token"))


def _model(args: argparse.Namespace) -> int:
    from supervisor.cli.benching import at_depths, at_once, foretold  # noqa: PLC0415 - only this needs threads

    with progress() as report:
        daemon = ensure(args, report)
        engine_of(args, daemon, report)
        status = load(daemon, {"target": parse_target(args.target)}, report)
        room = (status.get("n_ctx") or 4096) - args.tokens - 1
        depths = [depth for depth in args.depth if depth < room] or [0]
        alone = at_depths(daemon.client, status["id"], depths, args.tokens, report)
        together = at_once(daemon.client, status["id"], args.at_once, args.tokens, report)
        speed = foretold(daemon.client, args.target)
    if args.json:
        print_json({"model": status["id"], "depths": alone, "at_once": together, "foretold": speed})
        return OK
    print(bold(status["id"]))
    known = speed["decode_tokens_per_second"] if speed else {}
    rows = [
        (
            f"{one['depth']:,}",
            f"{one['prefill_tokens_per_second']:.1f}",
            f"{one['decode_tokens_per_second']:.1f}",
            f"{known[str(one['depth'])]:.1f}" if str(one["depth"]) in known else "-",
        )
        for one in alone
    ]
    print_table(("DEPTH", "PREFILL t/s", "DECODE t/s", "FORETOLD t/s"), rows)
    print()
    shares = [(str(one["requests"]), f"{one['tokens_per_second']:.1f}") for one in together]
    print_table(("AT ONCE", "DECODE t/s, ALL TOGETHER"), shares)
    return OK

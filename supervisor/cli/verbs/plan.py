"""`plan TARGET`: where a model would go, on this machine or on one that one does not have."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
from pathlib import Path

from supervisor.cli.client import Json
from supervisor.cli.daemon import Daemon, connect, explicit_url, find
from supervisor.cli.exits import DOES_NOT_FIT, OK
from supervisor.cli.launching import add_launch_options, add_preference, launch_options, preferred
from supervisor.cli.loading import parse_target
from supervisor.cli.nodes import HERE, name_of
from supervisor.cli.registry import Verb
from supervisor.cli.render import bold, dim, duration, note, print_json, print_table, say, size, token_rate
from supervisor.errors import ClusterOff, RemoteError

VERB = Verb(
    summary="show where a model would go, and why",
    order=180,
    description="""Say where a model would go: devices, layers, context, what every device would hold, who would have to
leave, and why; or why it does not fit, and what would help. Nothing is loaded. A running daemon is asked, so that its
engines count; without one the machine is looked at. In a cluster it is said which node would get it. With options the
plan is of the node that is asked, as a load is.""",
    examples=(
        ("plan owner/repo:Q4_K_M", "here and now"),
        ("plan model.gguf -c 32k", "with options of llama-server"),
        ("plan owner/repo --prefer speed", "which variant of a repository would be the fastest"),
        ("plan qwen3-8b --here", "in a cluster: where it would go on this node"),
        ("plan model.gguf --devices 2x24gb", "on a machine that you do not have"),
    ),
    exits=((4, "the model does not fit"),),
)

_DEVICES = """a machine to plan for instead of this one: a YAML or JSON file, a name such as 2x24gb (docs/devices.md has
all), or - for the output of `devices --json` on standard input"""

_COLUMNS = {  # in llama.cpp's order of allocating; a column without a byte is not shown
    "weights": "WEIGHTS",
    "kv": "KV",
    "recurrent": "STATE",
    "compute": "COMPUTE",
    "output": "OUTPUT",
    "projector": "MMPROJ",
    "draft": "DRAFT",
    "reserve": "RESERVE",
}
_OFFER_HEADERS = ("NODE", "FITS", "LEAVES", "SPEED", "CONTEXT", "FILES")
_GIB = 1 << 30

_SOURCES = {
    "measured": "by what this machine was measured to do",
    "learned": "by what this model was here before",
    "published": "a first guess from published figures: `bench` measures this machine",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help="demo, a path, owner/repo[:quant] of the hub, or a known id")
    parser.add_argument("--devices", metavar="FILE|NAME|-", help=_DEVICES)
    parser.add_argument("--config", metavar="FILE", help="the configuration, where no daemon is asked")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server, where no daemon is asked")
    parser.add_argument("--here", action="store_true", help=HERE)
    add_launch_options(parser)
    add_preference(parser)


def run(args: argparse.Namespace) -> int:
    """Plan and show the result."""
    target, options = parse_target(args.target), launch_options(args)
    daemon = None if args.devices else _daemon(args)
    if daemon and not (args.here or options or preferred(args)) and (chosen := _chosen(daemon, target)) is not None:
        return _show_chosen(chosen, target, as_json=args.json)
    found = _asked(daemon, args, target, options) if daemon else _planned_here(args, target, options)
    if args.json:
        print_json(found)
    else:
        _show_all(found)
    return OK if found["fits"] else DOES_NOT_FIT


def _show_all(found: Json) -> None:
    (_show if found["fits"] else _show_refusal)(found)
    for problem in found["problems"]:
        note(f"{problem['probe']}: {problem['message']}")


def _daemon(args: argparse.Namespace) -> Daemon | None:
    """Return the daemon to ask, if one runs. Raises DaemonVersionMismatch."""
    daemon = connect(args) if explicit_url(args) or find(args) else None
    if daemon and args.engine:
        note("note: a daemon is running and keeps its own engine; not used: --engine")
    return daemon


def _asked(daemon: Daemon, args: argparse.Namespace, target: str, options: Json) -> Json:
    body = {"target": target, "options": options or None, **preferred(args)}
    return daemon.client.post("/api/v1/plan", body, timeout=None)


def _chosen(daemon: Daemon, target: str) -> Json | None:
    """Return which node of the daemon's cluster would be chosen; None where it is in none."""
    try:
        return daemon.client.post("/api/v1/cluster/plan", {"target": target}, timeout=None)
    except RemoteError as error:
        if error.code == ClusterOff.code:
            return None
        raise


def _show_chosen(found: Json, target: str, *, as_json: bool) -> int:
    """Print which node is chosen and why, what each of them offers, and the plan of the one."""
    plan = found["plan"]
    if as_json:
        print_json({**(plan or {}), "cluster": {name: value for name, value in found.items() if name != "plan"}})
    else:
        where = "no node" if found["node"] is None else found["node"]
        say(f"{bold(target)} → {bold(where)}: {found['why']}")
        print_table(_OFFER_HEADERS, [_offer(one) for one in found["offers"]])
        for one in found["offers"]:
            if one["why"] is not None and one["why"] != (plan or {}).get("message"):
                note(f"{one['node']}: {one['why']}")
        print()
        if plan is not None:
            _show_all(plan)
    return OK if found["node"] is not None else DOES_NOT_FIT


def _offer(one: Json) -> tuple[str, ...]:
    fits = {True: "yes", False: "no", None: "-"}[one["fits"]]
    rate = one["tokens_per_second"]
    return (
        name_of({"name": one["node"], "here": one["here"]}),
        fits,
        ", ".join(one["evict_models"]) or "-",
        "-" if rate is None else f"{token_rate(rate)} t/s",
        "-" if one["request_ctx"] is None else f"{one['request_ctx']:,}",
        {True: "here", False: "to download", None: "-"}[one["on_disk"]],
    )


def _planned_here(args: argparse.Namespace, target: str, options: Json) -> Json:
    from supervisor.cli.planning_here import plan_here  # noqa: PLC0415 - 400 ms that a running daemon spares

    return asyncio.run(plan_here(args, target, options, os.environ, Path.cwd()))


def _show(found: Json) -> None:
    parts = found["parts"]
    where = ", ".join(part["name"] for part in parts if part.get("layers", part["total_bytes"]))
    print(f"{bold(found['model'])} on {where}")
    if "layers" not in parts[0]:
        return _show_seat(found)
    shown = [name for name in _COLUMNS if any(part[f"{name}_bytes"] for part in parts)]
    headers = ("DEVICE", "LAYERS", *(_COLUMNS[name] for name in shown), "TOTAL", "LEFT")
    rows = [
        (
            *(part["name"], str(part["layers"] or "-")),
            *(_bytes(part[f"{name}_bytes"] or None) for name in shown),
            *(_bytes(part["total_bytes"]), _bytes(part["left_bytes"])),
        )
        for part in parts
    ]
    print_table(headers, rows)
    print()
    say(_context(found))
    if found["speed"]:
        say(speed_text(found["speed"]))
    _show_why(found)
    print()
    words = [*(f"{name}={value}" for name, value in found["env"].items()), "llama-server", *found["arguments"]]
    print(dim(shlex.join(words)))


def _show_seat(found: Json) -> None:
    """Print the plan of an engine whose parts are its kind's own matter."""
    print_table(("DEVICE", "TOTAL"), [(part["name"], _bytes(part["total_bytes"])) for part in found["parts"]])
    if found.get("ctx_size"):
        print(f"\ncontext: {found['ctx_size']:,} tokens per request")
    _show_why(found)


def _show_why(found: Json) -> None:
    for engine, model in zip(found["evict"], found["evict_models"], strict=True):
        print(f"must leave first: engine {engine} ({model})")
    for reason in found["why"]:
        say(f"- {reason}")


def _context(found: Json) -> str:
    """Format the context: `context: 32,768 tokens per request …`, and that of all slots where each has its own."""
    all_slots = f" ({found['ctx_size']:,} for all slots)" if found["ctx_size"] != found["request_ctx"] else ""
    kinds = dict.fromkeys((found["cache_type_k"], found["cache_type_v"]))
    return (
        f"context: {found['request_ctx']:,} tokens per request{all_slots}, KV cache in {' and '.join(kinds)}; "
        f"wanted {found['wanted_ctx']:,}, at most {found['fitting_ctx']:,} on these devices, "
        f"the model's own {found['native_ctx']:,}"
    )


def speed_text(speed: Json) -> str:
    """Format a foretold speed, and where it comes from."""
    decode = {int(depth): value for depth, value in speed["decode_tokens_per_second"].items()}
    deepest = max(decode)
    behind = f" ({token_rate(decode[deepest])} behind {deepest:,} tokens)" if deepest else ""
    seconds = speed["first_token_seconds"]
    after = f"{seconds:.1f} s" if seconds < 60 else duration(seconds)
    first = f"first token of a prompt of {speed['prompt_tokens']:,} after ≈ {after}"
    return f"speed: ≈ {token_rate(decode[0])} t/s{behind}, {first}; {_SOURCES[speed['from']]}"


def _show_refusal(found: Json) -> None:
    say(found["message"])
    for hint in found["hints"] or ["No smaller context, cache type or quantisation alone would help."]:
        say(f"- {hint}")


def _bytes(count: int | None) -> str:
    """Format bytes as everywhere, but with tenths of a GiB, so that the parts of a large model still sum up."""
    return size(count) if count is None or count < _GIB else f"{count / _GIB:.1f} GiB"

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
from supervisor.cli.launching import add_launch_options, launch_options
from supervisor.cli.loading import parse_target
from supervisor.cli.options import Subparsers, add_common
from supervisor.cli.render import bold, dim, note, print_json, print_table, size

_DESCRIPTION = """Say where a model would go: devices, layers, context, what every device would hold, who would have to
leave, and why; or why it does not fit, and what would help. Nothing is loaded. A running daemon is asked, so that its
engines count; without one the machine is looked at. The exit code is 4 where the model does not fit."""

_PARTS = ("weights", "kv", "recurrent", "compute", "output", "projector", "draft", "reserve", "total", "left")
_HEADERS = (
    *("DEVICE", "LAYERS", "WEIGHTS", "KV", "STATE", "COMPUTE", "OUTPUT", "PROJECTOR", "DRAFT", "RESERVE"),
    *("TOTAL", "LEFT"),
)


def add_parser(subparsers: Subparsers) -> None:
    """Register the verb."""
    parser = subparsers.add_parser("plan", help="where a model would go, and why", description=_DESCRIPTION)
    parser.add_argument("target", metavar="TARGET", help="demo, the path of a .gguf file, or the id of a known model")
    parser.add_argument(
        "--devices", metavar="FILE|NAME", help="the machine to plan for: a profile of docs/devices.md, or its name"
    )
    parser.add_argument("--config", metavar="FILE", help="the configuration, where no daemon is asked")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server, where no daemon is asked")
    add_launch_options(parser)
    add_common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Plan, and show it."""
    target, options = parse_target(args.target), launch_options(args)
    daemon = None if args.devices else _daemon(args)
    found = _asked(daemon, target, options) if daemon else _planned_here(args, target, options)
    if args.json:
        print_json(found)
    elif found["fits"]:
        _show(found)
    else:
        _show_refusal(found)
    return OK if found["fits"] else DOES_NOT_FIT


def _daemon(args: argparse.Namespace) -> Daemon | None:
    """The one to ask; of another version than this command none is."""
    daemon = connect(args) if explicit_url(args) or find(args) else None
    given = [f"--{name}" for name in ("config", "engine") if getattr(args, name)]
    if daemon and given:
        note(f"note: a daemon is running and keeps its own settings; not used: {' '.join(given)}")
    return daemon


def _asked(daemon: Daemon, target: str, options: Json) -> Json:
    return daemon.client.post("/api/v1/plan", {"target": target, "options": options or None}, timeout=None)


def _planned_here(args: argparse.Namespace, target: str, options: Json) -> Json:
    from supervisor.cli.planning_here import plan_here  # noqa: PLC0415 - 400 ms that a running daemon spares

    return asyncio.run(plan_here(args, target, options, os.environ, Path.cwd()))


def _show(found: Json) -> None:
    parts = found["parts"]
    where = ", ".join(part["name"] for part in parts if part["layers"]) or "CPU"
    print(f"{bold(found['model'])} on {where}")
    shown = [name for name in _PARTS if name in {"total", "left"} or any(part[f"{name}_bytes"] for part in parts)]
    headers = [header for header, name in zip(_HEADERS[2:], _PARTS, strict=True) if name in shown]
    rows = [(part["name"], str(part["layers"]), *(size(part[f"{name}_bytes"]) for name in shown)) for part in parts]
    print_table((*_HEADERS[:2], *headers), rows)
    print()
    print(_context(found))
    for engine, model in zip(found["evict"], found["evict_models"], strict=True):
        print(f"leaves first: engine {engine} ({model})")
    for reason in found["why"]:
        print(f"- {reason}")
    print()
    words = [*(f"{name}={value}" for name, value in found["env"].items()), "llama-server", *found["arguments"]]
    print(dim(shlex.join(words)))


def _context(found: Json) -> str:
    all_slots = f", {found['ctx_size']} for all slots" if found["ctx_size"] != found["request_ctx"] else ""
    return (
        f"context per request: {found['request_ctx']}{all_slots} (wanted {found['wanted_ctx']}, native "
        f"{found['native_ctx']}, largest that fits on these devices {found['fitting_ctx']}), "
        f"cache {found['cache_type_k']}/{found['cache_type_v']}"
    )


def _show_refusal(found: Json) -> None:
    print(found["message"])
    if found["shortages"]:
        print()
        rows = [
            (one["device"], *(size(one[f"{name}_bytes"]) for name in ("needed", "usable", "missing")))
            for one in found["shortages"]
        ]
        print_table(("DEVICE", "NEEDED", "FREE", "MISSING"), rows)
    if found["hints"]:
        print()
    for hint in found["hints"]:
        print(f"- {hint}")

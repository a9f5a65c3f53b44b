"""`devices`: what this machine has, and how much of it engines may use. No daemon is asked."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from supervisor.cli.exits import OK
from supervisor.cli.registry import Verb
from supervisor.cli.render import cell, note, print_json, print_table, size
from supervisor.config import Settings, find_config, load_settings
from supervisor.core.devices import Budgets, Device, Machine, budgets
from supervisor.core.devices.describe import as_json
from supervisor.errors import EngineNotFound
from supervisor.llamacpp.locate import locate
from supervisor.probe.drivers import holding
from supervisor.probe.machine import Prober
from supervisor.probe.places import Surroundings
from supervisor.system.paths import Places, places
from supervisor.system.records import living_children

VERB = Verb(
    summary="show GPUs, workers and memory, and what is free",
    order=240,
    description="""Show the devices that llama.cpp can place tensors on, RPC workers of the configuration included, and
the host: total, free, and what is left for engines of this program after others and what is kept back.""",
    examples=(
        ("devices", "what this machine has"),
        ("devices --json > machine.json", "the same, for `plan --devices machine.json` elsewhere"),
    ),
)

_HEADERS = ("NAME", "DEVICE", "BACK END", "GPU", "TOTAL", "FREE", "USABLE", "PER ENGINE", "BUSY", "")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="the configuration file")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server to ask")


def run(args: argparse.Namespace) -> int:
    """Ask the machine and show it."""
    where = places(os.environ)
    settings = load_settings(find_config(args.config, os.environ, Path.cwd(), where.config), os.environ)
    prober = Prober(Surroundings(os.environ))
    machine = prober.machine(engine(where, args.engine or settings.engine.path), settings.devices.rpc)
    found = ours(where, machine, settings)
    if args.json:
        print_json(as_json(machine, found))
        return OK
    print_table(_HEADERS, [*(_row(device, found) for device in machine.devices), _host_row(machine, found)])
    for problem in machine.problems:
        note(f"{problem.probe}: {problem.message}")
    return OK


def engine(where: Places, explicit: str | None) -> Path | None:
    """Return the llama-server in use; None where there is none. Raises EngineUnusable for one that was named."""
    try:
        return locate(where, os.environ, explicit).path
    except EngineNotFound:
        if explicit:
            raise
        return None


def ours(where: Places, machine: Machine, settings: Settings) -> Budgets:
    """Return the memory for engines of this program; what those of a running daemon hold counts as ours."""
    holdings = tuple(holding(pid) for pid in living_children(where.pid_records))
    return budgets(machine, holdings, settings.devices.reserves())


def _row(device: Device, found: Budgets) -> tuple[str, ...]:
    budget = next((one for one in found.devices if one.name == device.name), None)
    shared = "shares the host's memory" if device.shares_host else ""
    return (
        device.name,
        device.description,
        device.backend,
        cell(device.index),
        size(device.total_bytes),
        size(device.free_bytes),
        size(budget.usable_bytes if budget else None),
        size(budget.reserve_bytes if budget else None),
        "-" if device.utilization_percent is None else f"{device.utilization_percent} %",
        shared if budget else "the same GPU as above",
    )


def _host_row(machine: Machine, found: Budgets) -> tuple[str, ...]:
    host = found.host
    sizes = (host.total_bytes, machine.host.available_bytes, host.usable_bytes, host.reserve_bytes)
    return (host.name, "the host", host.backend, "-", *(size(count) for count in sizes), "-", "")

"""A plan without a daemon: for this machine as it is now, or for one that a profile describes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from supervisor.cli.client import Json
from supervisor.cli.configured import in_force_here
from supervisor.cli.piped import piped_bytes
from supervisor.config import find_config
from supervisor.config.faults import option_fault
from supervisor.config.settings import ModelOptions
from supervisor.core.devices import Machine
from supervisor.errors import InvalidRequest
from supervisor.probe.profiles import load_profile, read_profile
from supervisor.service.build import plans_alone, without_daemon
from supervisor.service.resolve import Asked
from supervisor.system.paths import places


async def plan_here(args: argparse.Namespace, target: str, options: Json, env: Mapping[str, str], cwd: Path) -> Json:
    """Return the object that a daemon would answer.

    Raises ProfileInvalid, ConfigError, InvalidRequest and as `Plans.plan`.
    """
    where = places(env)
    settings = in_force_here(find_config(args.config, env, cwd, where.config), env, where).settings
    if args.engine:
        settings = settings.model_copy(update={"engine": settings.engine.model_copy(update={"path": args.engine})})
    machine = _machine(args.devices) if args.devices else None
    asked = Asked(target, None, _checked(options) if options else None, prefer=args.prefer)
    with without_daemon(settings, where, env, machine) as parts:
        return await plans_alone(parts).plan(asked)


def _machine(name: str) -> Machine:
    return read_profile(piped_bytes(), "standard input") if name == "-" else load_profile(name)


def _checked(options: Json) -> ModelOptions:
    try:
        return ModelOptions.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise InvalidRequest(f"{name}: {option_fault(first)}", param=name) from None

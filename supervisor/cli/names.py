"""Names of models for completion: asked of a daemon that runs, within a second; none is started."""

from __future__ import annotations

import argparse
import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from supervisor.cli.client import Json
from supervisor.cli.daemon import find
from supervisor.errors import SupervisorError
from supervisor.system.paths import places

ANSWER_SECONDS = 1.0

_T = TypeVar("_T")
_LOADED_ONLY = frozenset({"unload"})
_BUILT_IN = "demo"


def model_names(verb: str) -> list[str]:
    """Return ids and aliases of models that this verb may be given.

    They come from the daemon, or, where none runs, from the configuration; those that are known after ANSWER_SECONDS.
    """
    return within(ANSWER_SECONDS, _names(verb))


def within(seconds: float, items: Iterable[_T]) -> list[_T]:
    """Return the items that come within this time, and before the work fails; nobody waits for the others."""
    found: list[_T] = []

    def run() -> None:
        with contextlib.suppress(SupervisorError, OSError, LookupError, TypeError, ValueError):
            for item in items:
                found.append(item)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return found[:]


def _names(verb: str) -> Iterator[str]:
    daemon = find(argparse.Namespace(url=None, api_key=None))
    if daemon is not None:
        yield from (name for one in daemon.models if _fits(verb, one) for name in (one["id"], *one["aliases"]))
    elif verb not in _LOADED_ONLY:
        yield _BUILT_IN
        yield from _configured()


def _fits(verb: str, model: Json) -> bool:
    return verb not in _LOADED_ONLY or model["state"] != "unloaded"


def _configured() -> Iterable[str]:
    from supervisor.cli.configured import in_force_here  # noqa: PLC0415 - start-up time
    from supervisor.config import find_config  # noqa: PLC0415 - start-up time
    from supervisor.models.configured import configured_models  # noqa: PLC0415 - as above

    where = places(os.environ)
    found = in_force_here(find_config(None, os.environ, Path.cwd(), where.config), os.environ, where)
    return [name for entry in configured_models(found.settings) for name in (entry.id, *entry.aliases)]

"""Opens what `inspect` and `estimate` are asked about: no daemon, no engine."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from supervisor.cli.configured import in_force_here
from supervisor.cli.loading import parse_target
from supervisor.cli.render import note
from supervisor.models.reader import DEMO, ModelReader
from supervisor.system.paths import places


def reader(args: argparse.Namespace, target: str | None = None) -> ModelReader:
    """Return a reader that knows the ids of the configuration, and the hub, if `target` may need them."""
    where = places(os.environ)
    if target is None or target == DEMO or parse_target(target).startswith("/"):
        return ModelReader(where)
    from supervisor.config import find_config  # noqa: PLC0415 - 150 ms that a path can spare
    from supervisor.files.header_cache import HeaderCache  # noqa: PLC0415 - as above
    from supervisor.hub.access import HubChoices, hub_access  # noqa: PLC0415 - as above
    from supervisor.models.configured import configured_models  # noqa: PLC0415 - as above
    from supervisor.models.fetch import hub_models  # noqa: PLC0415 - as above

    file = find_config(getattr(args, "config", None), os.environ, Path.cwd(), where.config)
    settings = in_force_here(file, os.environ, where).settings
    access = hub_access(os.environ, HubChoices(**settings.hub.model_dump()))
    hub = hub_models(access, where, HeaderCache(where.cache / "headers"))
    origins = {entry.id: entry.origin for entry in configured_models(settings) if entry.origin is not None}
    return ModelReader(where, origins, hub, lambda text: note(f"note: {text}"))

"""Opens what `inspect` and `estimate` are asked about: no daemon, no engine."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from supervisor.headers import DEMO, ModelReader
from supervisor.paths import places


def reader(args: argparse.Namespace, target: str | None = None) -> ModelReader:
    """A reader that knows the ids of the configuration where `target` may be one."""
    where = places(os.environ)
    if target is None or target == DEMO or "/" in target or target.lower().endswith(".gguf"):
        return ModelReader(where)
    from supervisor.config import find_config, load_settings  # noqa: PLC0415 - 150 ms that a path can spare
    from supervisor.targets import configured_models  # noqa: PLC0415 - as above

    file = find_config(getattr(args, "config", None), os.environ, Path.cwd(), where.config)
    settings = load_settings(file, os.environ)
    return ModelReader(where, {entry.id: entry.path for entry in configured_models(settings) if entry.path is not None})

"""Tell apart the configuration of the running daemon and the one that this command would find."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.cli.client import Json
from supervisor.cli.options import command_name
from supervisor.cli.render import note
from supervisor.errors import ConfigError
from supervisor.system.paths import Places, places

if TYPE_CHECKING:
    from supervisor.config.load import Loaded

_NAME = "supervisor.yaml"


def other_configuration(
    status: Json, env: Mapping[str, str], cwd: Path, explicit: str | None = None
) -> tuple[Path, str] | None:
    """Return the file that a daemon started by this command would use, if the running one (`status`) uses another.

    With it, what to tell the user. None: they are the same, or this command finds no file.
    """
    used = (status.get("config") or {}).get("path")
    if not _may_differ(used, env, cwd, explicit):
        return None
    from supervisor.config import find_config  # noqa: PLC0415 - 150 ms that only another file costs

    try:
        found = find_config(explicit, env, cwd, places(env).config)
    except ConfigError:
        return None  # the daemon does not use it; whoever starts one will be told
    if found is None or _same(found, used):
        return None
    me = command_name(env)
    told = (
        f"The running daemon uses {used or 'no configuration file'}, not {found}. "
        f"To change that: `{me} stop`, then `{me} start --config {found}`."
    )
    return found, told


def in_force_here(path: Path | None, env: Mapping[str, str], where: Places) -> Loaded:
    """Return what counts on this host without its daemon: the file, over what its cluster shares as last in force here.

    Raises ConfigError for the file.
    """
    from supervisor.cluster.kept import kept_config  # noqa: PLC0415 - start-up time
    from supervisor.config.load import load  # noqa: PLC0415 - as above
    from supervisor.models.configured import with_shared  # noqa: PLC0415 - as above

    own = load(path, env)
    try:
        return with_shared(own, kept_config(where.cluster))
    except (OSError, ValueError, ConfigError) as error:
        note(f"warning: the cluster's configuration, as it was last in force here, cannot be read: {error}")
        return own


def configuration_of(status: Json) -> str:
    """Return the path of the daemon's configuration file, or words for none."""
    return str((status.get("config") or {}).get("path") or "none; the defaults")


def _may_differ(used: str | None, env: Mapping[str, str], cwd: Path, explicit: str | None) -> bool:
    """Tell whether the first file that might count is not the daemon's; costs a look at a few names."""
    named = explicit or env.get("SUPERVISOR_CONFIG")
    candidates = [Path(os.path.expanduser(named))] if named else [cwd / _NAME, places(env).config / _NAME]
    first = next((path for path in candidates if os.path.isfile(path)), None)
    return first is not None and not _same(first, used)


def _same(path: Path, used: str | None) -> bool:
    try:
        return used is not None and os.path.samefile(path, used)
    except OSError:
        return False

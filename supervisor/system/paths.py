"""The program's folders. Nothing here creates or removes anything: `owned` makes folders.

state    database, endpoint file, pid records, logs   $SUPERVISOR_HOME, else the user's state folder
cache    the built-in model, capability cache          $SUPERVISOR_HOME/cache, else the user's cache folder
engines  engines and what builds leave                 $SUPERVISOR_ENGINES, else the user's cache folder
runtime  sockets, short and private                    $XDG_RUNTIME_DIR, else a private folder in the temp folder
config   supervisor.yaml                               the user's config folder

`Places` is built once from an environment mapping and handed in.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.errors import FolderRefused

_APP = "llama-supervisor"


@dataclass(frozen=True)
class Places:
    """The folders of one installation; all absolute."""

    state: Path
    cache: Path
    engines: Path
    runtime: Path
    config: Path

    @property
    def endpoint_file(self) -> Path:
        """JSON with the running daemon's url, pid, version and start time."""
        return self.state / "endpoint.json"

    @property
    def daemon_lock(self) -> Path:
        """Locked (flock) by the daemon for as long as it lives."""
        return self.state / "daemon.lock"

    @property
    def database(self) -> Path:
        """The file of what the daemon remembers: footprints, load times."""
        return self.state / "state.db"

    @property
    def history(self) -> Path:
        """The history of requests and loads; a file of its own, as it is large and written often."""
        return self.state / "history.db"

    @property
    def captures(self) -> Path:
        """The prompts and answers that were captured; a file of its own, which is there only once there are some."""
        return self.state / "captures.db"

    @property
    def key_file(self) -> Path:
        """The API keys that were added: their hashes, what they may do and have used."""
        return self.state / "keys.json"

    @property
    def daemon_log(self) -> Path:
        """The log of a daemon in the background."""
        return self.state / "logs" / "daemon.log"

    @property
    def chat_history(self) -> Path:
        """The lines that were typed in conversations."""
        return self.state / "chat_history"

    @property
    def chats(self) -> Path:
        """The conversations that were saved without naming a file."""
        return self.state / "chats"

    @property
    def workers(self) -> Path:
        """Folder of a daemon's certificate authority, and of the list of workers that have joined."""
        return self.state / "workers"

    @property
    def cluster(self) -> Path:
        """Folder of this host's part in a cluster."""
        return self.state / "cluster"

    @property
    def worker(self) -> Path:
        """Folder of this host as a worker of another host's daemon."""
        return self.state / "worker"

    @property
    def pid_records(self) -> Path:
        """One JSON file per child."""
        return self.state / "children"

    def engine_log(self, model_id: str) -> Path:
        """Return the rotating log of one model's engine; no other model's, and none of the program's own."""
        name = safe_name(model_id)
        if name != model_id or name in {self.daemon_log.stem, self.cli_errors.stem}:
            name = f"{name[:80]}-{hashlib.sha256(os.fsencode(model_id)).hexdigest()[:8]}"
        return self.state / "logs" / f"{name}.log"

    def engine_logs(self) -> list[Path]:
        """List the logs of engines that are there, the older files of each too."""
        others = (self.daemon_log.name, self.cli_errors.name)
        return [path for path in self.daemon_log.parent.glob("*.log*") if not path.name.startswith(others)]

    @property
    def cli_errors(self) -> Path:
        """The tracebacks of bugs in the command line."""
        return self.state / "logs" / "cli-errors.log"


def places(env: Mapping[str, str]) -> Places:
    """Return the folders that this environment selects."""
    home = _home(env)
    mac = sys.platform == "darwin"
    cache_base = _base(env, "XDG_CACHE_HOME", home / ("Library/Caches" if mac else ".cache"))
    state_base = _base(env, "XDG_STATE_HOME", home / ("Library/Application Support" if mac else ".local/state"))
    config_base = _base(env, "XDG_CONFIG_HOME", home / ("Library/Application Support" if mac else ".config"))
    own = Path(os.path.expanduser(env["SUPERVISOR_HOME"])).absolute() if env.get("SUPERVISOR_HOME") else None
    engines = env.get("SUPERVISOR_ENGINES")
    return Places(
        state=own or state_base / _APP,
        cache=own / "cache" if own else cache_base / _APP,
        engines=Path(os.path.expanduser(engines)).absolute() if engines else cache_base / _APP / "engines",
        runtime=_runtime(env),
        config=config_base / _APP,
    )


def _home(env: Mapping[str, str]) -> Path:
    try:
        return Path(env.get("HOME") or Path.home()).absolute()
    except RuntimeError:  # a user whom the system does not know, as in a container
        raise FolderRefused("Nothing says which folder is this user's home; set HOME.") from None


def safe_name(model_id: str) -> str:
    """Return a file name for a model id: ASCII letters, digits, `.`, `_`, `-`; at most 100 characters."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in "._-" else "_" for c in model_id)[:100] or "_"


def _base(env: Mapping[str, str], variable: str, default: Path) -> Path:
    given = env.get(variable)
    return Path(given) if given and Path(given).is_absolute() else default


def _runtime(env: Mapping[str, str]) -> Path:
    given = env.get("XDG_RUNTIME_DIR")
    if given and len(given) <= 60 and _is_own_folder(given):
        return Path(given) / "llsup"
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir() if len(tempfile.gettempdir()) <= 60 else "/tmp") / f"llsup-{user}"


def _is_own_folder(path: str) -> bool:
    """Tell whether the folder is this user's: `su` and `sudo` may leave the variable of the one before."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and (not hasattr(os, "getuid") or found.st_uid == os.getuid())

"""Access to the hub: address, token, cache folder, whether the network may be used at all.

Variables and files are those of the hub's own client (`HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME`, …), so that both see the
same cache and the same log-in; the configuration comes first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from supervisor.core.environment import for_downloads

DEFAULT_ENDPOINT = "https://huggingface.co"
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


@dataclass(frozen=True)
class HubChoices:
    """The configuration's choices; None: the environment decides."""

    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)
    cache: str | None = None
    offline: bool = False
    xet: bool = True
    timeout: float = 5.0


@dataclass(frozen=True)
class HubAccess:
    """The hub as this program reaches it.

    Attributes:
        endpoint: its address without a slash at the end.
        token: never logged, never an argument of a command.
        cache: the folder in which repositories are kept.
        offline: the network may not be used.
        xet: the client may use the hub's newer way to transfer files.
        timeout: seconds to wait for a connection before the cache has to do.
        env: the environment for the client's process.
    """

    endpoint: str
    token: str | None = field(repr=False)
    cache: Path
    offline: bool = False
    xet: bool = True
    timeout: float = 5.0
    env: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def host(self) -> str:
        """Host and port of the address."""
        return urlsplit(self.endpoint).netloc.lower()

    def child_env(self) -> dict[str, str]:
        """Return the environment of the process that runs the client, with the hub's token and no other secret."""
        env = {**for_downloads(self.env), "HF_ENDPOINT": self.endpoint, "HF_HUB_CACHE": str(self.cache)}
        if self.token:
            env["HF_TOKEN"] = self.token
        if not self.xet:
            env["HF_HUB_DISABLE_XET"] = "1"
        return env


def hub_access(env: Mapping[str, str], choices: HubChoices | None = None) -> HubAccess:
    """Combine what this environment and the configuration say."""
    chosen = choices or HubChoices()
    home = _home(env)
    return HubAccess(
        endpoint=(chosen.endpoint or env.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/"),
        token=chosen.token or _token(env, home),
        cache=_cache(env, home, chosen.cache),
        offline=chosen.offline or _is_true(env.get("HF_HUB_OFFLINE") or env.get("TRANSFORMERS_OFFLINE")),
        xet=chosen.xet and not _is_true(env.get("HF_HUB_DISABLE_XET")),
        timeout=chosen.timeout,
        env=dict(env),
    )


def _home(env: Mapping[str, str]) -> Path:
    user = Path(env.get("HOME") or Path.home())
    base = Path(env["XDG_CACHE_HOME"]) if env.get("XDG_CACHE_HOME") else user / ".cache"
    return _path(env, env["HF_HOME"]) if env.get("HF_HOME") else base / "huggingface"


def _cache(env: Mapping[str, str], home: Path, chosen: str | None) -> Path:
    given = chosen or env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE")
    return _path(env, given) if given else home / "hub"


def _token(env: Mapping[str, str], home: Path) -> str | None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if env.get(name, "").strip():
            return env[name].strip()
    file = _path(env, env["HF_TOKEN_PATH"]) if env.get("HF_TOKEN_PATH") else home / "token"
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text("utf-8").strip() or None
    return None


def _path(env: Mapping[str, str], text: str) -> Path:
    user = env.get("HOME")
    if user and (text == "~" or text.startswith("~/")):
        text = user + text[1:]
    return Path(os.path.expanduser(os.path.expandvars(text))).absolute()


def _is_true(text: str | None) -> bool:
    return (text or "").upper() in _TRUE

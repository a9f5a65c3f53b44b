"""Takes llama-server's command line and becomes a daemon of ours that serves the same model with the same options.

`python -m tests.suite.shim ENGINE HOME llama-server's arguments`. HOME is a folder in which every start makes its own.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from supervisor.cli.main import main
from supervisor.config.imports.arguments import read_arguments
from supervisor.config.imports.preset import from_preset

_VALUED = {
    "--host": "host",
    "--port": "port",
    "--api-key": "api_key",
    "--hf-file": "hf_file",
    "--models-max": "models_max",
    "--models-preset": "models_preset",
    "--models-dir": "models_dir",
    "--cors-origins": "cors_origins",
}
_NAMED = [
    "test",
    "codellama70b",
    "gpt-3.5-turbo",
    "gpt-3.5-turbo-instruct",
    "gpt-4.1",
    "davinci-002",
    "text-embedding-3-small",
]
"""Models that the tests name: a lone llama-server answers for any, here they are aliases of the one there is."""

_FILES = {"--media-path", "--log-file"}  # options whose path is the tests', not the daemon's
_ALONE = {"--offline": "offline", "--no-models-autoload": "no_autoload", "--ui-mcp-proxy": "mcp_proxy"}


def split(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return what is the server's, by name, and what is the model's."""
    server: dict[str, str] = {}
    model: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if word in _VALUED:
            server[_VALUED[word]] = next(rest)
        elif word in _ALONE:
            server[_ALONE[word]] = ""
        elif word in _FILES:
            model += [word, str(Path(next(rest)).resolve())]
        else:
            model.append(word)
    return server, model


def configuration(arguments: Sequence[str], cache: Path) -> dict[str, Any]:
    """Return the settings of a daemon that these arguments amount to. cache: the hub's."""
    server, rest = split(arguments)
    settings = read_arguments(rest).settings
    host, *others = server["host"].split(",")
    listen = [f"[{one}]:{server['port']}" if ":" in one else f"{one}:{server['port']}" for one in others]
    made: dict[str, Any] = {
        "server": {"host": host, "port": int(server["port"]), "listen": listen},
        "hub": {"cache": str(cache), "offline": True},
    }
    if "api_key" in server:
        made["server"]["api_keys"] = [server["api_key"]]
    if "models_dir" in server:
        made["models_dir"] = server["models_dir"]
    if "source" in settings or "file" in settings:
        made["models"] = dict([_model(settings, server, cache)])
    else:
        made["defaults"] = {"threads": 1, **settings}
        made["models"] = _cached(cache) | _preset(server.get("models_preset"))
    return made


def _cached(cache: Path) -> dict[str, Any]:
    """The models of the hub's cache by the names that a router gives them: `:F32` of `stories260K-F32.gguf`."""
    found = cache.glob("models--*/snapshots/*/[!m]*.gguf")
    names = [f"{_repository(file)}:{file.stem.rpartition('-')[2]}" for file in found]
    return {name: {"source": name} for name in names}


def _repository(file: Path) -> str:
    return file.parents[2].name.removeprefix("models--").replace("--", "/")


def _preset(path: str | None) -> dict[str, Any]:
    """What `config import` makes of a router's preset."""
    return dict(from_preset(Path(path).read_text()).models) if path else {}


def _model(settings: Mapping[str, Any], server: Mapping[str, str], cache: Path) -> tuple[str, dict[str, Any]]:
    model = {"threads": 1, **settings, "preload": True}
    if "hf_file" in server:
        repository = cache / f"models--{model.pop('source').replace('/', '--')}"
        model["file"] = str(next(repository.glob(f"snapshots/*/{server['hf_file']}"), server["hf_file"]))
    names = sorted(model.pop("aliases", [])) or [str(model.get("source") or model["file"])]
    return names[0], {**model, "aliases": names[1:] or _NAMED}


def serve(engine: str, homes: str, *arguments: str) -> int:
    """Become the daemon."""
    home = Path(tempfile.mkdtemp(dir=homes))
    config = Path(f"{home.name}.yaml").resolve()  # paths in it are relative to it, as they are to the tests' folder
    config.write_text(yaml.safe_dump(configuration(arguments, Path(os.environ["LLAMA_CACHE"]))))
    own = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")
    os.environ.update(dict.fromkeys(own, str(home)) | {"XDG_CACHE_HOME": f"{homes}/cache"})
    os.environ["SUPERVISOR_LLAMA_SERVER"] = engine
    sys.argv = ["supervisor", "serve", "--config", str(config)]
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(serve(*sys.argv[1:]))

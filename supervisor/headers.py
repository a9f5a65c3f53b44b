"""From what people name to a model's file and facts, without a daemon or an engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from supervisor.core.spec import ModelSpec, read_spec
from supervisor.demo.builtin import ensure_demo_model
from supervisor.errors import ModelNotFound
from supervisor.header_cache import HeaderCache
from supervisor.modelfiles import ModelFile, open_model
from supervisor.paths import Places

DEMO = "demo"


class ModelReader:
    """Opens targets; what headers said is remembered in the cache folder.

    Args:
        places: for the cache and the built-in model.
        configured: file by model id, of a configuration.
    """

    def __init__(self, places: Places, configured: Mapping[str, str] | None = None) -> None:
        self._places = places
        self._configured = configured or {}
        self._cache = HeaderCache(places.cache / "headers")

    def open(self, target: str) -> ModelFile:
        """The file of a target: a path, `demo`, or an id of the configuration.

        Raises ModelNotFound, ModelFileError and its subclasses.
        """
        return open_model(self._path(target), cache=self._cache, any_byte_order=True)

    def spec(self, target: str) -> ModelSpec:
        """The facts of a target; errors as with `open`."""
        return read_spec(self.open(target).header)

    def _path(self, target: str) -> Path:
        if target in self._configured:
            return Path(self._configured[target])
        if target == DEMO:
            return ensure_demo_model(self._places.cache)
        if "/" in target or target.lower().endswith(".gguf") or Path(target).exists():
            return Path(target).expanduser()
        known = ", ".join((DEMO, *self._configured))
        raise ModelNotFound(f"There is no model '{target}'. Give the path of a .gguf file, or one of: {known}.")

"""Find a model's file and facts by the name that people give, without a daemon or an engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from supervisor.core.repository import Assessment, HubReference, best, is_mlx
from supervisor.core.spec import ModelSpec, read_spec, tensor_bytes
from supervisor.demo.builtin import ensure_demo_model
from supervisor.errors import ModelNotFound
from supervisor.files.header_cache import HeaderCache
from supervisor.files.mlx_folder import MlxModel, is_mlx_folder, read_mlx
from supervisor.files.model_file import ModelFile, open_model
from supervisor.hub.models import Chosen, HubModels
from supervisor.system.paths import Places

DEMO = "demo"


class ModelReader:
    """An opener of targets; headers that were read are remembered in the cache folder.

    Args:
        places: for the cache and the built-in model.
        configured: file or reference by model id, of a configuration.
        hub: for models of the hub, of which only headers are fetched; None: there are none.
        note: told what has to be said, of the variant that was taken for instance.
    """

    def __init__(
        self,
        places: Places,
        configured: Mapping[str, str] | None = None,
        hub: HubModels | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._places = places
        self._configured = configured or {}
        self._hub = hub
        self._note = note
        self._cache = HeaderCache(places.cache / "headers")
        self._found: dict[str, Chosen] = {}

    def open(self, target: str) -> ModelFile:
        """Return the file of a target: a path, `demo`, an id of the configuration, or a model of the hub.

        Of a repository without a quantisation it is Q4_K_M, or what comes nearest. Raises ModelNotFound, ModelFileError
        and its subclasses, and as `HubModels.look`.
        """
        reference = self._reference(target)
        if reference is not None and self._hub is not None:
            return self._hub.model(self._chosen(self._hub, reference))
        return open_model(self._path(target), cache=self._cache, any_byte_order=True)

    def mlx(self, target: str) -> MlxModel | None:
        """Return the model of a target if it is one for MLX: a folder, or a repository's; None for all others.

        Raises ModelFileError and its subclasses, and as `HubModels.look`.
        """
        reference = self._reference(target)
        if reference is not None and self._hub is not None:
            chosen = self._chosen(self._hub, reference)
            return self._hub.mlx(chosen) if is_mlx(chosen.variant) else None
        if target == DEMO and target not in self._configured:
            return None
        folder = self._path(target)
        return read_mlx(folder) if is_mlx_folder(folder) else None

    def spec(self, target: str) -> ModelSpec:
        """Return the facts of a target; errors as with `open`."""
        return read_spec(self.open(target).header)

    def projector_bytes(self, target: str) -> int:
        """Return the bytes of the tensors of the projector that comes with a hub target; 0 without one."""
        reference = self._reference(target)
        if reference is None or self._hub is None:
            return 0
        header = self._hub.projector(self._chosen(self._hub, reference))
        return tensor_bytes(header.tensors) if header else 0

    def _reference(self, target: str) -> HubReference | None:
        target = self._configured.get(target, target)
        local = target.startswith((".", "/", "~")) or os.path.exists(target) or target == DEMO
        return None if local or self._hub is None else self._hub.parse(target)

    def _chosen(self, hub: HubModels, reference: HubReference) -> Chosen:
        known = self._found.get(str(reference))
        if known is None:
            known = self._found[str(reference)] = self._choose(hub, reference)
        return known

    def _choose(self, hub: HubModels, reference: HubReference) -> Chosen:
        here = hub.on_disk(reference)
        if here is not None:
            return here
        found = hub.look(reference)
        if found.note:
            self._note(found.note)
        variant = best([Assessment(one, True) for one in found.candidates]) or found.candidates[0]
        if len(found.candidates) > 1:
            self._note(f"{found.repository.id}: {variant.name} of {len(found.candidates)} variants")
        return found.choice(variant)

    def _path(self, target: str) -> Path:
        if target in self._configured:
            return Path(self._configured[target])
        if target == DEMO:
            return ensure_demo_model(self._places.cache)
        if "/" in target or target.lower().endswith(".gguf") or os.path.exists(target):
            return Path(os.path.expanduser(target))
        known = ", ".join((DEMO, *self._configured))
        raise ModelNotFound(f"There is no model '{target}'. Give the path of a .gguf file, or one of: {known}.")

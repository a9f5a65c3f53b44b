"""The models that LocalAI has had loaded, and which of them a request means."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.errors import ModelNotFound, ModelNotLoaded

MISMATCH = "model identity mismatch"
"""By these words LocalAI knows that a request has come to a backend with another model."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that was loaded.

    Attributes:
        identity: LocalAI's name for it, which its requests give; may be empty.
        id: the daemon's.
        is_ours: it was not loaded before LocalAI asked for it.
    """

    identity: str
    id: str
    is_ours: bool


class Models:
    """The models by their identity, the last loaded one last."""

    def __init__(self) -> None:
        self._found: dict[str, Loaded] = {}

    def add(self, model: Loaded) -> None:
        """Remember a loaded model; one of the same identity is replaced."""
        before = self._found.pop(model.identity, None)
        was_ours = before is not None and before.id == model.id and before.is_ours
        self._found[model.identity] = Loaded(model.identity, model.id, model.is_ours or was_ours)

    def drop(self, model: Loaded) -> None:
        """Forget a model."""
        self._found.pop(model.identity, None)

    @property
    def all(self) -> tuple[Loaded, ...]:
        """All of them."""
        return tuple(self._found.values())

    def meant(self, identity: str) -> Loaded:
        """Return the model of a request: the one of its name; without a name the last.

        Raises ModelNotLoaded where none was loaded, ModelNotFound where the name is another's.
        """
        if not self._found:
            raise ModelNotLoaded("No model is loaded; LoadModel comes first.")
        if not identity or "" in self._found:
            return self._found.get(identity) or self.all[-1]
        if identity not in self._found:
            known = ", ".join(repr(name) for name in self._found)
            raise ModelNotFound(f"{MISMATCH}: loaded {known}, requested {identity!r}")
        return self._found[identity]

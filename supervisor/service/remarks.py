"""What else is said of models: what loads found out on their way."""

from __future__ import annotations

from dataclasses import replace

from supervisor.service.status import Remark

_NOTHING = Remark()


class Remarks:
    """One for each model of which there is something to say."""

    def __init__(self) -> None:
        self._remarks: dict[str, Remark] = {}

    def of(self, model: str) -> Remark:
        """Return the remark on a model."""
        return self._remarks.get(model, _NOTHING)

    def set(self, model: str, remark: Remark) -> None:
        """Say this of it from now on."""
        self._remarks[model] = remark

    def add(self, model: str, sentence: str | None) -> None:
        """Say this too."""
        known = self.of(model)
        self._remarks[model] = replace(known, note=" ".join(filter(None, (known.note, sentence))) or None)

    def forget(self, model: str) -> None:
        """Say nothing any more."""
        self._remarks.pop(model, None)

"""Read a header's keys for one architecture: lenient about the width of integers, strict about their meaning."""

from __future__ import annotations

import math
from collections.abc import Mapping

from supervisor.core.gguf import ArraySummary, GgufValue
from supervisor.errors import ModelFileError

_MAX = (1 << 32) - 1  # llama.cpp reads u32


class Keys:
    """The keys of one architecture, named without its prefix.

    A `default` of None makes a key required: without it llama.cpp does not load the file. Every method raises
    `ModelFileError` and names the key that is missing or unusable.
    """

    def __init__(self, metadata: Mapping[str, GgufValue], architecture: str) -> None:
        self._metadata = metadata
        self._architecture = architecture

    def has(self, name: str) -> bool:
        return self._key(name) in self._metadata

    def is_list(self, name: str) -> bool:
        return isinstance(self._metadata.get(self._key(name)), tuple | ArraySummary)

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a whole number."""
        value = self._metadata.get(self._key(name))
        if value is None:
            return self._absent(name, default)
        return self._whole(name, value)

    def real(self, name: str, default: float) -> float:
        """Return a finite number; the default where it is none."""
        value = self._metadata.get(self._key(name))
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        return default

    def flag(self, name: str, default: bool) -> bool:
        value = self._metadata.get(self._key(name))
        return bool(value) if isinstance(value, int) else default

    def text(self, name: str, default: str) -> str:
        value = self._metadata.get(self._key(name))
        return value if isinstance(value, str) else default

    def per_layer(self, name: str, layers: int, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return one number per layer: a list of exactly that length, or one number for all."""
        if not self.is_list(name):
            return (self.integer(name),) * layers if default is None or self.has(name) else default
        values = self.numbers(name)
        if len(values) != layers:
            raise ModelFileError(f"{self._key(name)} has {len(values)} items for {layers} layers.")
        return values

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers; required, of any length."""
        value = self._metadata.get(self._key(name))
        if value is None:
            self._absent(name, None)
        if not isinstance(value, tuple):
            raise ModelFileError(f"{self._key(name)} is not a list that a model's header can have.")
        return tuple(self._whole(name, item) for item in value)

    def _key(self, name: str) -> str:
        return f"{self._architecture}.{name}"

    def _absent(self, name: str, default: int | None) -> int:
        if default is None:
            raise ModelFileError(f"{self._key(name)} is missing; llama.cpp does not load such a file.")
        return default

    def _whole(self, name: str, value: GgufValue) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or not 0 <= value <= _MAX:
            raise ModelFileError(f"{self._key(name)} is not a number that a model's header can have: {value!r:.50}")
        return int(value)

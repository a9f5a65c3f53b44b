"""The names of a split model's files: `NAME-00001-of-00003.gguf` (llama.cpp's `llama_split_path`)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SHARD = re.compile(r"(?P<prefix>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})(?P<suffix>\.(?i:gguf))", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a split model that a file is, counted from 1."""

    prefix: str
    number: int
    count: int
    suffix: str = ".gguf"

    @property
    def is_possible(self) -> bool:
        """True if a part can have this number."""
        return 1 <= self.number <= self.count

    def name_of(self, number: int) -> str:
        """Return the name of another part of the same model."""
        return f"{self.prefix}-{number:05d}-of-{self.count:05d}{self.suffix}"


def shard_of(name: str) -> Shard | None:
    """Return the shard that a file's name, without its folder, says; None if it is no shard's name."""
    match = _SHARD.fullmatch(name)
    if match is None:
        return None
    return Shard(match["prefix"], int(match["number"]), int(match["count"]), match["suffix"])

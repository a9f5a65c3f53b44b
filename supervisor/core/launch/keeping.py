"""The rules of saved slots, without the files: which ones an engine can take up again, and which of too many go.

llama-server's slot file holds the tokens and the rows of the caches of one slot, and checks cache types and sizes when
it reads them. What it cannot check is in the key: another model, build, adapter or rotation makes other numbers. A
model's name and shape do not tell it from another one: its descendants have the same. So the very files count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from supervisor.core.engine_output.capabilities import Flags
from supervisor.core.options import LaunchOptions, Mark, options_of

_KEEP_IDLE = "--no-cache-idle-slots"


@dataclass(frozen=True, slots=True)
class SavedSlot:
    """A file of a saved slot: its name, bytes, and when it was written."""

    name: str
    size: int
    at: float


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file at one moment: its path without links, bytes, time of change in nanoseconds, and inode."""

    path: str
    size: int
    changed_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class HeldSlot:
    """An idle slot of an engine, and the tokens it holds."""

    id: int
    tokens: int


def slots_key(files: Sequence[FileStamp], engine: str, options: LaunchOptions, cache_types: tuple[str, str]) -> str:
    """Return a key that is the same for two starts that can take up each other's slots; fit for a file's name.

    Args:
        files: the model's, and those that its options name.
        engine: the program's digest.
        options: what was asked for.
        cache_types: of keys and values, as they are.
    """
    bound = [one.name for one in options_of(type(options)) if Mark.FREE not in one.marks]
    asked = sorted((name, repr(getattr(options, name))) for name in bound)
    return hashlib.sha256(repr((tuple(files), engine, asked, cache_types)).encode()).hexdigest()[:32]


def kept(options: LaunchOptions, folder: str, flags: Flags | None) -> LaunchOptions:
    """Return the options of an engine whose slots are kept in a folder.

    llama-server empties idle slots when another gets to work, which would leave nothing to save but the last one.
    """
    own = any(argument.endswith("cache-idle-slots") for argument in options.extra_args)
    more = () if own or not flags or _KEEP_IDLE not in flags else (_KEEP_IDLE,)
    return replace(options, slot_save_path=folder, extra_args=(*options.extra_args, *more))


def held_slots(answer: object) -> tuple[HeldSlot, ...]:
    """Return the slots worth saving, the fullest first, from the JSON of `/slots`; busy slots are left out."""
    found = []
    for slot in answer if isinstance(answer, list) else ():
        number, tokens = (slot.get("id"), slot.get("n_prompt_tokens")) if isinstance(slot, dict) else (None, None)
        if isinstance(number, int) and isinstance(tokens, int) and tokens > 0 and not slot.get("is_processing"):
            found.append(HeldSlot(number, tokens))
    return tuple(sorted(found, key=lambda slot: (-slot.tokens, slot.id)))


def to_drop(saved: Iterable[SavedSlot], max_bytes: int) -> tuple[SavedSlot, ...]:
    """Return the oldest slots that have to go so that the others keep within the budget."""
    kept, dropped = 0, []
    for slot in sorted(saved, key=lambda slot: (-slot.at, slot.name)):
        kept += slot.size
        if kept > max_bytes:
            kept -= slot.size
            dropped.append(slot)
    return tuple(dropped)


def to_restore(saved: Iterable[SavedSlot], slots: int) -> Sequence[SavedSlot]:
    """Return the newest slots, as many as the engine has."""
    return sorted(saved, key=lambda slot: (-slot.at, slot.name))[:slots]

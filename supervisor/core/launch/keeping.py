"""Which saved slots an engine can take up again, and which of too many go: the rules, without the files.

llama-server's slot file holds the tokens and the rows of the caches of one slot, and checks cache types and sizes when
it reads them. What it cannot check is in the key: another model, build, adapter or rotation makes other numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from supervisor.core.engine_output.capabilities import Flags
from supervisor.core.launch import LaunchOptions

# Options that may change between saving and restoring: where it runs, how fast, how much of it, how it is asked
_FREE = frozenset(
    {"ctx_size", "parallel", "kv_unified", "batch_size", "ubatch_size", "cache_ram", "ctx_checkpoints", "threads"}
    | {"threads_batch", "rpc", "device", "n_gpu_layers", "tensor_split", "split_mode", "main_gpu", "cpu_moe"}
    | {"n_cpu_moe", "n_cpu_ffn", "override_tensor", "kv_offload", "op_offload", "repack", "load_mode", "fit", "jinja"}
    | {"overcommit"}
    | {"chat_template", "chat_template_file", "chat_template_kwargs", "skip_chat_parsing", "reasoning"}
    | {"reasoning_format", "reasoning_effort", "reasoning_budget", "reasoning_budget_message", "reasoning_preserve"}
    | {"slot_save_path", "keep_kv", "context_shift", "cache_type_k", "cache_type_v"}
)


_KEEP_IDLE = "--no-cache-idle-slots"


@dataclass(frozen=True, slots=True)
class SavedSlot:
    """One file: its name, bytes, and when it was written."""

    name: str
    size: int
    at: float


@dataclass(frozen=True, slots=True)
class HeldSlot:
    """One idle slot of an engine, and the tokens it holds."""

    id: int
    tokens: int


def slots_key(identity: str, engine: str, options: LaunchOptions, cache_types: tuple[str, str]) -> str:
    """The same for two starts that can take up each other's slots; fit for a file's name.

    Args:
        identity: the model's.
        engine: the program's digest.
        options: what was asked for.
        cache_types: of keys and values, as they are.
    """
    asked = sorted((one.name, repr(getattr(options, one.name))) for one in fields(options) if one.name not in _FREE)
    return hashlib.sha256(repr((identity, engine, asked, cache_types)).encode()).hexdigest()[:32]


def kept(options: LaunchOptions, folder: str, flags: Flags | None) -> LaunchOptions:
    """The options of an engine whose slots are kept in a folder.

    llama-server empties idle slots when another gets to work, which would leave nothing to save but the last one.
    """
    own = any(argument.endswith("cache-idle-slots") for argument in options.extra_args)
    more = () if own or not flags or _KEEP_IDLE not in flags else (_KEEP_IDLE,)
    return replace(options, slot_save_path=folder, extra_args=(*options.extra_args, *more))


def held_slots(answer: object) -> tuple[HeldSlot, ...]:
    """What is worth saving, the most first, from the JSON of `/slots`; slots at work are left out."""
    found = []
    for slot in answer if isinstance(answer, list) else ():
        number, tokens = (slot.get("id"), slot.get("n_prompt_tokens")) if isinstance(slot, dict) else (None, None)
        if isinstance(number, int) and isinstance(tokens, int) and tokens > 0 and not slot.get("is_processing"):
            found.append(HeldSlot(number, tokens))
    return tuple(sorted(found, key=lambda slot: (-slot.tokens, slot.id)))


def to_drop(saved: Iterable[SavedSlot], max_bytes: int) -> tuple[SavedSlot, ...]:
    """The oldest that have to go so that the others keep within the budget."""
    kept, dropped = 0, []
    for slot in sorted(saved, key=lambda slot: (-slot.at, slot.name)):
        kept += slot.size
        if kept > max_bytes:
            kept -= slot.size
            dropped.append(slot)
    return tuple(dropped)


def to_restore(saved: Iterable[SavedSlot], slots: int) -> Sequence[SavedSlot]:
    """The newest, as many as there are slots."""
    return sorted(saved, key=lambda slot: (-slot.at, slot.name))[:slots]

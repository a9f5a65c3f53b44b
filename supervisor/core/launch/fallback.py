"""Choose the next thing to try after a load that failed: each once, and never against what somebody asked for.

Memory is the planner's business: it is told what a device lacked, and chooses anew (who leaves, context, cache type,
layers). What the user set stays: a projector that was named is not left out, `flash_attn: on` is not turned off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from supervisor.core.engine_output.failures import (
    CRASHED,
    DRAFT,
    FLASH_ATTENTION,
    KILLED,
    OUT_OF_MEMORY,
    PROJECTOR,
    UNSUPPORTED,
)
from supervisor.core.engine_output.shortage import HOST
from supervisor.core.launch import LaunchOptions
from supervisor.core.plan import DevicePlan, Placement
from supervisor.core.schedule.events import Failure

_SHARES = (8, 2, 1)  # of the buffer that could not be had: what is kept free the first, second and third time
_LEAST = 64 << 20
_QUANTISED_NOT = frozenset({None, "f32", "f16", "bf16"})
_DRAFTING = "draft"
_KILLED = "The engine was killed"
_RAN_OUT = "Memory ran out"
_AS_IT_WAS = f"{_KILLED}: started once more as it was."


@dataclass(frozen=True, slots=True)
class Fallback:
    """The changes to a model's start, made because of starts that failed.

    Attributes:
        text_only, no_draft, no_flash_attn, no_repack: what is left out.
        crashed: whether it was started once more as it was, after a crash.
        short: bytes by device, as the plan calls it, that the planner keeps free beside all that is estimated.
        tries: how often it was planned again because a device lacked memory, by device.
        killed: whether it was planned again after the engine was killed from outside.
        steps: what was done, a sentence each.
    """

    text_only: bool = False
    no_draft: bool = False
    no_flash_attn: bool = False
    no_repack: bool = False
    crashed: bool = False
    short: Mapping[str, int] = field(default_factory=dict)
    tries: Mapping[str, int] = field(default_factory=dict)
    killed: bool = False
    steps: tuple[str, ...] = ()

    @property
    def only_guessed(self) -> bool:
        """True if all that is kept free is so because the engine was killed."""
        return self.killed and sum(self.tries.values()) == 1


def next_fallback(fallback: Fallback, failure: Failure, options: LaunchOptions, plan: Placement) -> Fallback | None:
    """Return the next thing to try; None if nothing is left.

    Args:
        fallback: what was tried so far.
        failure: how the last start ended.
        options: what the user asked for.
        plan: where that start was to go.
    """
    match failure.code:
        case code if code == OUT_OF_MEMORY:
            return _planned_again(fallback, failure, plan)
        case code if code == KILLED and not fallback.killed:
            again = _planned_again(fallback, failure, plan)
            return again and replace(again, killed=True)
        case code if code == CRASHED and not fallback.crashed:
            return _with(fallback, "The engine crashed: started once more as it was.", crashed=True)
        case code if code in {CRASHED, UNSUPPORTED} and options.repack is None and _may_repack(fallback, failure, plan):
            return _with(fallback, "The engine crashed: without weights repacked for this CPU.", no_repack=True)
        case code if code == PROJECTOR and options.mmproj is None and not fallback.text_only:
            return _with(fallback, "The projector could not be loaded: text only.", text_only=True)
        case code if code == DRAFT and not fallback.no_draft:
            found = without_draft(options, fallback)
            return found if found.no_draft else None
        case code if code == FLASH_ATTENTION and _may_do_without(options) and not fallback.no_flash_attn:
            return _with(fallback, "Flash attention does not work here: without it.", no_flash_attn=True)
        case _:
            return None


def without_draft(options: LaunchOptions, fallback: Fallback) -> Fallback:
    """Return the fallback without a draft model; unchanged where there is none."""
    if fallback.no_draft or (options.spec_draft_model is None and not any(map(_drafts, options.spec_type))):
        return fallback
    return _with(fallback, "The draft model could not be used: without it.", no_draft=True)


def unguessed(fallback: Fallback) -> Fallback:
    """Return the fallback without the memory kept free after the engine was killed, as nothing fitted beside it."""
    steps = tuple(_AS_IT_WAS if step.startswith(f"{_KILLED}:") else step for step in fallback.steps)
    return replace(fallback, steps=steps)


def with_fallback(options: LaunchOptions, fallback: Fallback) -> LaunchOptions:
    """Return the options without what the fallback leaves out."""
    if fallback.text_only:
        options = replace(options, mmproj_auto=False)
    if fallback.no_flash_attn:
        options = replace(options, flash_attn="off")
    if fallback.no_repack:
        options = replace(options, repack=False)
    if fallback.no_draft:
        plain: dict[str, Any] = {one.name: one.default for one in fields(options) if one.name.startswith("spec_draft_")}
        kinds = tuple(kind for kind in options.spec_type if not _drafts(kind))
        options = replace(options, **plain, spec_type=kinds)
    return options


def without_shortage(fallback: Fallback) -> Fallback:
    """Return the fallback without the memory kept free, so that the next start begins anew with what there is then."""
    steps = tuple(step for step in fallback.steps if not step.startswith((_KILLED, _RAN_OUT)))
    return replace(fallback, short={}, tries={}, killed=False, steps=steps)


def _planned_again(fallback: Fallback, failure: Failure, plan: Placement) -> Fallback | None:
    """Return the fallback that keeps more free than the last plan left, so that the next plan differs.

    How much was missing is not known, only the buffer that did not fit: a part of it at first, all of it in the end.
    Each device is given up after as many times; the others are still to be tried then. None: no device is left.
    """
    parts = [part for part in _parts(failure, plan) if fallback.tries.get(part.name, 0) < len(_SHARES)]
    short, tries, said = dict(fallback.short), dict(fallback.tries), []
    for part in parts:
        done = tries.get(part.name, 0)
        more = max(_LEAST, (failure.lacking or part.total_bytes) // _SHARES[done])
        short[part.name] = short.get(part.name, 0) + max(0, part.left_bytes) + more
        tries[part.name] = done + 1
        said.append(f"{short[part.name] >> 20} MiB more are kept free on {part.name}")
    what = _KILLED if failure.code == KILLED else f"{_RAN_OUT}{_where(failure, parts)}"
    sentence = f"{what}: planned again, {' and '.join(said)}."
    return _with(replace(fallback, short=short, tries=tries), sentence) if parts else None


def _where(failure: Failure, parts: Sequence[DevicePlan]) -> str:
    """Return what could not be had where, as far as the engine said it."""
    size = "" if failure.lacking is None else f", where a buffer of {failure.lacking / (1 << 20):.0f} MiB was wanted"
    return f" on {parts[0].name}{size}" if len(parts) == 1 and failure.device is not None else ""


def _parts(failure: Failure, plan: Placement) -> Sequence[DevicePlan]:
    """Return the devices that lacked memory: the one that the engine named, else all that it could mean."""
    found = [part for part in plan.parts if part.name == failure.device]
    return (
        found
        or [part for part in plan.parts if part.name in plan.devices]
        or [part for part in plan.parts if part.name == HOST]
    )


def _drafts(kind: str) -> bool:
    return kind.startswith(_DRAFTING)


def _may_repack(fallback: Fallback, failure: Failure, plan: Placement) -> bool:
    """Return whether the last start may have failed of weights that were repacked on the host.

    llama.cpp's kernels for AMX (b11434) crash with some types; none of them runs where weights stay as they are.
    """
    by_host = failure.code == CRASHED or failure.device == HOST
    return by_host and not fallback.no_repack and any(part.name == HOST and part.weights_bytes for part in plan.parts)


def _may_do_without(options: LaunchOptions) -> bool:
    """Return whether nobody asked for flash attention, or for an option that needs it."""
    return options.flash_attn in {None, "auto"} and options.cache_type_v in _QUANTISED_NOT


def _with(fallback: Fallback, step: str, **changed: Any) -> Fallback:
    return replace(fallback, steps=(*fallback.steps, step), **changed)

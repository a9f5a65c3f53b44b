"""Read what llama-server writes to its pipes: state lines on stdout, log lines on stderr.

The state lines are the protocol between llama.cpp's own router and its children. It is not documented and may change
with any build: an unknown or damaged line is None here, and the shell falls back to asking /health.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from supervisor.core.text.foreignjson import NotJson, parse

ENV_SPEAK = "LLAMA_SERVER_ROUTER_PORT"  # present with any value, llama-server writes state lines and reads stdin
ASK_EXIT = b"cmd_router_to_child:exit"
_PREFIX = b"cmd_child_to_router:state:"

_TELLING = 12
_MARKED = re.compile(r"^\s*(?:[\d.]+\s+)?(?P<level>[EWID])\s")
_UNMARKED = re.compile(
    r"\b(?:error|failed|failure|unable|cannot|couldn't|invalid|not found|out of memory|abort(?:ed)?|assert)\b"
    r"|what\(\):|GGML_ASSERT|Segmentation fault|error while loading shared libraries",
    re.IGNORECASE,
)
_STAMP = re.compile(r"^\s*(?:\d+(?:\.\d+)+\s+)?(?:[EWID]\s+)?")
# The last words of a failing start, which repeat in general terms what an earlier line said exactly
_GENERAL = ("failed to load model", "exiting due to model loading error", "trying to fit params")


@dataclass(frozen=True)
class StateLine:
    """A state line: `loading`, `ready`, `sleeping` or what a later build adds, with its payload."""

    state: str
    payload: Mapping[str, object]


@dataclass(frozen=True)
class LoadProgress:
    """The progress of a start: the stage's name, and 0..1 over all stages, None where it is not known."""

    stage: str
    value: float | None


def parse_state(line: bytes) -> StateLine | None:
    """Read a line of stdout without its end; return None when it is not a well-formed state line."""
    if not line.startswith(_PREFIX):
        return None
    try:
        found = parse(line[len(_PREFIX) :])
    except NotJson:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("state"), str):
        return None
    payload = found.get("payload")
    return StateLine(found["state"], payload if isinstance(payload, dict) else {})


def load_progress(payload: Mapping[str, object]) -> LoadProgress:
    """Read the payload of `loading`: `{"stages": [...], "current": name, "value": 0..1 of that stage}`."""
    stage, value, stages = payload.get("current"), payload.get("value"), payload.get("stages")
    name = stage if isinstance(stage, str) else "loading"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return LoadProgress(name, None)
    within = min(max(float(value), 0.0), 1.0)
    if isinstance(stages, list) and stage in stages:
        return LoadProgress(name, (stages.index(stage) + within) / len(stages))
    return LoadProgress(name, within)


def telling_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines that explain a failed start, oldest first, without time stamps, levels and repetitions.

    Errors first: lines of level E, or that read like one where there are no levels. General ones are left out
    when exact ones remain. Without any error: the last lines, whatever they are.
    """
    errors = [line for line in lines if _is_error(line)]
    exact = [line for line in errors if not _is_general(line)]
    chosen = exact or errors or [line for line in lines if line.strip()]
    distinct = tuple(dict.fromkeys(_STAMP.sub("", line).strip() for line in chosen))
    return distinct[:_TELLING] if errors else distinct[-_TELLING:]


def context_of(info: Mapping[str, object]) -> int | None:
    """Return the context in tokens that a `ready` payload names (`meta.n_ctx`)."""
    meta = info.get("meta")
    n_ctx = cast(Mapping[str, object], meta).get("n_ctx") if isinstance(meta, dict) else None
    return n_ctx if isinstance(n_ctx, int) else None


def slot_facts(answer: object) -> tuple[int, int] | None:
    """Return the tokens of context per slot and the number of slots, from the JSON of /slots or /props.

    None without them.
    """
    if isinstance(answer, dict):
        slots, settings = answer.get("total_slots"), answer.get("default_generation_settings")
    elif isinstance(answer, list) and answer:
        slots, settings = len(answer), answer[0]
    else:
        return None
    n_ctx = settings.get("n_ctx") if isinstance(settings, dict) else None
    return (n_ctx, slots) if isinstance(n_ctx, int) and isinstance(slots, int) else None


def _is_error(line: str) -> bool:
    marked = _MARKED.match(line)
    if marked is not None:
        return marked["level"] == "E"
    return _UNMARKED.search(line) is not None


def _is_general(line: str) -> bool:
    return any(words in line for words in _GENERAL) and "error loading model" not in line

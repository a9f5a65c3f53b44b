"""JSON values and their text, without loss: numbers keep their spelling, lone surrogates stay encodable."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

MAX_DEPTH: Final = 96
"""Brackets inside brackets; more is no call. Keeps every recursion here far from Python's limit."""

NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

_SAFE_DIGITS = 15
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written; valid JSON."""

    text: str


Json: TypeAlias = "str | int | float | bool | Number | list[Json] | dict[str, Json] | None"


def loads(text: str) -> Json:
    """Read strict JSON, but let control characters in strings pass. Raise ValueError for anything else."""
    try:
        value: Json = json.loads(text, strict=False, parse_int=_integer, parse_float=Number, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def dumps(value: Json) -> str:
    """Write JSON as OpenAI's `arguments` have it: one line, `", "` and `": "`, real characters."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Number):
        return value.text
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quote(key)}: {dumps(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dumps, value)) + "]"
    return json.dumps(value)


def quote(text: str) -> str:
    """Return the text as a JSON string."""
    return json.dumps(text, ensure_ascii=_SURROGATE.search(text) is not None)


def depth_of(text: str) -> int:
    """Return an upper bound of the nesting of JSON text."""
    depth = most = 0
    for found in re.finditer(r"[\[{]|[\]}]", text):
        depth += 1 if found.group() in "[{" else -1
        most = max(most, depth)
    return most


def _integer(text: str) -> int | Number:
    return int(text) if len(text) <= _SAFE_DIGITS else Number(text)


def _refuse(text: str) -> Json:
    raise ValueError(f"{text} is no JSON")

"""The largest, smallest and longest values that an option takes, from its own schema; and those just beyond."""

from __future__ import annotations

import json
import re
from typing import Any

from supervisor.config.settings import ModelOptions

SCHEMA = ModelOptions.model_json_schema()
_MADE: dict[str, tuple[list[Any], list[Any]]] = {
    # what a schema does not say: the longest pattern, and one that takes long where backtracking finds no end
    "Override": (["(((.+)+)+)+#=CPU", f"{'(a|b.*)*' * 56}=CPU", ".{999}=CPU"], ["(a)\\1=CPU", f"{'a' * 600}=CPU"]),
}


def extremes(name: str) -> tuple[list[Any], list[Any]]:
    """Values of an option that are allowed, and some that are not."""
    node = SCHEMA["properties"][name]
    if name.endswith("override_tensor"):
        within, beyond = _MADE["Override"]
        longest = [f"{index:03}{'x.*' * 100}=CPU" for index in range(node["maxItems"])]
        return [[one] for one in within] + [longest], [[one] for one in beyond] + [[*longest, "x=CPU"]]
    if name == "extra_args":
        return [["--temp", "1"] * 128, ["x" * 32_000] * 4], [["x"] * 257, ["x" * 32_001], ["x" * 32_000] * 5]
    if name == "chat_template_kwargs":
        return [nested(30), {"a": "x" * 31_000}], [nested(40), {"a": "x" * 32_001}, {str(n): n for n in range(257)}]
    within, beyond = _of(node)
    if "anyOf" not in node:
        beyond = [*beyond, None]
    return within, beyond


def nested(depth: int) -> dict[str, Any]:
    """A mapping in a mapping in a mapping."""
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


def _of(node: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    if "anyOf" in node:
        parts = [_of(one) for one in node["anyOf"]]
        texts = any(one.get("type") == "string" for one in node["anyOf"])
        return (
            [value for part in parts for value in part[0]],
            [value for part in parts for value in part[1] if not (texts and isinstance(value, str) and value == "")],
        )
    if "enum" in node:
        return list(node["enum"]), ["nonsense", 5]
    if "const" in node:
        return [node["const"]], ["nonsense"]
    kind = node.get("type")
    if kind in {"integer", "number"}:
        low, high = node["minimum"], node["maximum"]
        return [low, high], [low - 1, high * 2 + 1, True, [], 10**400, float("inf"), float("nan")]
    if kind == "string":
        if "pattern" in node:
            return [next(text for text in ("8k", "8g") if re.search(node["pattern"], text))], ["8 parsecs", "9" * 40]
        return ["x" * node["maxLength"]], ["x" * (node["maxLength"] + 1), 5]
    if kind == "boolean":
        return [True, False, "true"], ["yes", 1, 0]
    if kind == "array":
        inner = _of(node["items"])[0][-1]
        return [[inner] * node["maxItems"]], [[inner] * (node["maxItems"] + 1), "x"]
    return [None], []


def everything() -> list[dict[str, Any]]:
    """Each extreme of each option alone, and the last of all together."""
    alone = [{name: value} for name in ModelOptions.model_fields for value in extremes(name)[0]]
    return [*alone, {name: extremes(name)[0][-1] for name in ModelOptions.model_fields}]


def size(options: dict[str, Any]) -> int:
    """Characters of a request with these options."""
    return len(json.dumps(options))

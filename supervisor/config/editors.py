"""Make the JSON schema by which editors check and complete a configuration."""

from __future__ import annotations

import copy
from typing import cast

from supervisor.config.expand import MACROS
from supervisor.config.words import Node, schema

_REFERENCE: Node = {"type": "string", "pattern": r"\$\{[^{}]+\}"}
_NAMES: Node = {"type": ["string", "number", "boolean", "null"]}


def editor_schema() -> Node:
    """Return the schema, draft 2020-12. Where a number or a choice is wanted, `${…}` is accepted too."""
    found = copy.deepcopy(schema())
    found["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    found["title"] = "llama-supervisor configuration"
    found["properties"][MACROS] = {"type": ["object", "null"], "additionalProperties": _NAMES}
    for part in (found, *found["$defs"].values()):
        for name, one in part.get("properties", {}).items():
            part["properties"][name] = _with_reference(one)
    for name, one in found["properties"].items():
        if "$ref" in one:  # an empty section is one without a setting
            found["properties"][name] = {"anyOf": [{"$ref": one["$ref"]}, {"type": "null"}]}
    return found


def _with_reference(one: Node) -> Node:
    kinds = one.get("anyOf", [one])
    if any(kind.get("type") in ("integer", "number", "boolean") or "enum" in kind for kind in kinds):
        kept = {key: value for key, value in one.items() if key in {"default", "title", "description"}}
        bare = [{key: value for key, value in kind.items() if key not in kept} for kind in kinds]
        return cast("Node", {"anyOf": [*bare, _REFERENCE], **kept})
    return one

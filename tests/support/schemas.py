"""The schema of the HTTP interface, to measure answers by."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from supervisor.api.app import framework

MANAGED = "/api/v1/"


@cache
def schema() -> dict[str, Any]:
    """What `/openapi.json` says."""
    return framework(cast(Any, None)).openapi()


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    """Method, path and what is said of it, of every call of management."""
    paths = ((path, found) for path, found in schema()["paths"].items() if path.startswith(MANAGED))
    return [(method, path, said) for path, found in paths for method, said in found.items()]


def faults(answer: object, method: str, path: str, status: int = 200) -> list[str]:
    """Where JSON that a call answered is not as the schema says; keys that it does not know are faults too."""
    said = schema()["paths"][path][method]["responses"][str(status)]["content"]["application/json"]["schema"]
    found = Draft202012Validator({**said, "components": _closed()}).iter_errors(json.loads(json.dumps(answer)))
    return [f"{fault.json_path}: {best_match([fault]).message[:300]}" for fault in found]


@cache
def _closed() -> dict[str, Any]:
    """The components without room for further keys."""
    found: dict[str, Any] = copy.deepcopy(schema()["components"])
    for one in found["schemas"].values():
        if "properties" in one:
            one["additionalProperties"] = False
    return found

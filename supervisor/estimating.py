"""Estimates for people who name options: `supervisor estimate` and `POST /api/v1/estimate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from supervisor.core.describe import tensor_bytes
from supervisor.core.memory import EstimateOptions, MemoryEstimate, Refusal, estimate
from supervisor.core.spec import ModelSpec
from supervisor.errors import EstimateRefused, InvalidRequest, file_refused
from supervisor.modelfiles import open_model

NAMES = frozenset(field.name for field in fields(EstimateOptions))
"""Options by llama-server's names, as fields of EstimateOptions."""
_MOST_CONTEXTS = 64


def estimated(spec: ModelSpec, options: EstimateOptions) -> MemoryEstimate:
    """What the engine would allocate. Raises EstimateRefused where it would refuse these options."""
    found = estimate(spec, options)
    if isinstance(found, Refusal):
        raise file_refused(found.code, found.message) or EstimateRefused(found.code, found.message)
    return found


def estimates_json(spec: ModelSpec, given: Mapping[str, object]) -> dict[str, Any] | list[dict[str, Any]]:
    """The object of `estimate --json` for options by name; a list where `ctx_size` is one.

    Raises EstimateRefused, and as `estimate_options`.
    """
    contexts = given.get("ctx_size")
    asked = contexts if isinstance(contexts, list) else [contexts]
    if not 0 < len(asked) <= _MOST_CONTEXTS:
        raise InvalidRequest(f"ctx_size: name 1 to {_MOST_CONTEXTS} contexts.", param="ctx_size")
    options = [estimate_options({**given, "ctx_size": context}) for context in asked]
    found = [estimated(spec, one).to_json() for one in options]
    return found if isinstance(contexts, list) else found[0]


def estimate_options(given: Mapping[str, object]) -> EstimateOptions:
    """Options by llama-server's names with underscores; `mmproj` names a file.

    Raises InvalidRequest for an unknown one or a wrong value, ModelFileError for a projector that is none.
    """
    unknown = given.keys() - NAMES
    if unknown:
        name = min(unknown)
        raise InvalidRequest(f"There is no option '{name}'. Known: {', '.join(sorted(NAMES))}.", param=name)
    values = dict(given)
    if values.get("mmproj"):
        values["mmproj"] = _projector_bytes(values["mmproj"])
    split = values.get("tensor_split")
    if isinstance(split, (list, tuple)) and "devices" not in values:
        values["devices"] = tuple(f"GPU{number}" for number in range(len(split)))
    try:
        return TypeAdapter(EstimateOptions).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise InvalidRequest(f"{name} cannot be {given.get(name)!r}: {first['msg']}.", param=name) from None


def _projector_bytes(path: object) -> int:
    """What the tensors of a projector's file take."""
    return tensor_bytes(open_model(Path(str(path))).header.tensors)

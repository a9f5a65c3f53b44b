"""Which types a JSON schema admits, and text or values made to fit.

Text formats carry no types, so the tool's schema decides. Nothing is guessed: what fits no admissible type stays the
string that the model wrote, so that the client's own validation can say what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from supervisor.core.toolcalls.jsontext import NUMBER, Json, Number, depth_of, dumps, loads
from supervisor.core.toolcalls.literals import INVALID, read_literal

Types: TypeAlias = frozenset[str]
Schema: TypeAlias = Mapping[str, object]

STRING: Final[Types] = frozenset({"string"})
ANY_JSON: Final[Types] = frozenset({"integer", "number", "boolean", "object", "array", "null"})
"""Where a format says that a value is JSON."""
_KNOWN: Final = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_CONTAINERS: Final = frozenset({"object", "array"})
_MAX_REFS: Final = 16  # schemas may refer to themselves
_INTEGER: Final = re.compile(r"-?[0-9]+")
_INTEGRAL: Final = re.compile(r"(-?[0-9]+)\.0+")
_BOOLEANS: Final[Mapping[str, Json]] = {"true": True, "True": True, "false": False, "False": False}
_MAX_DIGITS: Final = 15


def types_of(schema: object, root: Schema, left: int = _MAX_REFS) -> Types:
    """The types a schema admits; {"string"} where it says nothing usable.

    Args:
        root: the tool's whole schema, in which `$ref` is looked up.
        left: how many more levels may be followed.
    """
    return _admitted(schema, root, left) or STRING


def _admitted(schema: object, root: Schema, left: int) -> Types:
    if not isinstance(schema, Mapping) or left <= 0:
        return frozenset()
    if "$ref" in schema:
        return _admitted(_resolved(schema["$ref"], root), root, left - 1)
    found = _named(schema.get("type"))
    if not found:
        values = schema.get("enum") if "enum" in schema else [schema["const"]] if "const" in schema else ()
        found = frozenset(map(_type_of, values)) if isinstance(values, Sequence) else frozenset()
    for word in ("anyOf", "oneOf"):
        found |= frozenset().union(*(_admitted(one, root, left - 1) for one in _items(schema.get(word))))
    if not found:
        found = _all_of([_admitted(one, root, left - 1) for one in _items(schema.get("allOf"))])
    if not found and ("properties" in schema or "items" in schema):
        found = frozenset({"object" if "properties" in schema else "array"})
    return found | {"null"} if found and schema.get("nullable") is True else found


def _all_of(parts: Sequence[Types]) -> Types:
    parts = [part for part in parts if part]
    if not parts:
        return frozenset()
    return frozenset.intersection(*parts) or frozenset().union(*parts)


def _named(kind: object) -> Types:
    names = [kind] if isinstance(kind, str) else kind if isinstance(kind, Sequence) else ()
    return frozenset(name for name in names if isinstance(name, str)) & _KNOWN


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (Mapping, "object")):
        if isinstance(value, kind):
            return name
    return "array"


def _resolved(reference: object, root: Schema) -> object:
    """What a local reference (`#/$defs/Name`) names, or None."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    at: object = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        at = at.get(key) if isinstance(at, Mapping) else None
    return at


def typed(text: str, types: Types) -> Json:
    """The value that raw text means where these types are admitted."""
    trimmed = text.strip()
    if "null" in types and trimmed in {"null", "None"}:
        return None
    if types & _CONTAINERS:
        value = _container(trimmed, types)
        if value is not INVALID:
            return value
    return _scalar(text, trimmed, types)


def _scalar(text: str, trimmed: str, types: Types) -> Json:
    if "boolean" in types and trimmed in _BOOLEANS:
        return _BOOLEANS[trimmed]
    if "integer" in types:
        integral = _INTEGRAL.fullmatch(trimmed)
        digits = integral[1] if integral else trimmed
        if _INTEGER.fullmatch(digits):
            return _whole(digits)
    if "number" in types and NUMBER.fullmatch(trimmed):
        return _whole(trimmed) if _INTEGER.fullmatch(trimmed) else Number(trimmed)
    return text


def _whole(digits: str) -> Json:
    sign, digits = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
    digits = digits.lstrip("0") or "0"
    return int(sign + digits) if len(digits) <= _MAX_DIGITS else Number(sign + digits)


def _container(trimmed: str, types: Types) -> Json:
    """The object or array that the whole text is, or INVALID."""
    for _ in range(2):  # a string that holds JSON is read once more
        value = _read(trimmed)
        if (isinstance(value, dict) and "object" in types) or (isinstance(value, list) and "array" in types):
            return value
        if not isinstance(value, str):
            return INVALID
        trimmed = value.strip()
    return INVALID


def _read(text: str) -> Json:
    if text[:1] not in {"{", "[", "(", '"', "'"}:
        return INVALID
    try:
        return loads(text) if depth_of(text) < 100 else INVALID
    except ValueError:
        return read_literal(text)


def fitted(value: Json, types: Types) -> Json:
    """A JSON value of the model made to fit: containers that were written as strings, and the other way round."""
    if isinstance(value, str) and "string" not in types and types & _CONTAINERS:
        inner = _container(value.strip(), types)
        return value if inner is INVALID else inner
    if isinstance(value, (dict, list)) and "string" in types and not types & _CONTAINERS:
        return dumps(value)
    return value

"""The types that a JSON schema admits, and the conversion of text or values to them.

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
"""The types of a value that a format declares as JSON."""
_KNOWN: Final = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_CONTAINERS: Final = frozenset({"object", "array"})
_MAX_REFS: Final = 16  # schemas may refer to themselves
_MAX_REF: Final = 1024  # characters of a reference
_MOST_READ: Final = 1 << 14
_INTEGER: Final = re.compile(r"-?[0-9]+")
_INTEGRAL: Final = re.compile(r"(-?[0-9]+)\.0+")
_BOOLEANS: Final[Mapping[str, Json]] = {"true": True, "True": True, "false": False, "False": False}
_MAX_DIGITS: Final = 15


class SchemaTypes:
    """The types that schemas admit, for all tools of one request.

    Schemas may refer to themselves, and each of many alternatives may do so again: what has been read is remembered,
    and there is an end to reading. What lies beyond it admits nothing that is known.

    Args:
        most: schemas, and values and names in them, that are read.
    """

    def __init__(self, most: int = _MOST_READ) -> None:
        self._left = most
        self._known: dict[tuple[int, int, int], Types] = {}

    def of(self, schema: object, root: Schema) -> Types:
        """Return the types that a schema admits; {"string"} where it says nothing usable.

        root: the tool's whole schema, in which `$ref` is looked up. Both have to stay alive as long as this reader.
        """
        return self._admitted(schema, root, _MAX_REFS) or STRING

    def _admitted(self, schema: object, root: Schema, left: int) -> Types:
        """Return the types that a schema admits, following at most `left` more levels."""
        if not isinstance(schema, Mapping) or left <= 0:
            return frozenset()
        key = id(schema), id(root), left
        if key not in self._known:
            self._known[key] = self._read(schema, root, left - 1)
        return self._known[key]

    def _read(self, schema: Schema, root: Schema, left: int) -> Types:
        if "$ref" in schema:
            return self._admitted(_resolved(schema["$ref"], root), root, left)
        kind = schema.get("type")
        kinds = self._some([kind] if isinstance(kind, str) else kind)
        found = frozenset(one for one in kinds if isinstance(one, str)) & _KNOWN
        if not found:
            values = schema.get("enum") if "enum" in schema else [schema["const"]] if "const" in schema else ()
            found = frozenset(map(_type_of, self._some(values)))
        for word in ("anyOf", "oneOf"):
            found |= frozenset().union(*self._each(schema.get(word), root, left))
        if not found:
            found = _all_of(self._each(schema.get("allOf"), root, left))
        if not found and ("properties" in schema or "items" in schema):
            found = frozenset({"object" if "properties" in schema else "array"})
        return found | {"null"} if found and schema.get("nullable") is True else found

    def _each(self, schemas: object, root: Schema, left: int) -> list[Types]:
        return [self._admitted(one, root, left) for one in self._some(schemas)]

    def _some(self, values: object) -> Sequence[object]:
        """Return the values of a list, as many as may still be read."""
        items = values[: self._left] if isinstance(values, Sequence) and not isinstance(values, str) else ()
        self._left -= len(items)
        return items


def _all_of(parts: Sequence[Types]) -> Types:
    parts = [part for part in parts if part]
    if not parts:
        return frozenset()
    return frozenset.intersection(*parts) or frozenset().union(*parts)


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (Mapping, "object")):
        if isinstance(value, kind):
            return name
    return "array"


def _resolved(reference: object, root: Schema) -> object:
    """Return the target of a local reference (`#/$defs/Name`), or None."""
    if not isinstance(reference, str) or not reference.startswith("#") or len(reference) > _MAX_REF:
        return None
    at: object = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        at = at.get(key) if isinstance(at, Mapping) else None
    return at


def typed(text: str, types: Types) -> Json:
    """Return the value of raw text where these types are admitted."""
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
    """Return the object or array that is the whole text, or INVALID."""
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
    """Return a JSON value of the model converted to the types: a container from its string, or the other way round."""
    if isinstance(value, str) and "string" not in types and types & _CONTAINERS:
        inner = _container(value.strip(), types)
        return value if inner is INVALID else inner
    if isinstance(value, (dict, list)) and "string" in types and not types & _CONTAINERS:
        return dumps(value)
    return value

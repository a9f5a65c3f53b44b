"""Values that a JSON schema allows, and such that it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from hypothesis import strategies as st

Schema: TypeAlias = Mapping[str, Any]

_FEW = 3  # members of an object that are not required, items of an array
_FAR = 1 << 64
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-_FAR, _FAR) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda one: st.lists(one, max_size=_FEW) | st.dictionaries(st.text(max_size=5), one, max_size=_FEW),
    max_leaves=5,
)


def around(schema: Schema, root: Schema) -> st.SearchStrategy[Any]:
    """Values of the schema, values with a member that is anything, and anything. `root`: where references lead."""
    right = of(schema, root)
    spoilt = st.builds(_spoilt, right, st.randoms(use_true_random=False), JUNK)
    return st.one_of(right, right, spoilt, JUNK)


def of(schema: Schema, root: Schema) -> st.SearchStrategy[Any]:
    """Values that the schema allows, as far as it says so by types, bounds, lists of values and members."""
    if "$ref" in schema:
        found: Any = root
        for name in schema["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        return st.deferred(lambda: of(found, root))
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return st.one_of([of(one, root) for one in choices])
    make = _KINDS.get(schema.get("type", ""))
    return JUNK if make is None else make(schema, root)


def _spoilt(value: Any, random: Any, junk: Any) -> Any:
    if not isinstance(value, dict):
        return junk
    return {**value, random.choice([*value, "unknown"]): junk}


def _text(schema: Schema, _root: Schema) -> st.SearchStrategy[Any]:
    least = schema.get("minLength", 0)
    return st.text(min_size=least, max_size=max(least, min(schema.get("maxLength", 12), 12)))


def _number(schema: Schema, _root: Schema, make: Callable[..., st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    least, most = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    return make(least, most)


def _array(schema: Schema, root: Schema) -> st.SearchStrategy[Any]:
    return st.lists(of(schema.get("items", {}), root), max_size=_FEW)


def _object(schema: Schema, root: Schema) -> st.SearchStrategy[Any]:
    members, needed = schema.get("properties", {}), set(schema.get("required", ()))
    fixed = st.fixed_dictionaries({name: of(one, root) for name, one in members.items() if name in needed})
    others = [(name, of(one, root)) for name, one in members.items() if name not in needed]
    if not others:
        return fixed
    some = st.lists(st.sampled_from(range(len(others))), max_size=_FEW, unique=True)
    more = some.flatmap(lambda chosen: st.fixed_dictionaries(dict(others[at] for at in chosen)))
    return st.builds(lambda one, two: {**one, **two}, fixed, more)


_KINDS: Mapping[str, Callable[[Schema, Schema], st.SearchStrategy[Any]]] = {
    "string": _text,
    "boolean": lambda *_: st.booleans(),
    "null": lambda *_: st.none(),
    "integer": lambda schema, root: _number(schema, root, st.integers),
    "number": lambda schema, root: _number(
        schema, root, lambda least, most: st.floats(least, most, allow_nan=False, allow_infinity=False)
    ),
    "array": _array,
    "object": _object,
}

"""The tools of a request: the tool that a written name means, and the types of its parameters."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from supervisor.core.toolcalls.jsontext import Json
from supervisor.core.toolcalls.schema import Schema, SchemaTypes, Types, fitted, typed

MAX_NAME: Final = 256
_NAMESPACES: Final = ("functions.", "function.", "tools.", "default_api.")
_NUMBER: Final = re.compile(r":[0-9]*$")
_FOLD: Final = str.maketrans("-. ", "___")
_ANY_NAME: Final = re.compile(r"[A-Za-z_][\w.-]{0,63}")
_ANYTHING: Final[Schema] = {}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of the request.

    Attributes:
        order: its parameters, required ones first: what positional arguments mean.
        types: of each parameter that it names.
        other: types of parameters that it does not name; None where the schema says nothing of them.
        coerce: False leaves text strings and values alone.
    """

    name: str
    order: tuple[str, ...] = ()
    types: Mapping[str, Types] = field(default_factory=dict)
    other: Types | None = None
    coerce: bool = True

    def from_text(self, key: str, text: str, hint: Types | None = None) -> Json:
        """Return the value of a parameter that was written as text; `hint` counts where no schema gives a type."""
        if not self.coerce:
            return text
        known = self.types.get(key, self.other)
        if known is not None:
            return typed(text, known)
        return typed(text, hint) if hint else text

    def from_json(self, key: str, value: Json) -> Json:
        """Return the value of a parameter that was written as JSON."""
        known = self.types.get(key, self.other)
        return value if known is None or not self.coerce else fitted(value, known)

    def admits(self, key: str, text: str) -> bool:
        """Return whether text for this parameter, which the schema names, is of its type."""
        types = self.types[key]
        return not self.coerce or "string" in types or not isinstance(typed(text, types), str)

    def says_string(self, key: str) -> bool:
        """Return whether the schema names this parameter and admits a string."""
        return "string" in self.types.get(key, frozenset())

    def is_plain_string(self, key: str) -> bool:
        """Return whether text for this parameter is a string, whatever it looks like."""
        return not self.coerce or self.types.get(key, self.other) in (None, frozenset({"string"}))


class Tools:
    """The tools that may be called. The schema of one is read when it is asked for; `read` reads them all.

    Args:
        tools: as in the request: OpenAI's form, with or without `function` around it, or Anthropic's.
        tool_choice: as in the request; a named tool leaves only that one, "none" leaves none.
        coerce, forward_unknown: see `Options`.
    """

    def __init__(
        self,
        tools: object,
        tool_choice: object = None,
        *,
        coerce: bool = True,
        forward_unknown: bool = False,
    ) -> None:
        wanted = _wanted(tool_choice)
        self._forward, self._coerce = forward_unknown, coerce
        declared = () if tool_choice == "none" else _declared(tools)
        self._schemas = {name: schema for name, schema in declared if wanted is None or name == wanted}
        self._types = SchemaTypes()
        self._read: dict[str, Tool] = {}

    def __bool__(self) -> bool:
        return bool(self._schemas)

    def read(self) -> None:
        """Read all schemas: a large request's would keep others waiting when they are asked for."""
        for name in self._schemas:
            self._tool(name)

    def find(self, written: str) -> Tool | None:
        """Return the tool of this name; None if no tool has it.

        The name counts as declared, without a known prefix and number, or as the only one that differs in case and in
        `-`, `_`, `.` and blank alone.
        """
        name = written.strip()
        for one in (name, _bare(name)):
            if one in self._schemas:
                return self._tool(one)
        for one in (name, _bare(name)):
            found = self._folded.get(_fold(one))
            if found is not None:
                return self._tool(found)
        bare = _bare(name)
        return Tool(bare, types={}) if self._forward and self._schemas and _ANY_NAME.fullmatch(bare) else None

    def longest(self, text: str) -> str:
        """Return the longest declared name with which `text` begins; nothing if there is none."""
        beginnings = (text[:count] for count in range(min(len(text), MAX_NAME), 0, -1))
        return next((name for name in beginnings if name in self._schemas), "")

    def begins(self, text: str) -> bool:
        """Return whether `text` is the beginning of a declared name, or all of it."""
        return _begins_one(text, self._names)

    @cached_property
    def _folded(self) -> Mapping[str, str | None]:
        """The declared names by what `_fold` makes of them; None where it makes the same of several."""
        found: dict[str, str | None] = {}
        for name in self._schemas:
            folded = _fold(name)
            found[folded] = None if folded in found else name
        return found

    @cached_property
    def _names(self) -> list[str]:
        return sorted(self._schemas)

    def _tool(self, name: str) -> Tool:
        if name not in self._read:
            self._read[name] = _tool(name, self._schemas[name], self._types, coerce=self._coerce)
        return self._read[name]


def _begins_one(text: str, names: list[str]) -> bool:
    """Return whether one of the sorted names begins with the text."""
    at = bisect_left(names, text)
    return at < len(names) and names[at].startswith(text)


def _fold(name: str) -> str:
    return name.lower().translate(_FOLD)


def _unprefixed(name: str) -> str:
    for prefix in _NAMESPACES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def _bare(name: str) -> str:
    return _NUMBER.sub("", _unprefixed(name)).strip()


def _wanted(tool_choice: object) -> str | None:
    """Return the name that a named `tool_choice` forces."""
    if not isinstance(tool_choice, Mapping):
        return None
    inner = tool_choice.get("function")
    name = inner.get("name") if isinstance(inner, Mapping) else tool_choice.get("name")
    return name if isinstance(name, str) else None


def _declared(tools: object) -> list[tuple[str, Schema]]:
    found: list[tuple[str, Schema]] = []
    for entry in tools if isinstance(tools, Sequence) and not isinstance(tools, str) else ():
        if not isinstance(entry, Mapping):
            continue
        inner = entry.get("function")
        described = inner if isinstance(inner, Mapping) else entry
        name = described.get("name")
        schema = described.get("parameters") or described.get("input_schema")
        if isinstance(name, str) and name.strip() and len(name) <= MAX_NAME:
            found.append((name, schema if isinstance(schema, Mapping) else _ANYTHING))
    return found


def _tool(name: str, schema: Schema, types: SchemaTypes, *, coerce: bool) -> Tool:
    properties = schema.get("properties")
    described: Mapping[str, object] = properties if isinstance(properties, Mapping) else {}
    listed = schema.get("required")
    required = [key for key in listed if isinstance(key, str) and key in described] if isinstance(listed, list) else []
    others = schema.get("additionalProperties")
    return Tool(
        name=name,
        order=tuple(dict.fromkeys((*required, *described))),
        types={key: types.of(one, schema) for key, one in described.items()},
        other=types.of(others, schema) if isinstance(others, Mapping) and others else None,
        coerce=coerce,
    )

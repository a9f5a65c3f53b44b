"""What becomes of a parameter: each fate turns a value into the fields that the engine gets for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from supervisor.errors import InvalidRequest

Fields = Mapping[str, object]


class Fate(Protocol):
    """What becomes of a parameter.

    Attributes:
        drops: the engine must not see the field itself.
    """

    @property
    def drops(self) -> bool: ...

    @property
    def text(self) -> str:
        """The fate in words, for the page."""
        ...

    def fields(self, name: str, value: object, asked: Fields) -> Fields:
        """Return the fields that the engine gets besides. Raise InvalidRequest."""
        ...


@dataclass(frozen=True, slots=True)
class Kept:
    """The engine takes it under this name."""

    text: str = "kept"
    drops: bool = False

    def fields(self, name: str, value: object, asked: Fields) -> Fields:
        """Return nothing."""
        return {}


@dataclass(frozen=True, slots=True)
class Unused:
    """Nothing depends on it here: the answer is the same without it."""

    text: str = "has no effect"
    drops: bool = False

    def fields(self, name: str, value: object, asked: Fields) -> Fields:
        """Return nothing."""
        return {}


@dataclass(frozen=True, slots=True)
class Renamed:
    """The engine has another name for it, which counts if the request has both."""

    to: str
    drops: bool = False

    @property
    def text(self) -> str:
        """The fate in words."""
        return f"becomes `{self.to}`"

    def fields(self, name: str, value: object, asked: Fields) -> Fields:
        """Return it under the engine's name."""
        return {} if asked.get(self.to) is not None else {self.to: value}


@dataclass(frozen=True, slots=True)
class Refused:
    """It cannot be done; only values that ask for nothing are taken.

    Attributes:
        unless: those values, null aside.
        instead: a sentence that says what can be done.
    """

    instead: str
    unless: tuple[object, ...] = ()
    drops: bool = False

    @property
    def text(self) -> str:
        """The fate in words."""
        taken = " or ".join(f"`{_json(one)}`" for one in self.unless)
        return f"refused{f' unless it is {taken}' if taken else ''}. {self.instead}"

    def fields(self, name: str, value: object, asked: Fields) -> Fields:
        """Return nothing. Raise InvalidRequest."""
        if any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in self.unless):
            return {}
        raise InvalidRequest(f"`{name}` cannot be done by llama-server. {self.instead}", param=name)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint on the form of the answer, of which a request may have one. convert: gets name and value."""

    text: str
    convert: Callable[[str, object], Fields]
    drops: bool = False

    def fields(self, name: str, value: object, asked: Fields) -> Fields:
        """Return the engine's own fields for it. Raise InvalidRequest where the request has another one."""
        made = self.convert(name, value)
        other = None if _CONSTRAINTS.isdisjoint(made) else _constraint_in(asked)
        if other is not None:
            raise InvalidRequest(f"`{name}` and `{other}` both say what form the answer has; give one.", param=name)
        return made


_CONSTRAINTS: Final = frozenset({"response_format", "json_schema", "grammar"})

KEPT: Final = Kept()
UNUSED: Final = Unused()


def _constraint_in(asked: Fields) -> str | None:
    """Return the name of the engine's own constraint that a request has."""
    shape = asked.get("response_format")
    if isinstance(shape, Mapping) and shape.get("type") not in (None, "text"):
        return "response_format"
    return next((name for name in ("json_schema", "grammar") if asked.get(name) is not None), None)


def _json(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)

"""The rows of options, from which everything else that knows options is made."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, partial
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from supervisor.core.options.kinds import Choice, Kind, Truth

_ROW = "row"  # where a field's metadata has it


class Mark(enum.Flag):
    """A property of an option.

    Attributes:
        CONFIGURATION: it names a file, a host or a variable of the machine; no client may set it.
        FREE: slots that were saved before it changed can be taken up after it: it says where the model runs, how fast,
            how much of it, or how it is asked, and changes no number in the caches.
        COUNTED: the estimate counts it, which supervisor/core/launch/convert.py tells it.
        TYPED: `load` and `plan` have a flag of its own for it; all others go with `--set`.
        RULED: how it becomes arguments is a rule of its own in supervisor/core/launch/emit.py.
    """

    PLAIN = 0
    CONFIGURATION = enum.auto()
    FREE = enum.auto()
    COUNTED = enum.auto()
    TYPED = enum.auto()
    RULED = enum.auto()


class Way(enum.Enum):
    """The way in which an option becomes arguments: by a value, as a switch, by a rule of its own, or not at all."""

    VALUE = enum.auto()
    SWITCH = enum.auto()
    RULE = enum.auto()
    NONE = enum.auto()


@dataclass(frozen=True, slots=True)
class Option:
    """A launch option.

    Attributes:
        name: llama-server's long one, with underscores.
        kind: what a value may be.
        optional: None says that nothing is asked for.
        default: what counts where nothing is said; None, or empty: llama-server's own default.
        on, off: llama-server's spellings that carry the value or switch it on, and those that switch it off; a binary
            gets the first that it knows. Without any the option is for the supervisor itself.
        help: one line for people.
        marks: what is true of it.
        others: what other programs call it.
        example: how config.example.yaml shows it.
        begins: the heading above it and those that follow, or empty.
    """

    name: str
    kind: Kind
    optional: bool
    default: object
    on: tuple[str, ...]
    off: tuple[str, ...]
    help: str
    marks: Mark
    others: tuple[str, ...]
    example: str
    begins: str

    @property
    def client(self) -> bool:
        """True if clients of the REST interface may set it."""
        return Mark.CONFIGURATION not in self.marks

    @property
    def way(self) -> Way:
        """Way in which the option becomes arguments."""
        if Mark.RULED in self.marks or not self.on:
            return Way.RULE if self.on else Way.NONE
        return Way.SWITCH if isinstance(self.kind, Truth) else Way.VALUE

    @property
    def short(self) -> tuple[str, ...]:
        """llama-server's short spellings."""
        return tuple(flag for flag in self.on if not flag.startswith("--"))


def option(  # noqa: PLR0913 - one plain value per thing that is said of an option
    spellings: str,
    help: str,
    marks: Mark = Mark.PLAIN,
    *,
    default: object = None,
    others: str = "",
    example: str = "",
    begins: str = "",
) -> Any:
    """Return a row, as the default of a field.

    Args:
        spellings: llama-server's, the newest first; of a switch ` / ` and those of the negative.
        help: one line for people.
        marks: what is true of it.
        default: None, or an empty list, is llama-server's own.
        others: what other programs call it.
        example: for config.example.yaml; empty: the default.
        begins: the heading that it stands under, if it is the first.
    """
    on, _, off = spellings.partition("/")
    said = partial(
        Option,
        on=tuple(on.split()),
        off=tuple(off.split()),
        help=help,
        marks=marks,
        others=tuple(others.split()),
        example=example,
        begins=begins,
    )
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata={_ROW: partial(said, default=dict(default))})
    return field(default=default, metadata={_ROW: partial(said, default=default)})


def options_of(table: type) -> tuple[Option, ...]:
    """Return the rows of a dataclass whose fields are made with `option`, in the order of a command line."""
    return _read(table)


@cache
def _read(table: type) -> tuple[Option, ...]:
    hints = get_type_hints(table, include_extras=True)
    return tuple(_row(one.name, hints[one.name], one.metadata[_ROW]) for one in fields(table))


def _row(name: str, hint: object, said: Callable[..., Option]) -> Option:
    optional = _is_optional(hint)
    given = next(one for one in get_args(hint) if one is not NoneType) if optional else hint
    return said(name=name, kind=_kind(given), optional=optional)


def _is_optional(hint: object) -> bool:
    return get_origin(hint) is not Literal and NoneType in get_args(hint)


def _kind(hint: object) -> Kind:
    if hint is bool:
        return Truth()
    if get_origin(hint) is Literal:
        return Choice(get_args(hint))
    kind: Kind = get_args(hint)[1]  # of an `Annotated`
    return kind

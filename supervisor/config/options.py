"""Make settings from the table of launch options: a field for each row, and the options that the fields amount to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import GenericAlias
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, Field, create_model

from supervisor.config.base import (
    Flag,
    JsonObject,
    Name,
    Number,
    Override,
    Path,
    Sizes,
    Strict,
    Text,
    at_most,
    decimal,
    fits_a_command_line,
    whole,
)
from supervisor.core.options import LaunchOptions, LoraAdapter, Option, kinds, options_of

Annotation: TypeAlias = Any
"""A type that is made while the program runs."""

_Model = TypeVar("_Model", bound=BaseModel)
_Table = TypeVar("_Table")


class LoraSettings(Strict):
    """An adapter's file, and how strongly it is applied."""

    path: Path
    scale: Number = 1.0


def with_options(rows: Iterable[Option]) -> Callable[[type[_Model]], type[_Model]]:
    """Give a class of settings a field for each of these options, with its type, its bounds and its default.

    A type checker does not see the fields; `launch_options` gives the same values as a typed object.
    """
    fields: dict[str, Any] = {row.name: (_type_of(row), _default_of(row)) for row in rows}

    def made(model: type[_Model]) -> type[_Model]:
        return create_model(
            model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields
        )

    return made


def chosen_from(table: type[_Table], settings: BaseModel) -> _Table:
    """Return the options of a table that these settings ask for; options without a field keep their default."""
    given = settings.model_dump(include={row.name for row in options_of(table)})
    if "lora" in given:
        given["lora"] = tuple(LoraAdapter(**adapter) for adapter in given["lora"])
    return table(**given)


def launch_options(settings: BaseModel) -> LaunchOptions:
    """Return the launch options that these settings ask for."""
    return chosen_from(LaunchOptions, settings)


def _type_of(row: Option) -> Annotation:
    found = setting_type(row.kind)
    return found | None if row.optional else found


def _default_of(row: Option) -> Any:
    return Field(default_factory=dict) if isinstance(row.default, Mapping) else row.default


def setting_type(kind: kinds.Kind) -> Annotation:
    """Return the annotation of a field for values of this kind."""
    return _MAKERS[type(kind)](kind)


def _text(kind: kinds.Text) -> Annotation:
    limit = Field(max_length=kind.most) if kind.what == "text" else Field(max_length=kind.most, description=kind.told)
    return Annotated[str, limit]


def _many(kind: kinds.Many) -> Annotation:
    several = GenericAlias(tuple, (setting_type(kind.item), ...))
    return Annotated[several, Field(max_length=kind.most), at_most(kind.most)]


def _words(kind: kinds.Words) -> Annotation:
    limit = Field(max_length=kind.most)
    return Annotated[tuple[Text, ...], limit, at_most(kind.most), AfterValidator(fits_a_command_line)]


def _variables(kind: kinds.Variables) -> Annotation:
    return Annotated[dict[Name, Text], Field(max_length=kind.most), at_most(kind.most)]


_MAKERS: Mapping[type, Callable[[Any], Annotation]] = {
    kinds.Truth: lambda _: Flag,
    kinds.Choice: lambda kind: Literal[kind.words],
    kinds.Whole: lambda kind: whole(kind.least, kind.most, kind.unit),
    kinds.Decimal: lambda kind: decimal(kind.least, kind.most),
    kinds.Text: _text,
    kinds.Override: lambda _: Override,
    kinds.Adapter: lambda _: LoraSettings,
    kinds.Many: _many,
    kinds.Words: _words,
    kinds.Variables: _variables,
    kinds.Sizes: lambda _: Sizes,
    kinds.Json: lambda _: JsonObject,
}

"""The kinds of values that settings are made of, each with its bounds, for the file, REST and the command line alike.

Nothing here is without an end: a number has a smallest and a largest value, a text a length, a list and a mapping a
number of entries. tests/config/test_bounds.py walks all settings and fails for one that has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from ipaddress import ip_network
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, WithJsonSchema
from pydantic_core import PydanticCustomError, PydanticKnownError

from supervisor.core.memory.patterns import MOST_CHARACTERS, check_override
from supervisor.core.options.kinds import (
    MOST_COUNT,
    MOST_ENTRIES,
    MOST_LAYERS,
    MOST_MIB,
    MOST_NAMES,
    MOST_NUMBER,
    MOST_SHARE,
    MOST_SLOTS,
    MOST_TEXT,
    MOST_TOKENS,
)
from supervisor.core.text import units

MOST_BODY_MIB = 1 << 16
MOST_SECONDS = 1e9
_JSON_DEPTH = 32
_T = TypeVar("_T")


class Strict(BaseModel):
    """A mapping of the file, or the body of a request, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# ── kinds that are written in more than one way ──────────────────────────────────────────────────────────────────


def _truth(value: object) -> object:
    """Return true or false, also from their names as text, which is what a variable gives."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    raise PydanticCustomError("bool_type", "must be true or false")


def _no_truth(value: object) -> object:
    """Refuse a truth value where a number is wanted."""
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "must be a number")
    return value


def _with_unit(read: Callable[[str], float]) -> BeforeValidator:
    def number(value: object) -> object:
        if isinstance(value, str):
            return read(value)
        return _no_truth(value)

    return BeforeValidator(number)


def _schema(number: dict[str, object], pattern: str) -> WithJsonSchema:
    """Return the schema of a number, or a text with a unit."""
    text = {"type": "string", "pattern": pattern, "maxLength": units.MOST_CHARACTERS}
    return WithJsonSchema({"anyOf": [number, text]})


def _tokens(least: int, most: int = MOST_TOKENS) -> WithJsonSchema:
    return _schema({"type": "integer", "minimum": least, "maximum": most}, units.TOKENS)


def _mebibytes(least: int, most: int = MOST_MIB) -> WithJsonSchema:
    return _schema({"type": "integer", "minimum": least, "maximum": most}, units.MEBIBYTES)


def _seconds(least: str) -> WithJsonSchema:
    return _schema({"type": "number", least: 0, "maximum": MOST_SECONDS}, units.DURATION)


_NUMBER = BeforeValidator(_no_truth)
_TOKENS = _with_unit(units.tokens)
_SIZE = _with_unit(units.mebibytes)
_DURATION = _with_unit(units.seconds)


def whole(least: int, most: int, unit: str) -> Any:
    """Return the type of a whole number with these bounds; where it has a unit, it may end in a letter."""
    bounds = Field(ge=least, le=most)
    if unit == "tokens":
        return Annotated[int, bounds, _TOKENS, _tokens(least, most)]
    if unit == "MiB":
        return Annotated[int, bounds, _SIZE, _mebibytes(least, most)]
    return Annotated[int, bounds, _NUMBER]


def decimal(least: float, most: float) -> Any:
    """Return the type of a number with these bounds."""
    return Annotated[float, Field(ge=least, le=most, allow_inf_nan=False), _NUMBER]


Flag = Annotated[bool, BeforeValidator(_truth)]
Tokens = Annotated[int, Field(ge=0, le=MOST_TOKENS), _TOKENS, _tokens(0)]
SomeTokens = Annotated[int, Field(ge=1, le=MOST_TOKENS), _TOKENS, _tokens(1)]
Context = Annotated[int, Field(ge=256, le=MOST_TOKENS), _TOKENS, _tokens(256)]
Mebibytes = Annotated[int, Field(ge=0, le=MOST_MIB), _SIZE, _mebibytes(0)]
AllMebibytes = Annotated[int, Field(ge=-1, le=MOST_MIB), _SIZE, _mebibytes(-1)]  # -1: no limit
BodyMebibytes = Annotated[int, Field(ge=1, le=MOST_BODY_MIB), _SIZE, _mebibytes(1, MOST_BODY_MIB)]
FetchedMebibytes = Annotated[int, Field(ge=1, le=1024), _SIZE, _mebibytes(1, 1024)]
Seconds = Annotated[float, Field(gt=0, le=MOST_SECONDS, allow_inf_nan=False), _DURATION, _seconds("exclusiveMinimum")]
NoSeconds = Annotated[float, Field(ge=0, le=MOST_SECONDS, allow_inf_nan=False), _DURATION, _seconds("minimum")]

# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────

_MOST_PORT = 65_535
Port = Annotated[int, Field(ge=0, le=_MOST_PORT), _NUMBER]
HeaderKibibytes = Annotated[int, Field(ge=4, le=1024), _NUMBER]
HeaderCount = Annotated[int, Field(ge=16, le=2000), _NUMBER]
Layers = Annotated[int, Field(ge=0, le=MOST_LAYERS), _NUMBER]
AllLayers = Annotated[int, Field(ge=-1, le=MOST_LAYERS), _NUMBER]  # -1: all
Slots = Annotated[int, Field(ge=1, le=MOST_SLOTS), _NUMBER]
Positive = Annotated[int, Field(ge=1, le=MOST_COUNT), _NUMBER]
Natural = Annotated[int, Field(ge=0, le=MOST_COUNT), _NUMBER]
Bytes = Annotated[int, Field(ge=0, le=1 << 50), _NUMBER]
Number = Annotated[float, Field(ge=-MOST_NUMBER, le=MOST_NUMBER, allow_inf_nan=False), _NUMBER]
Portion = Annotated[float, Field(ge=0, le=MOST_SHARE, allow_inf_nan=False), _NUMBER]
SomePortion = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False), _NUMBER]
Probability = Annotated[float, Field(ge=0, le=1), _NUMBER]
Moment = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False), _NUMBER]  # seconds since 1970
TokenBudget = Annotated[int, Field(ge=1, le=1 << 53), _NUMBER]
Priority = Annotated[int, Field(ge=-30, le=30), _NUMBER]

# ── texts, lists, mappings ───────────────────────────────────────────────────────────────────────────────────────


def at_most(entries: int) -> BeforeValidator:
    """Goes beside `max_length`: what has too many entries is refused before any of them is looked at.

    Each entry that is wrong costs a fault of its own, and a client may send tens of thousands.
    """

    def counted(value: object) -> object:
        if isinstance(value, dict | list | tuple) and len(value) > entries:
            kind = "Dictionary" if isinstance(value, dict) else "Tuple"
            told = {"field_type": kind, "max_length": entries, "actual_length": len(value)}
            raise PydanticKnownError("too_long", told)
        return value

    return BeforeValidator(counted)


def fits_a_command_line(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments, if together they are no longer than the system hands to a program."""
    if sum(map(len, value)) > 4 * MOST_TEXT:
        raise ValueError(f"all entries together must be shorter than {4 * MOST_TEXT} characters")
    return value


def _small(value: _T) -> _T:
    """Return JSON if it is neither deep nor, written out, longer than a text may be, and valid for every reader."""
    if _depth(value) > _JSON_DEPTH:
        raise ValueError(f"is nested more than {_JSON_DEPTH} deep")
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise ValueError("holds a number that JSON does not have: NaN or infinity") from None
    if len(text) > MOST_TEXT:
        raise ValueError(f"is longer than {MOST_TEXT} characters, written as JSON")
    return value


def _depth(value: object, above: int = 0) -> int:
    if above > _JSON_DEPTH or not isinstance(value, dict | list):
        return above
    inside = value.values() if isinstance(value, dict) else value
    return max((_depth(one, above + 1) for one in inside), default=above + 1)


def _nameable(text: str) -> str:
    if "\0" in text:
        raise ValueError("a file name cannot contain a NUL character")
    return text


def _network(text: str) -> str:
    try:
        ip_network(text)
    except ValueError as error:
        raise ValueError(f"is no network such as 192.168.0.0/16: {error}") from None
    return text


def _listen(text: str) -> str:
    if int(text.rpartition(":")[2]) > _MOST_PORT:
        raise ValueError(f"has a port above {_MOST_PORT}")
    return text


def _override(text: str) -> str:
    check_override(text)
    return text


_ENDS = Field(json_schema_extra={"x-maxCharacters": MOST_TEXT})  # JSON, as `_small` has it

Name = Annotated[str, Field(max_length=256, description="a name")]
Path = Annotated[str, Field(max_length=4096, description="a path"), AfterValidator(_nameable)]
Target = Annotated[str, Field(max_length=4096, description="a path")]  # or an id, or a model of the hub
Text = Annotated[str, Field(max_length=MOST_TEXT)]
Url = Annotated[
    str,
    Field(pattern=r"^https?://\S+$", max_length=2048, description="an address that begins with http:// or https://"),
]
Secret = Annotated[
    str, Field(min_length=8, max_length=1024, pattern=r"^[!-~]+$", description="8 to 1024 printable ASCII characters")
]
Address = Annotated[str, Field(pattern=r"^[^\s,:]+:\d{1,5}$", max_length=261, description="host:port")]
Listen = Annotated[
    str,
    Field(
        pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^\s,:\[\]]+):\d{1,5}$", max_length=261, description="host:port or [IPv6]:port"
    ),
    AfterValidator(_listen),
]
Origin = Annotated[
    str,
    Field(
        pattern=r"^(\*|null|[a-z][a-z0-9+.-]*://[^\s/?#@]+)$",
        max_length=256,
        description="an origin such as http://localhost:3000, or *",
    ),
]
Network = Annotated[str, Field(max_length=64, description="a network"), AfterValidator(_network)]
Pattern = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Override = Annotated[
    str, Field(max_length=2 * MOST_CHARACTERS, description="PATTERN=BUFFER TYPE"), AfterValidator(_override)
]

Names = Annotated[tuple[Name, ...], Field(max_length=MOST_NAMES), at_most(MOST_NAMES)]
Listens = Annotated[tuple[Listen, ...], Field(max_length=16), at_most(16)]
Addresses = Annotated[tuple[Address, ...], Field(max_length=MOST_NAMES), at_most(MOST_NAMES)]
Origins = Annotated[tuple[Origin, ...], Field(max_length=MOST_NAMES), at_most(MOST_NAMES)]
Networks = Annotated[tuple[Network, ...], Field(max_length=MOST_NAMES), at_most(MOST_NAMES)]
Portions = Annotated[tuple[Portion, ...], Field(max_length=MOST_NAMES), at_most(MOST_NAMES)]
Sizes = Annotated[dict[Name, Mebibytes], Field(max_length=MOST_ENTRIES), at_most(MOST_ENTRIES)]
Json = Annotated[JsonValue, _ENDS]
JsonObject = Annotated[dict[Name, Json], Field(max_length=MOST_ENTRIES), at_most(MOST_ENTRIES), AfterValidator(_small)]

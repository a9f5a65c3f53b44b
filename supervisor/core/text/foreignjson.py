"""Read JSON that other programs wrote, above all engines, and write what was read.

Python's parser decides what is JSON. msgspec's is up to twice as fast and takes less for it: no mark of the byte order,
no half of a pair of surrogates, no `1e999`. What it takes it reads alike; what it refuses is read once more.

Whatever is wrong with a text becomes one error. Python's parser also fails for one that is nested deeply, with an error
that is no ValueError; and what it can still read, nobody further down the stack may be able to write.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

_Kind = TypeVar("_Kind")

MOST_NESTED: Final = 512
"""Arrays and objects in each other."""


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no value of JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)
_PYTHONS: Final = json.JSONDecoder()
_FAST: Final = msgspec.json.Decoder()


class NotJson(ValueError):
    """The text is no JSON, or none that can be worked with; the message says why."""


def parse(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raise NotJson where it is none."""
    return _parse(text, _DECODER)


def typed(text: str | bytes, kind: type[_Kind]) -> _Kind:
    """Return the value of a JSON text that is to be of a kind. Raise NotJson where it is not."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:  # what is no UTF-8 is an error of its own
        raise NotJson(str(error)) from None


def parse_pythons(text: str | bytes) -> Any:
    """Return the same of a text that Python wrote, which may hold `Infinity` and `NaN`, as a `config.json` does."""
    return _parse(text, _PYTHONS)


def _parse(text: str | bytes, decoder: json.JSONDecoder) -> Any:
    try:
        value = _FAST.decode(text)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        value = _parsed(text, decoder)
    if _marks(text) > MOST_NESTED and not _is_shallow(value):
        raise _too_deep()
    return value


def _parsed(text: str | bytes, decoder: json.JSONDecoder) -> Any:
    try:
        return decoder.decode(text if isinstance(text, str) else decoded(text))
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise NotJson(str(error)) from error


def written(value: object) -> bytes:
    """Return a value as JSON in UTF-8. Half of a pair of surrogates, which UTF-8 cannot hold, becomes `?`."""
    return compact(value).encode("utf-8", "replace")


def escaped(value: object) -> bytes:
    """Return a value as JSON in ASCII, in which half of a pair of surrogates stays what it is, an escape.

    A number that is too large for one, as `1e999`, becomes null.
    """
    try:
        return json.dumps(value, allow_nan=False).encode()
    except ValueError:
        return json.dumps(_finite(value)).encode()


def compact(value: object) -> str:
    """Return a value as JSON without spaces. A number that is too large for one, as `1e999`, becomes null."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def decoded(text: bytes) -> str:
    """Return the text of JSON, whatever encoding it is in. Raise ValueError."""
    return text.decode(json.detect_encoding(text), "surrogatepass")


def _marks(text: str | bytes) -> int:
    """Return an upper bound of the nesting depth."""
    return text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_NESTED):
        level = [inner for one in level for inner in _values(one) if isinstance(inner, dict | list)]
        if not level:
            return True
    return False


def _values(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _too_deep() -> NotJson:
    return NotJson(f"it nests arrays and objects more than {MOST_NESTED} deep")

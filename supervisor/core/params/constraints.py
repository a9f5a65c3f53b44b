"""Turn other servers' constraints on the form of an answer into llama-server's: a JSON schema or a grammar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, cast

from supervisor.core.params.fates import Fields
from supervisor.core.params.kinds import OBJECT, TEXT, TEXTS, Kind
from supervisor.core.params.regex import NotRegular, choice_of, grammar_of
from supervisor.core.text.foreignjson import NotJson, parse
from supervisor.errors import InvalidRequest

MOST_CHOICES: Final = 1000
"""Texts to choose from."""

_MOST_CHARACTERS: Final = 1 << 16  # of all of them


def schema(name: str, value: object) -> Fields:
    """Return the fields for a JSON schema, or the text of one. Raise InvalidRequest."""
    if isinstance(value, str):
        try:
            value = parse(value)
        except NotJson as error:
            raise InvalidRequest(f"`{name}` is not JSON: {error}.", param=name) from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"`{name}` must be a JSON schema: an object, or the text of one.", param=name)
    return {"json_schema": value}


def grammar(name: str, value: object) -> Fields:
    """Return the fields for a grammar in GBNF. Raise InvalidRequest."""
    return {"grammar": _admitted(name, value, TEXT)}


def regex(name: str, value: object) -> Fields:
    """Return the fields for a regular expression. Raise InvalidRequest where it cannot be a grammar."""
    pattern = cast(str, _admitted(name, value, TEXT))
    try:
        return {"grammar": grammar_of(pattern)}
    except NotRegular as error:
        message = f"`{name}` cannot become a grammar: {error}. docs/parameters.md says what can; or send `grammar`."
        raise InvalidRequest(message, param=name) from None


def choice(name: str, value: object) -> Fields:
    """Return the fields for a list of texts, one of which is to be the answer. Raise InvalidRequest."""
    texts = cast(list[str], _admitted(name, value, TEXTS))
    if not 1 <= len(texts) <= MOST_CHOICES or sum(map(len, texts)) > _MOST_CHARACTERS:
        most = f"{MOST_CHOICES} texts of {_MOST_CHARACTERS} characters in all"
        raise InvalidRequest(f"`{name}` must have at least one text and at most {most}.", param=name)
    try:
        return {"grammar": choice_of(texts)}
    except NotRegular as error:
        raise InvalidRequest(f"`{name}` cannot become a grammar: {error}.", param=name) from None


def structured(name: str, value: object) -> Fields:
    """Return the fields for vLLM's object of constraints, of which one may be set. Raise InvalidRequest."""
    given = {key: one for key, one in cast(Mapping[str, object], value).items() if one is not None and one is not False}
    wanted = [key for key in _STRUCTURED if key in given]
    if len(wanted) > 1 or "structural_tag" in given:
        known = ", ".join(_STRUCTURED)
        raise InvalidRequest(f"`{name}` must have one of {known}.", param=name)
    return _STRUCTURED[wanted[0]](f"{name}.{wanted[0]}", given[wanted[0]]) if wanted else {}


def formatted(name: str, value: object) -> Fields:
    """Return the fields for the `text` of OpenAI's responses. Raise InvalidRequest.

    A field of that name that is a text itself is something else, of whoever wrote it.
    """
    return shaped(f"{name}.format", value.get("format")) if isinstance(value, Mapping) else {}


def configured(name: str, value: object) -> Fields:
    """Return the fields for Anthropic's `output_config`: a format, and how much to reason. Raise InvalidRequest."""
    given = cast(Mapping[str, object], value)
    effort = given.get("effort")
    fields = {} if effort is None else {"reasoning_effort": _admitted(f"{name}.effort", effort, TEXT)}
    return {**shaped(f"{name}.format", given.get("format")), **fields}


def shaped(name: str, value: object) -> Fields:
    """Return the fields for a format: an object with `type`, and `schema` where that is `json_schema`.

    Raises InvalidRequest.
    """
    if value is None:
        return {}
    given = cast(Mapping[str, object], _admitted(name, value, OBJECT))
    match given.get("type"):
        case "text":
            return {}
        case "json_object":
            return {"response_format": {"type": "json_object"}}
        case "json_schema":
            wanted = _admitted(f"{name}.schema", given.get("schema"), OBJECT)
            return {"response_format": {"type": "json_schema", "json_schema": {"schema": wanted}}}
    raise InvalidRequest(f"`{name}.type` must be text, json_object or json_schema.", param=f"{name}.type")


def _any_object(name: str, value: object) -> Fields:
    return {"json_schema": {"type": "object"}}


_STRUCTURED: Final[Mapping[str, Callable[[str, object], Fields]]] = {
    "json": schema,
    "regex": regex,
    "choice": choice,
    "grammar": grammar,
    "json_object": _any_object,
}


def _admitted(name: str, value: object, kind: Kind) -> object:
    if not kind.admits(value):
        raise InvalidRequest(f"`{name}` must be {kind.text}.", param=name)
    return value

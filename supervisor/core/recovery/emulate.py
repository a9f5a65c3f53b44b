"""Emulate tools for templates that know none: describe them in the prompt, write earlier calls and results out as text.

The form is the one the model's family was shown in its maker's documentation: Gemma gets Python signatures and fences
named `tool_code` and `tool_output`, all others get Hermes' JSON between tags. What the model answers is then found by
the recoverer. A call that must be is enforced by a schema: the engine lets the model say nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import Final, Protocol, cast

from supervisor.core.recovery.arguments import Values, is_object
from supervisor.core.recovery.shapes import items, mapping
from supervisor.core.recovery.typed import Part, Said, Tool
from supervisor.core.toolcalls import REGISTRY

_NOT_SENT: Final = frozenset({"tools", "tool_choice", "parallel_tool_calls"})
_GEMMA_MARK: Final = "<start_of_turn>"
_MEASURED_BUILD: Final = 11434
_HARMONY: Final = ("<|start|>", "<|channel|>", "<|message|>")
_PYTHON: Final[Mapping[str, str]] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
}


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """The facts that an engine tells of its template.

    Attributes:
        tools: it shows tools to the model.
        system: it knows a system message.
        text: the template itself.
        build: number of the engine's build; 0 where it does not say.
    """

    tools: bool = True
    system: bool = True
    text: str = ""
    build: int = 0

    @property
    def is_harmony(self) -> bool:
        """True if answers are messages on channels, of which only the engine's parser makes one."""
        return all(mark in self.text for mark in _HARMONY)

    @property
    def swallows(self) -> bool:
        """True if the engine's parser for this template drops text that is not in its form, without an error.

        Measured on b11434: those for Qwen's XML, for Gemma 4 and for Mistral's `[ARGS]` do not ask whether they have
        read everything. What earlier builds do is not known.
        """
        return self.build >= _MEASURED_BUILD and REGISTRY.is_swallowed(self.text)

    @staticmethod
    def from_props(props: Mapping[str, object]) -> TemplateFacts:
        """Read the facts from `GET /props`; assume those that it does not give."""
        caps = props.get("chat_template_caps")
        known = caps if isinstance(caps, Mapping) else {}
        text = props.get("chat_template")
        build = re.match(r"b(\d+)", str(props.get("build_info")))
        return TemplateFacts(
            tools=known.get("supports_tools") is not False,
            system=known.get("supports_system_role") is not False,
            text=text if isinstance(text, str) else "",
            build=int(build[1]) if build else 0,
        )


class Style(Protocol):
    """The way to write tools, calls and results."""

    def tools(self, tools: Sequence[Tool]) -> str: ...

    def call(self, name: str, arguments: object) -> str: ...

    def result(self, name: str, content: str) -> str: ...


class Hermes:
    """JSON between tags."""

    def tools(self, tools: Sequence[Tool]) -> str:
        """Return the system message."""
        listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        return (
            "You can call functions. These are their signatures:\n"
            f"<tools>\n{listed}\n</tools>\n\n"
            "To call a function, answer with its name and its arguments as JSON between these tags:\n"
            '<tool_call>\n{"name": "FUNCTION", "arguments": {"PARAMETER": "VALUE"}}\n</tool_call>'
        )

    def call(self, name: str, arguments: object) -> str:
        """Return an earlier call."""
        return f'<tool_call>\n{{"name": {_json(name)}, "arguments": {_json(arguments)}}}\n</tool_call>'

    def result(self, name: str, content: str) -> str:
        """Return the result of an earlier call."""
        return f"<tool_response>\n{content}\n</tool_response>"


class Gemma:
    """Python in fences."""

    def tools(self, tools: Sequence[Tool]) -> str:
        """Return the system message."""
        listed = "\n\n".join(_signature(tool) for tool in tools)
        return (
            f"You can call these Python functions:\n\n```python\n{listed}\n```\n\n"
            "To call functions, answer with nothing but the calls, with keyword arguments, in a fence like this:\n"
            "```tool_code\nfunction(parameter=value)\n```\n"
            "What they return comes in a fence named tool_output. Call one only if it is needed."
        )

    def call(self, name: str, arguments: object) -> str:
        """Return an earlier call."""
        if isinstance(arguments, _AsWritten):
            return f"```tool_code\n{name}(**{arguments.text})\n```"
        given = arguments.items() if isinstance(arguments, Mapping) else ()
        return f"```tool_code\n{name}({', '.join(f'{key}={value!r}' for key, value in given)})\n```"

    def result(self, name: str, content: str) -> str:
        """Return the result of an earlier call."""
        return f"```tool_output\n{content}\n```"


def emulated(body: Mapping[str, object], facts: TemplateFacts) -> dict[str, object]:
    """Return the request without tools, with everything about them in its messages."""
    style: Style = Gemma() if _GEMMA_MARK in facts.text else Hermes()
    tools = [cast(Tool, mapping(tool.get("function", tool))) for tool in map(mapping, items(body.get("tools")))]
    values = Values()
    written = [_written(message, style, names, values) for message, names in _with_names(body.get("messages"))]
    messages = _introduced(written, style.tools(tools), system=facts.system)
    changed = {**{key: value for key, value in body.items() if key not in _NOT_SENT}, "messages": _merged(messages)}
    wanted = _wanted(body.get("tool_choice"), tools)
    if wanted:
        schema = {"anyOf": [_call_schema(tool) for tool in wanted]}
        changed["response_format"] = {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}
    return changed


def retold(body: Mapping[str, object], facts: TemplateFacts) -> dict[str, object]:
    """Return a request that offers no tools, with turns that any template takes.

    Turns of tools are text. The system message stands in the first turn where the template knows none, neighbours of
    one role are one message, and the user begins.
    """
    style: Style = Gemma() if _GEMMA_MARK in facts.text else Hermes()
    values, messages = Values(), body.get("messages")
    written = [_said(message, style, names, values, facts) for message, names in _with_names(messages)]
    others = [one for one in written if one.get("role") != "system"]
    system = [one for one in written if one.get("role") == "system"]
    if not facts.system and system:
        others = [*(cast(Said, {**one, "role": "user"}) for one in system), *others]
        system = []
    if others and others[0].get("role") != "user":
        others = [{"role": "user", "content": ""}, *others]
    return {**body, "messages": _merged([*system, *others], _run_of)}


def _run_of(message: Said) -> object:
    """Return what neighbours that become one message share; turns of tools stay by themselves."""
    of_tools = message.get("role") == "tool" or message.get("tool_calls")
    return id(message) if of_tools else message.get("role")


def _said(message: Said, style: Style, names: Mapping[str, str], values: Values, facts: TemplateFacts) -> Said:
    """Return a message as the template takes it: where it knows tools, its turns stay."""
    told = message if facts.tools else _written(message, style, names, values)
    return {**told, "role": "system"} if told.get("role") == "developer" else told


def _wanted(choice: object, tools: list[Tool]) -> list[Tool]:
    """Return the tools of which one must be called."""
    if choice == "required":
        return tools
    name = mapping(mapping(choice).get("function")).get("name")
    return [tool for tool in tools if name is not None and tool.get("name") == name]


def _call_schema(tool: Tool) -> dict[str, object]:
    arguments = tool.get("parameters") or {"type": "object"}
    properties = {"name": {"const": tool.get("name")}, "arguments": arguments}
    return {
        "type": "object",
        "properties": properties,
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _with_names(messages: object) -> Iterator[tuple[Said, Mapping[str, str]]]:
    """Yield each message, and the names of the calls so far by id."""
    names: dict[str, str] = {}
    for message in items(messages):
        if isinstance(message, Mapping):
            for call in map(mapping, items(message.get("tool_calls"))):
                names[str(call.get("id"))] = str(mapping(call.get("function")).get("name", ""))
            yield cast(Said, {**message}), names


def _written(message: Said, style: Style, names: Mapping[str, str], values: Values) -> Said:
    if message.get("role") == "tool":
        name = names.get(str(message.get("tool_call_id")), "")
        return {"role": "user", "content": style.result(name, _text(message.get("content")))}
    calls = items(message.pop("tool_calls", None))
    if not calls:
        return message
    parts = [_text(message.get("content"))] if message.get("content") else []
    for call in calls:
        function = mapping(mapping(call).get("function"))
        parts.append(style.call(str(function.get("name", "")), _arguments(function.get("arguments"), values)))
    return {**message, "content": "\n".join(parts)}


@dataclass(frozen=True, slots=True)
class _AsWritten:
    """A JSON object that takes long to read, as the client wrote it."""

    text: str


def _arguments(given: object, values: Values) -> object:
    """Return the arguments of an earlier call; those that take long to read stay as they were written."""
    if not isinstance(given, str):
        return given
    with suppress(ValueError):
        return values.of(given)
    return _AsWritten(given) if is_object(given) else {}


def _json(value: object) -> str:
    return value.text if isinstance(value, _AsWritten) else json.dumps(value, ensure_ascii=False)


def _text(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def _introduced(messages: list[Said], tools: str, *, system: bool) -> list[Said]:
    """Return the messages with the tools in the system message; where there is none, in the first one."""
    said = [_text(one.get("content")) for one in messages if str(one.get("role")) in {"system", "developer"}]
    others = [one for one in messages if str(one.get("role")) not in {"system", "developer"}]
    return [{"role": "system" if system else "user", "content": "\n\n".join([*said, tools])}, *others]


def _role(message: Said) -> object:
    return message.get("role")


def _merged(messages: list[Said], run_of: Callable[[Said], object] = _role) -> list[Said]:
    """Return neighbours of one role as one message, as many templates demand that roles alternate."""
    return [_as_one([*run]) for _, run in groupby(messages, run_of)]


def _as_one(run: list[Said]) -> Said:
    """Return several messages as one; in linear time, since a client may send thousands."""
    if len(run) == 1:
        return run[0]
    contents = [message.get("content") for message in run]
    texts = [*takewhile(lambda content: not isinstance(content, list), contents)]
    text = "\n\n".join(filter(None, map(_text, texts)))
    one: Said = {}
    for message in run:
        one |= message
    if len(texts) == len(contents):
        return {**one, "content": text}
    before = [text] if texts else []
    return {**one, "content": [part for content in (*before, *contents[len(texts) :]) for part in _parts(content)]}


def _parts(content: str | list[Part] | None) -> list[Part]:
    return content if isinstance(content, list) else [{"type": "text", "text": _text(content)}]


def _signature(tool: Tool) -> str:
    schema = mapping(tool.get("parameters"))
    required = frozenset(key for key in items(schema.get("required")) if isinstance(key, str))
    properties = {key: mapping(one) for key, one in mapping(schema.get("properties")).items()}
    ordered = sorted(properties, key=lambda key: key not in required)
    given = [f"{key}: {_type(properties[key])}{'' if key in required else ' = None'}" for key in ordered]
    about = [str(tool.get("description") or tool.get("name"))]
    about += [f"{key}: {one['description']}" for key, one in properties.items() if one.get("description")]
    text = "\n    ".join(about)
    return f'def {tool.get("name")}({", ".join(given)}) -> dict:\n    """{text}"""'


def _type(schema: Mapping[str, object]) -> str:
    allowed = items(schema.get("enum"))
    if allowed:
        return f"Literal[{', '.join(map(repr, allowed))}]"
    kind = schema.get("type")
    return _PYTHON.get(kind, "Any") if isinstance(kind, str) else "Any"

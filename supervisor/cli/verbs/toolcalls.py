"""`toolcalls parse`: what the recovery of tool calls makes of a text."""

from __future__ import annotations

import argparse
import codecs
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict, cast

from supervisor.cli.exits import OK
from supervisor.cli.lines import answer_lines
from supervisor.cli.options import inner_verb, positive
from supervisor.cli.piped import piped_bytes
from supervisor.cli.registry import Verb
from supervisor.cli.render import print_json, write
from supervisor.core.toolcalls import REGISTRY, Options
from supervisor.core.toolcalls.registry import Registry
from supervisor.core.toolcalls.whole import Answer, Request, finish_reason_of, read_answer
from supervisor.errors import InvalidRequest

VERB = Verb(
    summary="find tool calls in a model's text",
    order=210,
    description="Find tool calls in a model's text.",
    examples=(
        ("toolcalls parse --tools tools.json < answer.txt", "the text and the calls that a client would get"),
        ("toolcalls parse --jsonl < answers.jsonl", "many answers, a line each"),
    ),
    exits=((1, "with --jsonl: the answer to a line was an error"),),
)

_PARSE = """Read a model's answer from standard input and show the text and the tool calls that clients would get
(docs/toolcalls.md). No daemon and no engine is needed."""
_JSONL = """Read lines `{"text", "tools", "finish_reason", "reasoning_content", "tool_choice", "parallel_tool_calls"}`,
all but `text` optional, and write an object, or `{"error": {"code", "message"}}`, for each."""
_ENCODING = ("utf-8", "surrogatepass")
_OF_TYPES: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "tools": (list, type(None)),
    "finish_reason": (str, type(None)),
    "reasoning_content": (str, type(None)),
    "tool_choice": (str, dict, type(None)),
    "parallel_tool_calls": (bool, type(None)),
}


class Asked(TypedDict, total=False):
    """A line of `--jsonl`."""

    text: str
    tools: object
    finish_reason: str | None
    reasoning_content: str | None
    tool_choice: object
    parallel_tool_calls: bool | None


class Call(TypedDict):
    """A call that was found; the arguments are JSON text."""

    name: str
    arguments: str


class Parsed(TypedDict):
    """The result for one text."""

    content: str
    reasoning_content: str
    tool_calls: list[Call]
    dialect: str | None
    finish_reason: str


def add_options(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="toolcalls_verb", required=True)
    parse = inner_verb(verbs, "parse", "find the calls in a text", run_parse, _PARSE)
    parse.add_argument("--tools", metavar="FILE", help="the request's tools: a JSON array, or a request that has one")
    parse.add_argument("--finish-reason", metavar="REASON", default="stop", help="the engine's (default: %(default)s)")
    parse.add_argument("--chunk", type=positive, metavar="N", help="feed N bytes at a time; the result is the same")
    parse.add_argument("--jsonl", action="store_true", help=_JSONL)


def run_parse(args: argparse.Namespace) -> int:
    """Parse standard input, whole or by line."""
    tools = _tools(args.tools)
    if args.jsonl:
        of_all: Asked = {"tools": tools, "finish_reason": args.finish_reason}
        return answer_lines(lambda line: parsed({**of_all, **_asked(line)}, args.chunk))
    text = piped_bytes().decode("utf-8", "replace")
    asked: Asked = {"text": text, "tools": tools, "finish_reason": args.finish_reason}
    found = parsed(asked, args.chunk)
    if args.json:
        print_json(found)
    else:
        _show(found)
    return OK


def _asked(line: str) -> Asked:
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"A line is not valid JSON: {error}.") from None
    if not isinstance(asked, dict) or "text" not in asked:
        raise InvalidRequest('A line must be a JSON object with "text".', param="text")
    for name, types in _OF_TYPES.items():
        if not isinstance(asked.get(name, ""), types) and name in asked:
            raise InvalidRequest(f"`{name}` has the wrong type.", param=name)
    return cast(Asked, asked)


def parsed(asked: Asked, chunk: int | None, registry: Registry = REGISTRY) -> Parsed:
    """Return the result for one text.

    Args:
        asked: a line of `--jsonl`.
        chunk: bytes at a time; None for all at once.
        registry: the dialects that are looked for.
    """
    reason = asked.get("finish_reason") or "stop"
    parallel = asked.get("parallel_tool_calls") is not False
    options = Options(parallel_tool_calls=parallel, pieces_after=None)
    request = Request(asked.get("tools"), asked.get("tool_choice"), options, registry=registry)
    thought = _cut(asked.get("reasoning_content") or "", chunk)
    answer = read_answer(request, _cut(asked["text"], chunk), thought, reason)
    return _described(answer, reason)


def _described(answer: Answer, reason: str) -> Parsed:
    return {
        "content": answer.content,
        "reasoning_content": answer.reasoning,
        "tool_calls": [{"name": call.name, "arguments": call.arguments} for call in answer.calls],
        "dialect": answer.calls[0].dialect if answer.calls else None,
        "finish_reason": finish_reason_of(answer, reason),
    }


def _cut(text: str, size: int | None) -> Iterator[str]:
    """Yield the text as a decoder would that gets so many bytes at a time."""
    if size is None:
        yield text
        return
    data = text.encode(*_ENCODING)
    decoder = codecs.getincrementaldecoder(_ENCODING[0])(_ENCODING[1])
    for start in range(0, len(data), size):
        yield decoder.decode(data[start : start + size])
    yield decoder.decode(b"", final=True)


def _tools(file: str | None) -> object:
    if file is None:
        return None
    try:
        found = json.loads(Path(file).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"--tools {file} cannot be read: {error}.", param="tools") from None
    found = found.get("tools") if isinstance(found, dict) else found
    if not isinstance(found, list):
        raise InvalidRequest(f"--tools {file} holds no JSON array of tools.", param="tools")
    return found


def _show(found: Parsed) -> None:
    for name, text in (("reasoning_content", found["reasoning_content"]), ("content", found["content"])):
        if text:
            write(f"{name}:\n{text}\n\n")
    for call in found["tool_calls"]:
        write(f"call: {call['name']} {call['arguments']}\n")
    print(f"dialect: {found['dialect'] or '-'}, finish_reason: {found['finish_reason']}")

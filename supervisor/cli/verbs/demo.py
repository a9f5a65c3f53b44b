"""`demo`: everything from nothing, each step said while it is done."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from supervisor.cli.answer import Answer, ToolCall, show, stream
from supervisor.cli.background import ensure
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import OK
from supervisor.cli.installing import engine_of
from supervisor.cli.loading import load
from supervisor.cli.options import add_background, command_name
from supervisor.cli.progress import progress
from supervisor.cli.registry import Verb
from supervisor.cli.render import bold, note, print_json
from supervisor.errors import ModelError

VERB = Verb(
    summary="show everything, from nothing, in one command",
    order=10,
    description="""Everything from nothing: gets an engine if there is none, starts the daemon, loads the built-in
model, shows a streamed answer and a tool call, and says what to type next. Quick when all that is there already.""",
    examples=(
        ("demo", "see it work"),
        ("demo --json", "the same for a script"),
    ),
)


_QUESTION = "Who are you?"
_TOOL_QUESTION = "What is the weather in Paris?"
_TOOL: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The current weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_background(parser)


def run(args: argparse.Namespace) -> int:
    """Do and show each step; with --json the steps go to stderr and one object to stdout."""
    say: Callable[[str], None] = note if args.json else _say
    with progress() as report:
        daemon = ensure(args, report)
        engine = engine_of(args, daemon, report)
        say(f"{bold('engine')}  llama-server b{engine['build']} from {engine['path']}")
        say(f"{bold('daemon')}  {daemon.client.url} (pid {daemon.status['pid']})")
        model = load(daemon, {"target": "demo"}, report)
    say(f"{bold('model')}   {model['id']}, built in: a real engine that answers from a script\n")
    answer = _answer_shown(daemon.client, model["id"], say, quiet=args.json)
    call = _tool_call_shown(daemon.client, model["id"], say)
    if args.json:
        print_json({
            "engine": engine,
            "url": daemon.base_url,
            "model": model["id"],
            "answer": answer,
            "tool_call": vars(call),
        })
    else:
        print(_what_next(command_name(os.environ), daemon.client.url, model["id"]))
    return OK


def _answer_shown(client: Client, model: str, say: Callable[[str], None], *, quiet: bool) -> str:
    say(f"{bold('you')}     {_QUESTION}")
    answer = Answer()
    request = {"model": model, "messages": [{"role": "user", "content": _QUESTION}]}
    if quiet:
        for _ in stream(client, request, answer):
            pass
    else:
        show(client, request, answer)
        print()
    return answer.content


def _tool_call_shown(client: Client, model: str, say: Callable[[str], None]) -> ToolCall:
    say(f"{bold('you')}     {_TOOL_QUESTION} (with the tool get_weather offered)")
    answer = Answer()
    request = {"model": model, "messages": [{"role": "user", "content": _TOOL_QUESTION}], "tools": [_TOOL]}
    for _ in stream(client, request, answer):
        pass
    if not answer.tool_calls:
        raise ModelError("The built-in model made no tool call; this engine build may parse its template differently.")
    call = next(iter(answer.tool_calls.values()))
    say(f"tool call: {call.name}({call.arguments})\n")
    return call


def _what_next(me: str, url: str, model: str) -> str:
    rows = (
        (f"{me} load owner/repo:quant", "a model of your choice, from the hub or a .gguf file"),
        (f"{me} chat", "talk to it here"),
        (f"{me} stop", "end the daemon and its engines"),
    )
    width = max(len(command) for command, _ in rows)
    commands = "\n".join(f"  {command:<{width}}  {what}" for command, what in rows)
    addresses = f"  base URL for a chat client: {url}/v1 (model: {model})\n  dashboard, in a browser: {url}"
    return f"{bold('Next')}\n{commands}\n\n{addresses}"


def _say(text: str) -> None:
    print(text, flush=True)

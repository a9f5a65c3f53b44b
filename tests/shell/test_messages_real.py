"""`/v1/messages` is asked of the engine as a chat; its answers against the engine's own to the same request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.routes import api_of, kind_of
from supervisor.core.stream.outgoing import outgoing_request
from supervisor.core.stream.sse import SseDecoder
from supervisor.core.text.members import set_fields
from supervisor.proxy.bodies import Bodies, ClientJson
from supervisor.proxy.toolcalls import plainly
from tests.shell.bare_engine import CHAT, MESSAGES, USABLE, bare_engine, comparable, message, post
from tests.shell.fold_model import FOLD_SCRIPT

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def engine(engine_binary: Path) -> Iterator[str]:
    """Socket path of a running llama-server that keeps no prompts: cached tokens would differ between two requests."""
    with bare_engine(engine_binary, FOLD_SCRIPT, "--no-cache-prompt") as path:
        yield path


USED = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "alpha", "input": {"x": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "PAIR"}]},
]

ASKED: dict[str, dict[str, Any]] = {
    "text": message("HELLO"),
    "multi-byte characters": message("SIGNS"),
    "reasoning": message("THINK"),
    "one call": message("TOOL", tools=USABLE),
    "two calls after text": message("PAIR", tools=USABLE),
    "a call without tools": message("TOOL"),
    "cut off": message("HELLO", max_tokens=3),
    "a call cut off": message("TOOL", tools=USABLE, max_tokens=9),
    "no token at all": message("HELLO", max_tokens=0),
    "stop word": message("HELLO", stop_sequences=[" STOP"]),
    "a stop word that does not come": message("HELLO", stop_sequences=["never"]),
    "a system prompt": message("HELLO", system=[{"type": "text", "text": "Be kind."}]),
    "a conversation": message("x", messages=USED, tools=USABLE),
    "blocks": message("x", messages=[{"role": "user", "content": [{"type": "text", "text": "HELLO"}]}]),
    "continued": message("x", messages=[*USED[:1], {"role": "assistant", "content": "Begun "}], max_tokens=3),
    "no limit": {key: value for key, value in message("HELLO").items() if key != "max_tokens"},
    "the name of the filtered key": message("LITERAL"),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED.keys())
def test_a_single_message_is_the_engine_s(engine: str, asked: dict[str, Any]) -> None:
    status, single = post(engine, MESSAGES, json.dumps(asked).encode())
    assert status == 200, single

    answer = ours(engine, asked)

    assert named(answer) == named(json.loads(single))


def named(answer: dict[str, Any]) -> Any:
    """Comparable; the one known difference is how an id begins."""
    assert answer["id"].startswith(("msg_", "chatcmpl-"))
    return comparable({**answer, "id": "id"})


def request_of(asked: dict[str, Any]) -> ClientJson:
    text = json.dumps(asked).encode()
    return ClientJson(text, asked, len(text), Bodies(len(text), len(text)))


def ours(engine: str, asked: dict[str, Any]) -> Any:
    """The whole answer; the events of a streamed one."""
    prepared = plainly(MESSAGES, request_of(asked))
    assert prepared.path == CHAT
    assert prepared.way.rewrites
    plan = outgoing_request(kind_of(prepared.path), prepared.asked)
    assert "return_progress" in plan.changes
    status, streamed = post(engine, CHAT, set_fields(prepared.body, {**plan.changes, **prepared.needs}))
    assert status == 200, streamed
    fold = plan.new_fold()
    if fold is not None:
        fold.feed(streamed)
        answer: Any = fold.response()
        return prepared.way.said(answer)
    relay = prepared.way.stream_filter(api_of(MESSAGES), drop_progress=plan.drop_progress)
    return events(prepared.way.stream(relay).feed(streamed))


def events(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(event.data) for event in SseDecoder().feed(stream)]


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED.keys())
def test_a_streamed_message_is_the_engine_s(engine: str, asked: dict[str, Any]) -> None:
    asked = {**asked, "stream": True}
    status, stream = post(engine, MESSAGES, json.dumps(asked).encode())
    assert status == 200, stream
    assert heard(ours(engine, asked)) == heard(events(stream))


def heard(found: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """What a client makes of it: head, blocks with their texts, and the end."""
    out: list[tuple[str, Any]] = []
    usage = dict.fromkeys(("cache_read_input_tokens", "input_tokens", "output_tokens"), 0)
    for event in found:
        kind, delta = event["type"], event.get("delta", {})
        if kind == "message_start":
            usage.update(event["message"].pop("usage"))
            out.append((kind, named(event["message"])))
            out.append(("input", (usage["input_tokens"], usage["cache_read_input_tokens"])))
        elif kind == "content_block_start":
            block = event["content_block"]
            out.append((block["type"], block.get("name", "")))
        elif kind == "content_block_delta" and delta["type"] != "signature_delta":
            (text,) = (value for key, value in delta.items() if key != "type")
            before = out.pop()[1] if out[-1][0] == delta["type"] else ""
            out.append((delta["type"], before + text))
        elif kind == "message_delta":
            usage.update(event["usage"])
            out.append((kind, delta))
    return [*out, ("usage", usage), ("last", found[-1]["type"])]


@pytest.mark.parametrize("broken", [{}, {"messages": ["x"]}, {"messages": [{"role": "user"}]}, {"top_k": "x"}])
def test_what_the_engine_refuses_is_refused_in_its_words(engine: str, broken: dict[str, Any]) -> None:
    asked = {**message("x"), **broken} if broken else {"max_tokens": 3}
    refused = post(engine, MESSAGES, json.dumps(asked).encode())
    assert refused[0] >= 400
    prepared = plainly(MESSAGES, request_of(asked))
    changes = {**outgoing_request(kind_of(prepared.path), prepared.asked).changes, **prepared.needs}
    assert post(engine, prepared.path, set_fields(prepared.body, changes)) == refused

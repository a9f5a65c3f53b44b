"""What the engine is asked where calls may come, or nobody offered a tool."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from supervisor.core.models.registry import ModelEntry, Source
from supervisor.engines.client import EngineClient, EngineResponse
from supervisor.proxy.bodies import Bodies, ClientJson
from supervisor.proxy.spoken import PLAIN as PLAIN_WAY
from supervisor.proxy.toolcalls import Prepared, ToolCalls, Watch
from tests.core.toolcalls.corpus import TOOLS
from tests.support.made_answer import MadeAnswer

CHAT = "/v1/chat/completions"
ENTRY = ModelEntry("m", Source.DEMO, None)
SAID = [{"role": "user", "content": "Hi"}]
PLAIN: dict[str, dict[str, Any]] = {
    CHAT: {"messages": SAID},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": SAID, "max_tokens": 9},
}
TOOL = {"name": "f", "input_schema": {"type": "object"}, "parameters": {"type": "object"}, "type": "function"}
OFFERED = {CHAT: TOOLS, "/v1/responses": [TOOL], "/v1/messages": [TOOL]}


def prepared(path: str, **asked: Any) -> Prepared:
    fields = {**PLAIN.get(path, {}), **asked}
    body = json.dumps(fields).encode()
    return ToolCalls().prepare(path, ClientJson(body, fields, len(body), Bodies(1 << 20, 1 << 20)), ENTRY)


@pytest.mark.parametrize(("path", "asks"), [(CHAT, CHAT), ("/v1/responses", "/v1/responses"), ("/v1/messages", CHAT)])
@pytest.mark.parametrize("mode", ["auto", "off"])
def test_where_no_tool_is_offered(path: str, asks: str, mode: str) -> None:
    """The engine's own `/v1/messages` reports no progress of the prompt, so it is asked for a chat even then."""
    found = prepared(path, tool_calls=mode)
    assert found.path == asks
    assert (found.way is PLAIN_WAY) == (path == asks)


@pytest.mark.parametrize("path", PLAIN)
def test_where_tools_are_offered_an_answer_of_a_chat_is_watched(path: str) -> None:
    found = prepared(path, tools=OFFERED[path])
    assert found.path == CHAT
    assert found.way is not PLAIN_WAY
    assert json.loads(found.body)["messages"] == SAID


def test_what_has_no_form_is_passed_on() -> None:
    found = prepared("/v1/embeddings", input="x")
    assert (found.path, found.way, json.loads(found.body)) == ("/v1/embeddings", PLAIN_WAY, {"input": "x"})


class _Template:
    """Stands for an engine that renders every prompt with this one."""

    def __init__(self, prompt: str) -> None:
        self._told = json.dumps({"prompt": prompt}).encode()

    @asynccontextmanager
    async def post(self, path: str, body: bytes, more: str = "") -> AsyncIterator[EngineResponse]:
        assert path == "/apply-template"
        yield MadeAnswer([self._told], "application/json")


@pytest.mark.parametrize(("size", "raw"), [(100, True), (1 << 20, True), (5 << 20, False)])
def test_a_prompt_of_which_the_template_makes_megabytes_is_left_to_the_engine(size: int, raw: bool) -> None:
    """Whoever makes a model makes its template: a line of it can say gigabytes."""
    way = prepared(CHAT, tools=TOOLS, tool_calls="raw").way
    payload = asyncio.run(way.raw_payload(cast(EngineClient, _Template("x" * size)), None))
    assert (payload is not None) == way.raw == raw
    if payload is not None:
        assert json.loads(payload)["prompt"] == "x" * size


@pytest.mark.parametrize(("size", "raw"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_a_large_request_does_not_go_raw(size: int, raw: bool) -> None:
    fields = {**PLAIN[CHAT], "tools": TOOLS, "tool_calls": "raw"}
    short = json.dumps(fields).encode()
    fields["user"] = "x" * (size - len(short) - len(b', "user": ""'))
    body = json.dumps(fields).encode()
    assert len(body) == size
    found = ToolCalls().prepare(CHAT, ClientJson(body, fields, len(body), Bodies(4 << 20, 4 << 20)), ENTRY)
    assert isinstance(found.way, Watch)
    assert found.way.raw == raw

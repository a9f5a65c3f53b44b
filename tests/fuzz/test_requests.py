"""Requests of any shape: what is wrong with one is for the engine to say, never a fault of ours."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.models.registry import ModelEntry, Source
from supervisor.core.recovery.emulate import TemplateFacts, emulated
from supervisor.core.recovery.raw import completion_request
from supervisor.core.requests.affinity import affinity_of
from supervisor.core.routes import kind_of
from supervisor.core.stream.apis import OPENAI
from supervisor.core.stream.outgoing import outgoing_request
from supervisor.errors import InvalidRequest
from supervisor.proxy.bodies import Bodies, ClientJson
from supervisor.proxy.toolcalls import ToolCalls

WORDS = ("user", "assistant", "tool", "text", "function", "function_call", "function_call_output", "message", "image")
SCALARS = st.sampled_from((None, True, 0, 1, 1.5, "", '{"a": 1}', '{"a":', "\ud800", "base64", "required", *WORDS))
INNER = (
    *(
        "role",
        "content",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "id",
        "type",
        "text",
        "image_url",
        "parameters",
    ),
    *("properties", "required", "anyOf", "enum", "input", "source", "tool_use_id", "tool_call_id", "effort", "user_id"),
)
ANY = st.recursive(
    SCALARS, lambda one: st.lists(one, max_size=3) | st.dictionaries(st.sampled_from(INNER), one, max_size=3)
)
MESSAGES = st.lists(st.fixed_dictionaries({"role": SCALARS, "content": ANY, "tool_calls": ANY | st.lists(ANY)}))
TOOLS = st.lists(ANY | st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": SCALARS, "parameters": ANY})}))
OTHERS = st.sampled_from(("n", "reasoning", "thinking", "metadata", "tool_choice", "system", "instructions", "stream"))
REQUESTS = st.builds(
    lambda messages, tools, others, repeats: {
        **{"model": "m", "messages": messages, "input": messages, "tools": tools, **others},
        **({"agent_help": {"repeats": True}} if repeats else {}),
    },
    *(MESSAGES | ANY, TOOLS | ANY, st.dictionaries(OTHERS, ANY, max_size=3), st.booleans()),
)
TEMPLATES = (TemplateFacts(tools=False, text="<start_of_turn>"), TemplateFacts(tools=False))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
@given(asked=REQUESTS)
@settings(max_examples=150, deadline=None)
def test_no_shape_of_a_request_is_a_fault_of_ours(path: str, asked: dict[str, Any]) -> None:
    text = json.dumps(asked).encode()
    request = ClientJson(text, asked, len(text), Bodies(1 << 30, 1 << 30))
    affinity_of(asked)
    with suppress(InvalidRequest):
        prepared = ToolCalls().prepare(path, request, ModelEntry("m", Source.FILE, "/m.gguf"))
        outgoing_request(kind_of(prepared.path), prepared.asked)
        if prepared.way.looks:
            prepared.way.stream(prepared.way.stream_filter(OPENAI, drop_progress=True))
            assert json.dumps(completion_request(prepared.asked, "prompt"))
            for facts in TEMPLATES:
                assert json.dumps(emulated(prepared.asked, facts))

"""`/v1/responses` and `/v1/messages`: passed through with their own events, errors in their own form."""

from __future__ import annotations

import json

import openai
import pytest

from tests.api.conftest import HELLO
from tests.support.daemon import RunningDaemon

pytestmark = pytest.mark.engine


def test_responses_by_the_official_client(daemon: RunningDaemon) -> None:
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="unused", max_retries=0) as client:
        assert client.responses.create(model="talker", input="Hi").output_text == HELLO
        events = list(client.responses.create(model="talker", input="Hi", stream=True))
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == HELLO
        assert events[-1].type == "response.completed"
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model="nobody", input="Hi")


def test_messages(daemon: RunningDaemon) -> None:
    asked = {"model": "talker", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
    whole = daemon.http.post("/v1/messages", json=asked).json()
    assert (whole["type"], whole["content"][0]["text"]) == ("message", HELLO)
    text = daemon.http.post("/v1/messages", json={**asked, "stream": True}).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert (
        "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta") == HELLO
    )
    assert events[-1]["type"] == "message_stop"
    assert daemon.http.post("/v1/messages/count_tokens", json=asked).json()["input_tokens"] > 0


def test_errors_of_messages_have_their_form(daemon: RunningDaemon) -> None:
    unknown = daemon.http.post("/v1/messages", json={"model": "nobody", "messages": []})
    assert (unknown.status_code, unknown.json()["type"]) == (404, "error")
    assert unknown.json()["error"]["code"] == "model_not_found"
    refused = daemon.http.post("/v1/messages", json={"model": "talker"})
    assert (refused.status_code, refused.json()["type"]) == (500, "error")

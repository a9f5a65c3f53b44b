"""What the official SDKs do about refusals: they come back when they are told, and not where it is of no use."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.api.conftest import HELLO
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.node_packages import node_told

pytestmark = pytest.mark.engine

HALF = 600_000  # characters, over a half of what bodies may hold
Told = dict[str, Any]


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    """One that has room for one large body; its model `broken` cannot be loaded."""
    models = {"talker": {"file": str(talker)}, "broken": {"file": str(talker), "extra_args": ["--no-such-option"]}}
    settings = {"models": models, "server": {"max_body_mib": 1, "max_buffered_mib": 1}}
    with scratch_home() as home, running_daemon(home, engine_binary, settings) as running:
        running.load("talker")
        yield running


def python_told(url: str, model: str, padding: int) -> Told:
    """What `retries.mjs` does, in Python."""
    seen: list[Told] = []
    with httpx2.Client(base_url=url, trust_env=False) as own:

        def watch(answer: httpx2.Response) -> None:
            status, after = answer.status_code, answer.headers.get("retry-after")
            seen.append({"status": status, "at": time.monotonic(), "after": after})
            if len(seen) == 1 and status != 200:
                for one in own.get("/api/v1/requests").json()["requests"]:
                    own.delete(f"/api/v1/requests/{one['id']}")

        http = openai.DefaultHttpxClient(event_hooks={"response": [watch]})
        with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=3, http_client=http) as client:
            more = {"padding": "x" * padding}
            try:
                messages: Any = [{"role": "user", "content": "Hi"}]
                made = client.chat.completions.create(model=model, messages=messages, extra_body=more)
                return {"seen": seen, "said": made.choices[0].message.content}
            except openai.APIStatusError as error:
                return {"seen": seen, "said": error.code}


def told_by_node(url: str, model: str, padding: int) -> Told:
    return node_told("retries.mjs", url, model, str(padding))


ASKING: dict[str, Callable[[str, str, int], Told]] = {"python": python_told, "node": told_by_node}


@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING)
def test_who_is_told_to_come_back_does_so_after_that_time(
    daemon: RunningDaemon, ask: Callable[[str, str, int], Told]
) -> None:
    with ThreadPoolExecutor(1) as thread:
        holding = thread.submit(daemon.chat, "talker", "endless", padding="x" * HALF)
        wait_until(lambda: len(daemon.http.get("/api/v1/requests").json()["requests"]) == 1, "it holds the room")
        told = ask(daemon.url, "talker", HALF)
        assert holding.result().status_code == 499
    refused, answered = told["seen"]
    assert (refused["status"], answered["status"], told["said"]) == (503, 200, HELLO)
    assert answered["at"] - refused["at"] >= float(refused["after"]) >= 1


@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING)
def test_what_would_fail_again_is_asked_for_once(daemon: RunningDaemon, ask: Callable[[str, str, int], Told]) -> None:
    told = ask(daemon.url, "broken", 0)
    (only,) = told["seen"]
    assert only["status"] >= 500
    assert told["said"]

"""The official SDKs get from the daemon what they get from llama-server: one battery of calls, asked of both."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import anthropic
import httpx2
import openai
import pytest

from tests.support import battery
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.forwarder import forwarded
from tests.support.node_packages import node_results

pytestmark = pytest.mark.engine

Results: TypeAlias = dict[str, Any]

BATTERIES: dict[str, Callable[[str], Results]] = {"python": battery.results, "node": node_results}
VARY = {"id", "created", "created_at", "completed_at", "item_id", "call_id", "timings", "system_fingerprint"}
"""What two answers of one server differ in as well."""
MORE = {"response_tools", "message_stream"}
"""Answers that the daemon writes itself, and that have further fields of their API."""
HI: Any = battery.HI


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    """Its engine reads every prompt anew, so that one answer does not depend on the one before."""
    model = {"file": str(talker), "parallel": 4, "ctx_size": 65536, "extra_args": ["--no-cache-prompt"]}
    broken = {"file": str(talker), "extra_args": ["--no-such-option"]}
    settings = {"models": {"talker": model, "broken": broken}}
    with scratch_home() as home, running_daemon(home, engine_binary, settings) as running:
        running.load("talker")
        yield running


@pytest.fixture(scope="module", params=BATTERIES)
def both(request: pytest.FixtureRequest, daemon: RunningDaemon) -> tuple[Results, Results]:
    """What the engine itself answers, and what the daemon does."""
    ask = BATTERIES[request.param]
    with forwarded(daemon.engine_socket("talker")) as engine:
        direct = ask(engine)
    through = ask(daemon.url)
    return steady(direct), steady(through)


def steady(value: Any, key: str = "") -> Any:
    """What two answers to one request have in common; vectors to a millionth."""
    if key == "embedding":
        raw = base64.b64decode(value) if isinstance(value, str) else b""
        floats = struct.unpack(f"<{len(raw) // 4}f", raw) if raw else value
        return [type(value).__name__, *(round(one, 6) for one in floats)]
    if isinstance(value, dict):
        return {name: steady(one, name) for name, one in value.items() if name not in VARY}
    return [steady(one) for one in value] if isinstance(value, list) else value


def shared(ours: Any, theirs: Any) -> Any:
    """`ours` without what `theirs` has no field for."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {name: shared(one, theirs[name]) for name, one in ours.items() if name in theirs}
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [shared(*pair) for pair in zip(ours, theirs, strict=True)]
    return ours


@pytest.mark.parametrize("name", battery.NAMES)
def test_the_same_call_has_the_same_answer(both: tuple[Results, Results], name: str) -> None:
    direct, through = both
    assert (shared(through[name], direct[name]) if name in MORE else through[name]) == direct[name]


def test_nothing_is_left_of_what_was_aborted(daemon: RunningDaemon, both: tuple[Results, Results]) -> None:
    for results in both:
        assert sorted(results) == sorted(battery.NAMES)
        assert results["abort"]
        assert results["message_abort"]
        assert "Timeout" in results["timeout"]["error"]
    wait_until(lambda: daemon.busy_slots("talker") == 0, "aborted answers have freed their slots")
    wait_until(daemon.at_rest, "nothing is in flight")


def test_a_model_that_is_not_there_has_the_sdks_own_error(daemon: RunningDaemon) -> None:
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="unused") as client:
        with pytest.raises(openai.NotFoundError, match="nobody"):
            client.chat.completions.create(model="nobody", messages=HI)
        with pytest.raises(openai.NotFoundError, match="nobody"):
            client.models.retrieve("nobody")
    with (
        anthropic.Anthropic(base_url=daemon.url, api_key="unused") as other,
        pytest.raises(anthropic.NotFoundError, match="nobody"),
    ):
        other.messages.create(model="nobody", messages=HI, max_tokens=5)


@pytest.mark.parametrize(("model", "status"), [("nobody", 404), ("broken", 503)])
def test_the_sdks_do_not_repeat_what_stays(daemon: RunningDaemon, model: str, status: int) -> None:
    """Both repeat a 503 by themselves, unless the answer says that it is no use."""
    asked: list[str] = []
    hooks = {"request": [lambda request: asked.append(request.url.path)]}
    with (
        httpx2.Client(event_hooks=hooks, trust_env=False) as http,
        openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="unused", http_client=http) as client,
        anthropic.Anthropic(base_url=daemon.url, api_key="unused", http_client=http) as other,
    ):
        with pytest.raises(openai.APIStatusError) as ours:
            client.chat.completions.create(model=model, messages=HI)
        with pytest.raises(anthropic.APIStatusError) as theirs:
            other.messages.create(model=model, messages=HI, max_tokens=5)
    assert (ours.value.status_code, theirs.value.status_code) == (status, status)
    assert asked == ["/v1/chat/completions", "/v1/messages"]

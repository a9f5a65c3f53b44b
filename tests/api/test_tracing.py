"""Traces of a real daemon and engine, received by a collector."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.collector import Collected, Collector, collector
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until

pytestmark = pytest.mark.engine

CHAT = "/v1/chat/completions"
SERVER = 2  # the kind of a span
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "20"}  # milliseconds until spans are sent


@pytest.fixture(scope="module")
def receiver() -> Iterator[Collector]:
    """A collector on this machine."""
    with collector() as found:
        yield found


@pytest.fixture(scope="module")
def daemon(
    engine_binary: Path, talker: Path, receiver: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningDaemon]:
    """A daemon that sends its traces to the collector."""
    broken = tmp_path_factory.mktemp("broken") / "broken.gguf"
    broken.write_bytes(talker.read_bytes()[:4096])
    models = {"talker": {"file": str(talker), "parallel": 4, "ctx_size": 65536}, "broken": {"file": str(broken)}}
    settings = {"server": {"tracing": {"endpoint": receiver.url}}, "models": models}
    with scratch_home() as home, running_daemon(home, engine_binary, settings, env=SOON) as running:
        yield running


def ordered(whole: Collected, *parts: Collected) -> bool:
    """Whether the parts follow each other within the whole."""
    moments = [whole.began, *(moment for one in parts for moment in (one.began, one.ended)), whole.ended]
    return moments == sorted(moments)


@pytest.mark.parametrize("stream", [True, False])
def test_a_chat_is_one_span_with_its_parts(daemon: RunningDaemon, receiver: Collector, stream: bool) -> None:
    daemon.load("talker")
    answer = daemon.chat("talker", "hello", stream=stream, max_tokens=4)
    whole, parts = receiver.request(answer.headers["x-request-id"])
    assert (whole.name, whole.kind, whole.error, whole.parent) == ("chat talker", SERVER, None, "")
    told = whole.attributes
    assert (told["http.route"], told["http.response.status_code"]) == (CHAT, 200)
    assert (told["gen_ai.operation.name"], told["gen_ai.request.model"]) == ("chat", "talker")
    assert (told["gen_ai.request.stream"], told["gen_ai.response.finish_reasons"]) == (stream, ["length"])
    assert told["gen_ai.usage.output_tokens"] == 4
    assert int(str(told["gen_ai.usage.input_tokens"])) > 0
    assert whole.resource["service.name"] == "llama-supervisor"
    assert set(parts) == {"queue", "prefill", "decode"}
    assert ordered(whole, parts["queue"], parts["prefill"], parts["decode"])
    assert parts["decode"].attributes["gen_ai.usage.output_tokens"] == 4
    assert set(receiver.paths) == {"/v1/traces"}


def test_a_load_that_a_request_waited_for_is_a_part(daemon: RunningDaemon, receiver: Collector) -> None:
    daemon.http.post("/api/v1/models/unload", json={"model": "talker"})
    answer = daemon.chat("talker", "hello", max_tokens=1)
    whole, parts = receiver.request(answer.headers["x-request-id"])
    assert set(parts) == {"queue", "load", "prefill", "decode"}
    assert ordered(whole, parts["load"], parts["prefill"], parts["decode"])
    assert parts["queue"].began <= parts["load"].began < parts["load"].ended <= parts["queue"].ended


def test_the_clients_span_is_the_parent(daemon: RunningDaemon, receiver: Collector) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=1"}
    body = {"model": "talker", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    for path in (CHAT, f"/upstream/talker{CHAT}"):
        answer = daemon.http.post(path, json=body, headers=headers)
        whole, parts = receiver.request(answer.headers["x-request-id"])
        assert (whole.trace, whole.parent) == (TRACE, PARENT)
        assert {one.trace for one in parts.values()} == {TRACE}


def test_what_the_client_does_not_sample_is_not_sent(daemon: RunningDaemon, receiver: Collector) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    left_out = daemon.http.post("/tokenize", json={"model": "talker", "content": "a"}, headers=headers)
    answer = daemon.http.post("/tokenize", json={"model": "talker", "content": "a"})
    whole, parts = receiver.request(answer.headers["x-request-id"])
    assert whole.name == "POST /tokenize talker"
    assert set(parts) == {"queue", "prefill"}
    assert left_out.headers["x-request-id"] not in receiver.seen()


def test_a_request_for_no_model(daemon: RunningDaemon, receiver: Collector) -> None:
    answer = daemon.chat("nobody", "hello")
    whole, parts = receiver.request(answer.headers["x-request-id"])
    assert (whole.attributes["error.type"], whole.error, parts) == ("model_not_found", None, {})


def test_a_load_that_fails(daemon: RunningDaemon, receiver: Collector) -> None:
    answer = daemon.chat("broken", "hello")
    whole, _ = receiver.request(answer.headers["x-request-id"])
    code = answer.json()["error"]["code"]
    assert (whole.attributes["error.type"], whole.attributes["http.response.status_code"]) == (code, answer.status_code)


def test_an_engine_that_dies_in_the_middle(daemon: RunningDaemon, receiver: Collector) -> None:
    daemon.load("talker")
    body = {"model": "talker", "messages": [{"role": "user", "content": "endless"}], "stream": True}
    with daemon.http.stream("POST", CHAT, json=body) as answer:
        events = answer.iter_lines()
        next(events)
        os.kill(daemon.model("talker")["pid"], signal.SIGKILL)
        list(events)
    whole, _ = receiver.request(answer.headers["x-request-id"])
    assert (whole.error, whole.attributes["error.type"]) == ("engine_lost", "engine_lost")


def test_a_client_that_leaves(daemon: RunningDaemon, receiver: Collector) -> None:
    body = {"model": "talker", "messages": [{"role": "user", "content": "endless"}], "stream": True}
    with daemon.http.stream("POST", CHAT, json=body) as answer:
        next(answer.iter_bytes())
    whole, parts = receiver.request(answer.headers["x-request-id"])
    assert (whole.attributes["error.type"], whole.attributes["http.response.status_code"]) == ("client_gone", 499)
    assert "decode" in parts


def test_a_collector_that_is_gone_harms_nothing(engine_binary: Path, talker: Path) -> None:
    """Its address, from OpenTelemetry's own variable, refuses every connection."""
    models = {"talker": {"file": str(talker)}}
    env = {**SOON, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_MAX_QUEUE_SIZE": "8"}
    env["OTEL_BSP_MAX_EXPORT_BATCH_SIZE"] = "8"
    with scratch_home() as home:
        with running_daemon(home, engine_binary, {"models": models}, env=env) as running:
            for _ in range(20):
                assert running.chat("talker", "hello", max_tokens=1).status_code == 200
            log = running.home / "daemon-output.log"
            wait_until(lambda: "Queue full, dropping Span" in log.read_text(), "the log tells what is lost")
        assert running.process.returncode == 0

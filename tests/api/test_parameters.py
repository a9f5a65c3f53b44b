"""Parameters of requests with a real engine: bounds on every path that generates, and other servers' names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.api.conftest import HELLO
from tests.core.params.test_regex import WRITTEN
from tests.support.daemon import RunningDaemon

pytestmark = pytest.mark.engine

SAID: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
PATHS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": SAID,
    "/chat/completions": SAID,
    "/v1/completions": {"prompt": "Hi"},
    "/completion": {"prompt": "Hi"},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {**SAID, "max_tokens": 5},
}


def asked(daemon: RunningDaemon, path: str = "/v1/chat/completions", **fields: Any) -> Any:
    return daemon.http.post(path, json={"model": "talker", **PATHS[path], **fields})


def text(daemon: RunningDaemon, **fields: Any) -> str:
    answer = asked(daemon, **fields)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_value_out_of_bounds_is_refused_on_every_path(daemon: RunningDaemon, path: str, stream: bool) -> None:
    refused = asked(daemon, path, temperature=-1, stream=stream)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert "`temperature` must be a number of at least 0; it is -1." in error["message"]
    if path != "/v1/messages":  # whose errors have no code and no param
        assert (error["code"], error["param"]) == ("invalid_request", "temperature")


def test_upstream_leaves_the_judgement_to_the_engine(daemon: RunningDaemon) -> None:
    answer = daemon.http.post("/upstream/talker/v1/chat/completions", json={**SAID, "temperature": -1, "top_p": 7})
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == HELLO


def test_bounds_hold_for_a_large_request_too(daemon: RunningDaemon) -> None:
    long = [{"role": "user", "content": "x" * (1 << 19)}]
    refused = asked(daemon, messages=long, top_p=7)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "top_p"


def test_repetition_penalty_reaches_the_engine(daemon: RunningDaemon) -> None:
    fields = {"repetition_penalty": 1.25, "repetition_context_size": 17, "max_new_tokens": 3}
    told = asked(daemon, "/completion", **fields).json()
    settings = told["generation_settings"]
    assert (settings["repeat_penalty"], settings["repeat_last_n"]) == (1.25, 17)
    assert told["tokens_predicted"] == 3


def test_best_of_one_and_an_empty_suffix_are_no_fault(daemon: RunningDaemon) -> None:
    answer = asked(daemon, "/v1/completions", best_of=1, suffix=None, max_tokens=2)
    assert answer.status_code == 200
    assert asked(daemon, "/v1/completions", best_of=2).json()["error"]["param"] == "best_of"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_regex_is_enforced(daemon: RunningDaemon, stream: bool) -> None:
    pattern = r"(yes|no): \d{2,4}[a-f]+!"
    if not stream:
        assert re.fullmatch(pattern, text(daemon, guided_regex=pattern, max_tokens=40, logit_bias={}))
        return
    answer = asked(daemon, guided_regex=pattern, max_tokens=40, stream=True)
    assert re.fullmatch(pattern, "".join(re.findall(r'"content":"([^"]+)"', answer.text)))


def test_a_choice_is_enforced(daemon: RunningDaemon) -> None:
    assert text(daemon, guided_choice=["left", "right"]) in {"left", "right"}
    assert text(daemon, structured_outputs={"choice": ["up"]}) == "up"


def test_a_schema_is_enforced(daemon: RunningDaemon) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 7}}, "required": ["a"], "additionalProperties": False}
    said = text(daemon, guided_json=schema, max_tokens=40)
    assert re.sub(r"\s", "", said) == '{"a":7}'


SCHEMA = {"type": "object", "properties": {"a": {"const": 7}}, "required": ["a"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "name": "n", "schema": SCHEMA}


@pytest.mark.parametrize("tools", [[], [{"type": "function", "name": "f", "parameters": {"type": "object"}}]], ids=len)
def test_the_format_of_openais_responses_is_enforced(daemon: RunningDaemon, tools: list[Any]) -> None:
    answer = asked(
        daemon, "/v1/responses", text={"format": FORMAT}, tools=tools, tool_choice="none", max_output_tokens=40
    )
    said = "".join(part["text"] for item in answer.json()["output"] for part in item["content"])
    assert re.sub(r"\s", "", said) == '{"a":7}'


@pytest.mark.parametrize("fields", [{"output_format": FORMAT}, {"output_config": {"format": FORMAT}}], ids=str)
def test_anthropics_format_is_enforced(daemon: RunningDaemon, fields: dict[str, Any]) -> None:
    answer = asked(daemon, "/v1/messages", max_tokens=40, **fields)
    assert re.sub(r"\s", "", answer.json()["content"][0]["text"]) == '{"a":7}'


PATTERNS = [pattern for pattern, _ in WRITTEN] + ["(?:[a-z]{1,10},){0,50}", "a{1000}", "((a|b){1,9}c?){0,40}"]


@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_the_engine_reads_every_grammar_that_is_made_of_a_pattern(daemon: RunningDaemon, pattern: str) -> None:
    answer = asked(daemon, "/completion", guided_regex=pattern, n_predict=1)
    assert answer.status_code == 200, answer.text

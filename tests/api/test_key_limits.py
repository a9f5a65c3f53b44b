"""What a key sees, uses and is told, on a real engine: models, tokens, streams, and the moment in which it ends."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.core.requests.scopes import ROWS, Scope
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE
from tests.support.routes import wanted_alone

pytestmark = pytest.mark.engine

ROOT = "the-key-of-the-configuration"
BOTH = ["infer", "read"]
HIDDEN = ("secret-model", "whispered", "SECRET-MODEL")
SAID = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
GOES_ON = {"messages": [{"role": "user", "content": "endless"}], "max_tokens": 100_000, "stream": True}


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    """A daemon that asks for keys, with a model that some of them do not see."""
    models = {
        "open-model": {"file": str(talker), "parallel": 4, "ctx_size": 65536, "aliases": ["parrot"]},
        "secret-model": {"file": str(talker), "parallel": 4, "ctx_size": 65536, "aliases": ["whispered"]},
    }
    settings = {"models": models, "server": {"default_model": "secret-model"}}
    env = {"SUPERVISOR_API_KEY": ROOT}
    with scratch_home() as home, running_daemon(home, engine_binary, settings, env=env) as running:
        running.http.headers["authorization"] = f"Bearer {ROOT}"
        yield running


@contextmanager
def holder(daemon: RunningDaemon, name: str, **rules: Any) -> Iterator[httpx.Client]:
    """A client with a new key of its own."""
    answer = daemon.http.post("/api/v1/keys", json={"name": name, "scopes": BOTH, **rules})
    assert answer.status_code == 200, answer.text
    headers = {"x-api-key": answer.json()["key"]}
    with httpx.Client(base_url=daemon.url, headers=headers, timeout=daemon.http.timeout, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def limited(daemon: RunningDaemon) -> Iterator[httpx.Client]:
    """A key that sees one of the models; both are loaded, and the hidden one is in use."""
    for model in ("open-model", "secret-model"):
        daemon.load(model)
    with holder(daemon, "limited", models=["open-*"]) as client:
        yield client


def usage(daemon: RunningDaemon, name: str) -> dict[str, int]:
    keys = daemon.http.get("/api/v1/keys").json()["keys"]
    found: dict[str, int] = next(key["usage"] for key in keys if key["name"] == name)
    return found


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["error"]["code"])


@contextmanager
def busy(daemon: RunningDaemon, model: str) -> Iterator[None]:
    """A request to the model that goes on for the length of the block."""
    with daemon.http.stream("POST", "/v1/chat/completions", json={"model": model, **GOES_ON}) as answer:
        arriving = answer.iter_bytes()  # without a name it would be closed at once, and the request with it
        next(arriving)
        yield


LISTS = [
    row.path for row in ROWS if row.method == "GET" and row.scopes & {Scope.INFER, Scope.READ} and "{" not in row.path
]
FOLLOWED = {"/api/v1/events", "/models/sse"}


@pytest.mark.parametrize("path", sorted(set(LISTS) - FOLLOWED))
def test_nothing_that_a_limited_key_may_ask_names_another_model(
    daemon: RunningDaemon, limited: httpx.Client, path: str
) -> None:
    with busy(daemon, "secret-model"):
        for query in ("", "?model=secret-model", "?model=whispered", "?model=open-model", "?lines=1000"):
            answer = limited.get(path + query)
            found = answer.text.replace(query.partition("=")[2] or "-", "")  # an error may repeat what was asked
            assert not any(name in found for name in HIDDEN), (path, query)
        full = daemon.http.get(path + ("?model=secret-model" if path in {"/slots", "/props"} else ""))
        assert full.status_code == wanted_alone(path)


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/api/v1/status", "/api/v1/models"])
def test_a_limited_key_sees_its_own_models(limited: httpx.Client, path: str) -> None:
    assert "open-model" in limited.get(path).text


@pytest.mark.parametrize("name", ["secret-model", "whispered", "SECRET-MODEL", "secret", "secret-model-2"])
def test_a_model_that_a_key_does_not_see_is_answered_as_one_that_is_not_there(limited: httpx.Client, name: str) -> None:
    calls = (
        ("POST", "/v1/chat/completions", {"model": name, **SAID}),
        ("POST", f"/v1/embeddings?model={name}", {"input": "x"}),
        ("GET", f"/v1/models/{name}", None),
        ("GET", f"/slots?model={name}", None),
        ("POST", f"/upstream/{name}/v1/chat/completions", SAID),
        ("GET", f"/upstream/{name}/slots", None),
        ("GET", f"/api/v1/logs?model={name}", None),
    )
    for method, path, body in calls:
        answer = limited.request(method, path, json=body)
        assert code(answer) == (404, "model_not_found"), path
        message = answer.json()["error"]["message"]
        assert "Known models: open-model." in message
        assert f"There is no model '{name.partition('/')[0]}" in message


def test_a_request_without_a_model_means_one_that_the_key_sees(daemon: RunningDaemon, limited: httpx.Client) -> None:
    assert daemon.http.post("/v1/chat/completions", json=SAID).json()["model"] == "secret-model"
    assert limited.post("/v1/chat/completions", json=SAID).json()["model"] == "open-model"
    assert limited.post("/v1/chat/completions", json={"model": "parrot", **SAID}).status_code == 200
    assert limited.post("/v1/chat/completions", json={"model": "OPEN", **SAID}).status_code == 200


def test_logs_of_a_limited_key_are_those_of_its_models(daemon: RunningDaemon, limited: httpx.Client) -> None:
    assert code(limited.get("/api/v1/logs")) == (403, "forbidden")
    assert code(limited.get("/api/v1/disk")) == (403, "forbidden")
    assert limited.get("/api/v1/logs", params={"model": "open-model"}).status_code == 200
    assert daemon.http.get("/api/v1/logs").status_code == 200


@pytest.mark.parametrize("path", ["/api/v1/events", "/models/sse"])
def test_events_of_a_limited_key_tell_of_its_models_alone(
    daemon: RunningDaemon, limited: httpx.Client, path: str
) -> None:
    with limited.stream("GET", path) as events:
        heard = events.iter_text()
        text = "" if path == "/models/sse" else next(heard)
        daemon.http.post("/api/v1/models/unload", json={"model": "secret-model", "now": True})
        daemon.http.post("/api/v1/models/unload", json={"model": "open-model", "now": True})
        daemon.load("secret-model")
        daemon.load("open-model")
        with busy(daemon, "secret-model"), busy(daemon, "open-model"):
            ends = '"request"' if path == "/models/sse" else "event: request\n"
            while not (ends in text or (path == "/models/sse" and '"loaded"' in text)):
                text += next(heard)
    assert "open-model" in text
    assert not any(name in text for name in HIDDEN)


def test_an_answer_of_a_hidden_model_cannot_be_ended(daemon: RunningDaemon, limited: httpx.Client) -> None:
    body = {"model": "secret-model", "input": "endless", "max_output_tokens": 100_000, "stream": True}
    with daemon.http.stream("POST", "/v1/responses", json=body) as answer:
        heard, text = answer.iter_text(), ""
        while (found := re.search(r'"id":\s*"(resp_\w+)"', text)) is None:
            text += next(heard)
        hidden = limited.post(f"/v1/responses/{found[1]}/cancel")
        assert code(hidden) == (404, "request_not_found")
        assert hidden.json() == json.loads(limited.post("/v1/responses/resp_x/cancel").text.replace("resp_x", found[1]))
        assert daemon.http.post(f"/v1/responses/{found[1]}/cancel").status_code == 200


# -- tokens


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {**SAID, "stream": True}),
        ("/v1/chat/completions", SAID),
        ("/v1/chat/completions", {**SAID, "logprobs": True}),
        ("/v1/completions", {"prompt": "hello", "max_tokens": 4}),
        ("/completion", {"prompt": "hello", "n_predict": 4}),
        ("/v1/responses", {"input": "hello", "max_output_tokens": 4}),
        ("/v1/messages", SAID),
        ("/v1/messages", {**SAID, "stream": True}),
        ("/upstream/open-model/v1/chat/completions", SAID),
        ("/upstream/open-model/v1/chat/completions", {**SAID, "stream": True}),
    ],
)
def test_an_answer_counts_as_the_engine_counts_it(
    daemon: RunningDaemon, limited: httpx.Client, path: str, body: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    name = f"n{abs(hash(request.node.name)) % 10**9}"
    with holder(daemon, name) as client:
        answer = client.post(path, json={"model": "open-model", **body})
        assert answer.status_code == 200, answer.text
        asked = {"model": "open-model", **body, "stream": False}
        told = daemon.http.post(path, json=asked).json()
    found = usage(daemon, name)
    timings, said = told.get("timings"), told.get("usage", {})
    prompt = (
        timings["prompt_n"] + timings["cache_n"]
        if timings
        else said["input_tokens"] + said.get("cache_read_input_tokens", 0)
    )
    assert found == {"requests": 1, "prompt_tokens": prompt, "completion_tokens": 4}


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/completion", {"return_tokens": True}),
        ("/completion", {"n_indent": 1}),
        ("/completion", {"stream": True}),
        ("/upstream/open-model/completions", {"n_indent": 1}),
        ("/upstream/open-model/completion", {"stream_options": []}),
    ],
    ids=str,
)
def test_a_client_that_wants_no_account_of_tokens_has_used_them(
    daemon: RunningDaemon, limited: httpx.Client, path: str, more: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    name = f"n{abs(hash(request.node.name)) % 10**9}"
    body = {"prompt": "hello", "n_predict": 4, "response_fields": ["content"], **more}
    with holder(daemon, name) as client:
        answer = client.post(path, json={"model": "open-model", **body})
        assert answer.status_code == 200, answer.text
    found = usage(daemon, name)
    assert found["prompt_tokens"] > 0
    assert found["completion_tokens"] == 4


@pytest.mark.parametrize("path", ["/v1/messages", "/upstream/open-model/v1/messages"])
@pytest.mark.parametrize("name", ["stop", "usage", "timings"])
def test_a_tool_call_with_arguments_like_an_account_hides_no_tokens(
    daemon: RunningDaemon, path: str, name: str
) -> None:
    """In Anthropic's own form arguments are JSON, in which a model could write what the engine tells of tokens."""
    said = {"stop": False, "usage": {"output_tokens": 0}, "timings": {"predicted_n": 0}}[name]
    schema = {
        "type": "object",
        "properties": {name: {"enum": [said]}},
        "required": [name],
        "additionalProperties": False,
    }
    tools = [{"name": "get_weather", "input_schema": schema}]
    forced = {"tools": tools, "tool_choice": {"type": "any"}, "tool_calls": "off"}
    with holder(daemon, f"{name}-{path.count('/')}", models=["open-*"]) as client:
        answer = client.post(path, json={"model": "open-model", **SAID, **forced, "max_tokens": 512})
        assert answer.json()["content"][1]["input"] == {name: said}, answer.text
        used = usage(daemon, f"{name}-{path.count('/')}")
    assert used["prompt_tokens"] > 0 < used["completion_tokens"]


@pytest.mark.parametrize(
    "more", [{"n_cmpl": 3}, {"n_cmpl": 3, "stream": True}, {"n": 1, "n_cmpl": 3, "stream": True}], ids=str
)
def test_every_choice_counts_whatever_their_number_is_called(
    daemon: RunningDaemon, limited: httpx.Client, more: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    name = f"n{abs(hash(request.node.name)) % 10**9}"
    with holder(daemon, name) as client:
        answer = client.post("/v1/chat/completions", json={"model": "open-model", **SAID, **more})
        assert answer.status_code == 200, answer.text
    assert usage(daemon, name)["completion_tokens"] == 12


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt": "hello", "n_predict": 4, "response_fields": ["content"], "x": ' + b"[" * 600 + b"]" * 600 + b"}",
        b'{"prompt": "hello", "n_predict": 4, "response_fields": ["content"], "x": 1' + b"0" * 5000 + b"}",
        b'--x\r\ncontent-disposition: form-data; name="prompt"\r\n\r\nhello\r\n--x--\r\n',
    ],
    ids=["nesting", "a number", "a form"],
)
def test_a_key_generates_nothing_that_cannot_be_counted(
    daemon: RunningDaemon, limited: httpx.Client, body: bytes
) -> None:
    kind = {"content-type": "multipart/form-data; boundary=x"} if body.startswith(b"--") else {}
    answer = limited.post("/upstream/open-model/completion", content=body, headers=kind)
    assert code(answer) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embeddings", {"content": "hello" * 100}),
        ("/upstream/open-model/embedding", {"content": "hello" * 100}),
    ],
)
def test_vectors_in_the_engine_s_own_form_count_by_their_size(
    daemon: RunningDaemon, limited: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    name = f"own{len(path)}"
    with holder(daemon, name) as client:
        answer = client.post(path, json={"model": "open-model", **body})
        assert answer.status_code == 200, answer.text
        assert "usage" not in answer.text
        assert client.post(path, json={"model": "open-model", "content": 5}).status_code >= 400
        assert client.post("/tokenize", json={"model": "open-model", "content": "x" * 1000}).status_code == 200
    assert 125 <= usage(daemon, name)["prompt_tokens"] <= 150


def test_vectors_count_their_prompt(daemon: RunningDaemon, limited: httpx.Client) -> None:
    with holder(daemon, "vectors") as client:
        answer = client.post("/v1/embeddings", json={"model": "open-model", "input": "hello"})
    assert usage(daemon, "vectors")["prompt_tokens"] == answer.json()["usage"]["prompt_tokens"] > 0


def test_an_answer_that_its_client_leaves_has_been_used(daemon: RunningDaemon, limited: httpx.Client) -> None:
    with holder(daemon, "leaver", token_budget=50) as client:
        with client.stream("POST", "/v1/chat/completions", json={"model": "open-model", **GOES_ON}) as answer:
            seen = 0
            for piece in answer.iter_bytes():
                seen += piece.count(b'"content":')
                if seen > 60:
                    break
        wait_until(lambda: usage(daemon, "leaver")["completion_tokens"] > 50, "what was used is counted")
        assert usage(daemon, "leaver")["prompt_tokens"] > 0
        assert code(client.post("/v1/chat/completions", json={"model": "open-model", **SAID})) == (429, "budget_spent")


def test_a_spent_budget_ends_what_takes_tokens_and_is_not_worth_repeating(
    daemon: RunningDaemon, limited: httpx.Client
) -> None:
    with holder(daemon, "spender", token_budget=1) as client:
        assert client.post("/v1/chat/completions", json={"model": "open-model", **SAID}).status_code == 200
        for path in ("/v1/chat/completions", "/upstream/open-model/v1/chat/completions"):
            refused = client.post(path, json={"model": "open-model", **SAID})
            assert code(refused) == (429, "budget_spent")
            assert refused.headers["x-should-retry"] == "false"
        assert client.get("/v1/models").status_code == 200
        assert client.get("/upstream/open-model/slots").status_code == 200


def test_tokens_a_minute_of_one_key_are_not_another_s(daemon: RunningDaemon, limited: httpx.Client) -> None:
    with holder(daemon, "quick", tokens_per_minute=2) as client, holder(daemon, "quick2", tokens_per_minute=2) as other:
        assert client.post("/v1/chat/completions", json={"model": "open-model", **SAID}).status_code == 200
        refused = client.post("/v1/chat/completions", json={"model": "open-model", **SAID})
        assert code(refused) == (429, "rate_limited")
        assert int(refused.headers["retry-after"]) > 60  # more was used than a minute gives
        assert other.post("/v1/chat/completions", json={"model": "open-model", **SAID}).status_code == 200


# -- the end of a key


def test_a_key_that_is_revoked_while_it_streams_ends_its_answer_and_begins_no_other(
    daemon: RunningDaemon, limited: httpx.Client
) -> None:
    with holder(daemon, "leaving") as client:
        body = {"model": "open-model", **GOES_ON, "max_tokens": 400}
        with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            heard = answer.iter_text()
            text = next(heard)
            assert daemon.http.delete("/api/v1/keys/leaving").status_code == 200
            assert client.post("/v1/chat/completions", json=body).status_code == 401
            text += "".join(heard)
        assert text.endswith("data: [DONE]\n\n")
        assert "error" not in text
    assert usage(daemon, "leaving")["completion_tokens"] == 400


@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/logs?model=open-model&follow=true&lines=1"])
def test_who_follows_is_told_nothing_more_once_its_key_is_revoked(
    daemon: RunningDaemon, limited: httpx.Client, path: str
) -> None:
    name = "follower-of-logs" if "logs" in path else "follower"
    with holder(daemon, name) as client, client.stream("GET", path) as answer:
        heard = answer.iter_text()
        next(heard)
        daemon.http.delete(f"/api/v1/keys/{name}")
        rest: list[str] = []
        reading = threading.Thread(target=lambda: rest.extend(heard))
        reading.start()
        daemon.http.post("/api/v1/models/unload", json={"model": "open-model", "now": True})
        daemon.load("open-model")  # of which there is an event, and lines
        reading.join(PATIENCE)
        assert not reading.is_alive()
        assert rest == []


@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/logs?model=open-model&follow=true&lines=1"])
def test_who_follows_with_a_text_that_was_replaced_is_told_nothing_more(
    daemon: RunningDaemon, limited: httpx.Client, path: str
) -> None:
    name = "rotated-of-logs" if "logs" in path else "rotated"
    with holder(daemon, name) as client, client.stream("GET", path) as answer:
        heard = answer.iter_text()
        next(heard)
        assert daemon.http.post(f"/api/v1/keys/{name}/rotate").status_code == 200
        rest: list[str] = []
        reading = threading.Thread(target=lambda: rest.extend(heard), daemon=True)
        reading.start()
        daemon.http.post("/api/v1/models/unload", json={"model": "open-model", "now": True})
        daemon.load("open-model")
        reading.join(PATIENCE)
        assert not reading.is_alive()
        assert rest == []


def test_a_budget_that_is_spent_while_a_request_waits_ends_its_wait(engine_binary: Path, talker: Path) -> None:
    models = {"one-slot": {"file": str(talker), "parallel": 1, "ctx_size": 65536}}
    with (
        scratch_home() as home,
        running_daemon(home, engine_binary, {"models": models}, env={"SUPERVISOR_API_KEY": ROOT}) as running,
    ):
        running.http.headers["authorization"] = f"Bearer {ROOT}"
        running.load("one-slot")
        with holder(running, "queuer", token_budget=1) as client:
            answers: list[tuple[int, str]] = []

            def ask(path: str) -> None:
                answers.append(code(client.post(path, json={"model": "one-slot", **SAID})))

            paths = ("/v1/chat/completions", "/upstream/one-slot/v1/chat/completions")
            waiting = [threading.Thread(target=ask, args=(path,)) for path in paths]
            body = {"model": "one-slot", **GOES_ON, "max_tokens": 20_000}
            with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                heard = answer.iter_bytes()
                next(heard)
                for one in waiting:
                    one.start()
                wait_until(lambda: len(running.http.get("/api/v1/requests").json()["requests"]) == 3, "they wait")
                for _ in heard:
                    pass
            for one in waiting:
                one.join(PATIENCE)
            assert answers == [(429, "budget_spent")] * 2


def test_the_counts_are_in_the_file_once_the_daemon_has_ended(engine_binary: Path, talker: Path) -> None:
    models = {"open-model": {"file": str(talker), "ctx_size": 4096}}
    env = {"SUPERVISOR_API_KEY": ROOT}
    with scratch_home() as home:
        with running_daemon(home, engine_binary, {"models": models}, env=env) as running:
            running.http.headers["authorization"] = f"Bearer {ROOT}"
            with holder(running, "kept") as client:
                assert client.post("/v1/chat/completions", json={"model": "open-model", **SAID}).status_code == 200
            shown = usage(running, "kept")
        (kept,) = json.loads((home / "keys.json").read_text())["keys"]
        assert kept["usage"] == [shown["requests"], shown["prompt_tokens"], shown["completion_tokens"]]
        assert shown["completion_tokens"] == 4


def test_a_client_of_ollama_that_only_uses_models_changes_nothing_of_them(daemon: RunningDaemon) -> None:
    """It is answered all the same: many clients always send how long a model is to stay, and a context."""
    status = daemon.load("open-model")
    asked = {"model": "open-model:latest", "messages": SAID["messages"], "stream": False}
    with holder(daemon, "ollama", scopes=["infer"]) as client:
        for wish in ({"keep_alive": 60}, {"keep_alive": 0}, {"options": {"num_ctx": 65536}}):
            assert client.post("/api/chat", json={**asked, **wish}).json()["message"]["content"]
        refused = client.post("/api/generate", json={"model": "open-model", "keep_alive": 0})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert client.post("/api/pull", json={"model": "owner/repo"}).json()["code"] == "forbidden"
    after = daemon.model("open-model")
    assert (after["pid"], after["expires_at"]) == (status["pid"], None)


def test_tokens_of_ollama_s_paths_are_counted(daemon: RunningDaemon) -> None:
    with holder(daemon, "counted", scopes=["infer"], models=["open-*"]) as client:
        for path, more in {
            "chat": {"messages": SAID["messages"]},
            "generate": {"prompt": "hello", "raw": True},
        }.items():
            before = usage(daemon, "counted")["completion_tokens"]
            body = {"model": "open-model", "stream": False, "options": {"num_predict": 4}, **more}
            assert client.post(f"/api/{path}", json=body).json()["eval_count"] == 4
            assert usage(daemon, "counted")["completion_tokens"] == before + 4
        hidden = client.post("/api/chat", json={"model": "secret-model:latest", "messages": SAID["messages"]})
        assert (hidden.status_code, hidden.json()["code"]) == (404, "model_not_found")
        assert [one["name"] for one in client.get("/api/tags").json()["models"]] == ["open-model:latest"]
        assert client.post("/api/show", json={"model": "secret-model"}).status_code == 404

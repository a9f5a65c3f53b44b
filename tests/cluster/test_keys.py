"""Keys of one node whose requests another node answers: their rules hold there as they do at home."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.cluster.passed import read_passed
from supervisor.errors import InvalidRequest
from tests.cluster.stage import Node, cluster_of
from tests.support.daemon import wait_until
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

SAID = "one two three four five."
OTHER = "six seven eight."
ENGINE = {"ctx_size": 8192, "parallel": 1, "cache_ram": 0}
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


@dataclass(frozen=True)
class Stage:
    """The nodes `one`, which has keys, and `two`. root: headers of a key that may do everything."""

    one: Node
    two: Node
    root: dict[str, str]

    def key(self, name: str, **rules: Any) -> dict[str, str]:
        """Headers with a new key that may only use models."""
        asked = {"name": name, "scopes": ["infer"], **rules}
        answer = self.one.daemon.http.post("/api/v1/keys", json=asked, headers=self.root)
        assert answer.status_code == 200, answer.text
        return {"authorization": f"Bearer {answer.json()['key']}"}

    def used(self, name: str) -> dict[str, int]:
        """What a key has used."""
        keys = self.one.daemon.http.get("/api/v1/keys", headers=self.root).json()["keys"]
        found: dict[str, int] = next(key for key in keys if key["name"] == name)["usage"]
        return found

    def ask(self, headers: dict[str, str], path: str, **body: Any) -> httpx.Response:
        """A request to the node with the keys."""
        return self.one.daemon.http.post(path, json=body, headers=headers)

    def pays(self, headers: dict[str, str], name: str, path: str, **body: Any) -> dict[str, int]:
        """Ask, and return what the key has used once that is known."""
        answer = self.ask(headers, path, **body)
        assert answer.status_code == 200, answer.text
        wait_until(lambda: self.used(name)["prompt_tokens"] > 0, f"{path} is paid for")
        return self.used(name)


@pytest.fixture(scope="module")
def shown(engine_binary: Path, scripted_model: ScriptedModel) -> Iterator[Stage]:
    far = {"file": str(scripted_model(SAID, n_ctx=8192)), **ENGINE}
    other = {"file": str(scripted_model(OTHER, n_ctx=8192)), **ENGINE}
    mine = {"near": {**other, "aliases": ["mine"]}}
    theirs = {
        "far": {**far, "aliases": ["distant"]},
        "far/away": other,
        "hidden": {**far, "aliases": ["mine"]},
        "near": other,
        "vectors": {**far, "embeddings": "on", "pooling": "mean"},
    }
    with cluster_of(engine_binary, one={"models": mine}, two={"models": theirs}) as (one, two):
        asked = {"name": "root", "scopes": ["manage", "infer"]}
        root = {"authorization": f"Bearer {one.daemon.http.post('/api/v1/keys', json=asked).json()['key']}"}
        yield Stage(one, two, root)


def test_who_may_only_use_models_neither_unloads_nor_keeps_one_elsewhere(shown: Stage) -> None:
    bot = shown.key("asks")
    assert shown.ask(bot, "/v1/chat/completions", model="far", **CHAT).status_code == 200
    gone = shown.ask(bot, "/api/generate", model="far", keep_alive=0)
    assert gone.status_code == 403, gone.text
    assert gone.json()["error"]
    assert shown.two.has("far")
    kept = shown.ask(bot, "/api/chat", model="far", keep_alive=-1, stream=False, **CHAT)
    assert kept.status_code == 200
    assert not shown.two.daemon.model("far")["pinned"]
    shown.ask(bot, "/api/chat", model="far", keep_alive=0, stream=False, **CHAT)
    assert shown.two.has("far")


@pytest.mark.parametrize("path", [
    "/v1/chat/completions", "/completion", "/upstream/far/v1/chat/completions", "/upstream/far/completion",
])  # fmt: skip
def test_tokens_are_paid_for_whatever_the_answer_says_of_them(shown: Stage, path: str) -> None:
    name = path.strip("/").replace("/", "-")
    body = {"prompt": "hi", "n_predict": 4, "response_fields": ["content"]} if path.endswith("completion") else CHAT
    used = shown.pays(shown.key(name), name, path, model="far", **body)
    assert used["completion_tokens"] > 0
    two = shown.two.daemon.http
    wait_until(lambda: two.get("/api/v1/history", params={"key": f"{name}@one"}).json()["requests"], "who has asked")


def test_what_only_nodes_say_to_each_other_counts_for_nothing_of_a_client(shown: Stage) -> None:
    said = {"model": "hidden", "rules": {"name": "root", "scopes": ["manage"], "ticket": "t"}}
    for passed in (json.dumps(said), json.dumps({"model": "hidden"}), "{", ""):
        forged = {"x-supervisor-passed": passed, "x-supervisor-claim": "9" * 19, "x-supervisor-moved": "1"}
        bot = {**shown.key(f"forger-{len(passed)}"), **forged}
        answer = shown.ask(bot, "/v1/chat/completions", model="far", **CHAT)
        assert SAID in answer.text
        assert shown.ask(bot, "/api/generate", model="far", keep_alive=0).status_code == 403
    assert shown.two.has("far")
    assert not shown.two.has("hidden")


def test_a_budget_ends_requests_that_wait_elsewhere(shown: Stage) -> None:
    bot = shown.key("thrifty", token_budget=5)

    def ask(_number: int) -> int:
        return shown.ask(bot, "/v1/chat/completions", model="far", **CHAT).status_code

    with ThreadPoolExecutor(12) as pool:
        said = list(pool.map(ask, range(12)))
    assert set(said) == {200, 429}, said
    assert said.count(200) <= 3, said


def test_a_name_means_on_the_other_node_what_the_front_door_has_taken_it_for(shown: Stage) -> None:
    bot = shown.key("named", models=["near", "far/away"])
    shown.two.did("load", "near")
    wait_until(lambda: any(one["id"] == "near" for one in sees(shown)), "one knows")
    for path in ("/v1/chat/completions", "/upstream/mine/v1/chat/completions", "/api/chat"):
        answer = shown.ask(bot, path, model="mine", stream=False, **CHAT)
        assert answer.status_code == 200, answer.text
        assert OTHER in answer.text
    away = shown.ask(bot, "/upstream/far/away/v1/chat/completions", **CHAT)
    assert away.status_code == 200, away.text
    assert OTHER in away.text
    assert not shown.two.has("hidden")


def sees(shown: Stage) -> list[dict[str, Any]]:
    """The models that `two` has loaded, as `one` knows them."""
    nodes = shown.one.daemon.http.get("/api/v1/cluster", headers=shown.root).json()["nodes"]
    found: list[dict[str, Any]] = next(one for one in nodes if one["name"] == "two")["models"]
    return found


def test_vectors_that_tell_no_tokens_are_paid_for_by_their_size(shown: Stage) -> None:
    used = shown.pays(shown.key("vectors"), "vectors", "/embedding", model="vectors", content="hi " * 40)
    assert used["prompt_tokens"] >= 30


def test_what_another_node_says_of_a_request_is_read_within_bounds() -> None:
    for said in (
        b"{",
        b"[]",
        b"{}",
        b'{"model":""}',
        b'{"model":"a","rules":{"name":"k","scopes":["all"],"ticket":"t"}}',
    ):
        with pytest.raises(InvalidRequest):
            read_passed({"headers": [(b"x-supervisor-passed", said)]})
    assert read_passed({"headers": []}) is None

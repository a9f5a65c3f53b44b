"""A picture that a client names reaches a real engine with eyes, fetched by the daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import HELLO
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.media_server import media_server
from tests.support.projector import write_projector

pytestmark = pytest.mark.engine

HERE = {"fetch_urls": "all", "fetch_allow": ["127.0.0.0/8"]}


@pytest.fixture(scope="module")
def seeing(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    """A daemon whose model takes pictures, and that may fetch them from this machine."""
    with scratch_home() as home:
        projector = write_projector(home / "eyes.gguf", 128)
        models = {"seeing": {"file": str(talker), "mmproj": str(projector), "ctx_size": 8192}}
        with running_daemon(home, engine_binary, {"models": models, "server": HERE}) as running:
            yield running


def picture(url: str) -> dict[str, Any]:
    part = {"type": "image_url", "image_url": {"url": url}}
    return {"messages": [{"role": "user", "content": [part, {"type": "text", "text": "What is it?"}]}]}


def test_a_picture_is_fetched_once_and_by_the_daemon_alone(seeing: RunningDaemon) -> None:
    with media_server() as server:
        part = {"type": "image", "source": {"type": "url", "url": server.url()}}
        anthropic = {"role": "user", "content": [part]}
        for path in ("/v1/chat/completions", "/upstream/seeing/v1/chat/completions"):
            answer = seeing.http.post(path, json={"model": "seeing", **picture(server.url())})
            assert answer.status_code == 200, answer.text
            assert answer.json()["choices"][0]["message"]["content"] == HELLO
        answer = seeing.http.post("/v1/messages", json={"model": "seeing", "max_tokens": 99, "messages": [anthropic]})
        assert (answer.status_code, answer.json()["content"][0]["text"]) == (200, HELLO)
    assert [one.headers["user-agent"].partition("/")[0] for one in server.asked] == ["llama-supervisor"] * 3


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upstream/seeing/v1/chat/completions", "/apply-template"])
def test_what_may_not_be_fetched_is_not_asked_for(seeing: RunningDaemon, path: str) -> None:
    with media_server() as server:
        for url in (server.url(host="[::ffff:10.0.0.1]"), "file:///etc/hostname", f"ftp://127.0.0.1:{server.port}/"):
            answer = seeing.http.post(path, json={"model": "seeing", **picture(url)})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "media_url_refused")
    assert server.asked == []


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embeddings", "/upstream/seeing/v1/embeddings"])
def test_a_vector_of_nothing_but_a_picture_ends_no_engine(seeing: RunningDaemon, path: str) -> None:
    """llama-server aborts where no token stands behind the last picture, and takes everybody's answers with it."""
    seeing.load("seeing")
    engine = seeing.model("seeing")["pid"]
    with media_server() as server:
        part = {"type": "image_url", "image_url": {"url": server.url()}}
        for content in ([part], [{"type": "text", "text": "a"}, part, {"type": "text", "text": ""}]):
            answer = seeing.http.post(path, json={"model": "seeing", "input": [{"content": content}]})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
        hidden = {"model": "seeing", "input": [{"content": [part], "x": [[1]] * 70_000}]}
        assert seeing.http.post(path, json=hidden).status_code == 400
        unread = b'{"model": "seeing", "input": [{"content": [{"type": "image_url"}]}], "x": 1' + b"0" * 5000 + b"}"
        assert seeing.http.post(path, content=unread).status_code == 400
        behind = [part, {"type": "text", "text": "a"}]
        answer = seeing.http.post(path, json={"model": "seeing", "input": [{"content": behind}]})
        assert answer.status_code == 200, answer.text
    assert seeing.model("seeing")["pid"] == engine


def test_by_default_nothing_inside_is_reached(daemon: RunningDaemon) -> None:
    with media_server() as server:
        for url in (server.url(), server.url().replace("http:", "https:")):
            answer = daemon.http.post("/v1/chat/completions", json={"model": "talker", **picture(url)})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "media_url_refused")
            assert answer.json()["error"]["param"] == "messages.0.content.0.image_url.url"
    assert server.asked == []

"""A picture that a client names reaches a real engine with eyes, fetched by the daemon."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import HELLO
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.media_server import answer as answer_with
from tests.support.media_server import gif, media_server, png
from tests.support.patience import PATIENCE
from tests.support.projector import write_projector

pytestmark = pytest.mark.engine

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
HERE = {"fetch_urls": "all", "fetch_allow": ["127.0.0.0/8"]}


@pytest.fixture(scope="module")
def seeing(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    """A daemon whose model takes pictures, and that may fetch them from this machine."""
    with scratch_home() as home:
        projector = write_projector(home / "eyes.gguf", 128)
        model = {"file": str(talker), "mmproj": str(projector), "ctx_size": 8192}
        folder = home / "pictures"
        (folder / "new").mkdir(parents=True)
        for file in (folder / "new/a.png", home / "outside.png"):
            file.write_bytes(png())
        models = {"seeing": model, "album": {**model, "extra_args": ["--media-path", str(folder)]}}
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


ALBUM = ("/v1/chat/completions", "/upstream/album/v1/chat/completions")


@pytest.mark.parametrize("path", ALBUM)
def test_a_picture_of_the_model_s_folder_is_read_by_its_engine(seeing: RunningDaemon, path: str) -> None:
    for url in ("file://new/a.png", "file:///new//a.png"):
        for more in ({}, {"thinking": False, "tools": [TOOL]}):
            answer = seeing.http.post(path, json={"model": "album", **picture(url), **more})
            assert answer.status_code == 200, answer.text
            assert answer.json()["choices"][0]["message"]["content"] == HELLO


@pytest.mark.parametrize("path", ALBUM)
@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("file://../outside.png", "invalid_request"),
        ("file://new/b.png", "invalid_request"),
        ("FILE://new/a.png", "media_url_refused"),
        (" file://new/a.png", "media_url_refused"),
        ("file:new/a.png", "media_url_refused"),
    ],
)
def test_nothing_else_is(seeing: RunningDaemon, path: str, url: str, code: str) -> None:
    answer = seeing.http.post(path, json={"model": "album", **picture(url)})
    assert answer.status_code == 400
    told = answer.json()["error"]["code"]
    assert told == (400 if path.startswith("/upstream/") and code == "invalid_request" else code)


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


BOMB = base64.b64encode(gif(18_000, 18_000)).decode()


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/chat/completions", picture(f"data:image/gif;base64,{BOMB}")),
    ("/upstream/seeing/v1/chat/completions", picture(f"data:image/gif;base64,{BOMB}")),
    ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": BOMB}}]}]}),
    ("/api/chat", {"messages": [{"role": "user", "content": "What is it?", "images": [BOMB]}]}),
    ("/completion", {"prompt": {"prompt_string": "<__media__>", "multimodal_data": [BOMB]}}),
    ("/upstream/seeing/completion", {"prompt": {"prompt_string": "<__media__>", "multimodal_data": [BOMB]}}),
    ("/v1/embeddings", {"input": {"prompt_string": "<__media__> a", "multimodal_data": [BOMB]}}),
])  # fmt: skip
def test_a_picture_of_a_few_bytes_and_gigabytes_of_pixels_does_not_reach_an_engine(
    seeing: RunningDaemon, path: str, body: dict[str, Any]
) -> None:
    answer = seeing.http.post(path, json={"model": "seeing", **body})
    assert answer.status_code == 413, answer.text
    assert "324 million pixels" in answer.text


def test_nor_does_a_fetched_one_and_one_that_is_a_file_of_a_form(seeing: RunningDaemon) -> None:
    with media_server() as server:
        server.answers["/bomb"] = partial(answer_with, body=gif(18_000, 18_000), kind="image/gif")
        answer = seeing.http.post("/v1/chat/completions", json={"model": "seeing", **picture(server.url("/bomb"))})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "media_too_large")
    for path in ("/v1/audio/transcriptions", "/upstream/seeing/v1/audio/transcriptions"):
        answer = seeing.http.post(path, data={"model": "seeing"}, files={"file": ("a.wav", gif(18_000, 18_000))})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "media_too_large")


def test_by_default_nothing_inside_is_reached(daemon: RunningDaemon) -> None:
    with media_server() as server:
        for url in (server.url(), server.url().replace("http:", "https:")):
            answer = daemon.http.post("/v1/chat/completions", json={"model": "talker", **picture(url)})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "media_url_refused")
            assert answer.json()["error"]["param"] == "messages.0.content.0.image_url.url"
    assert server.asked == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upstream/seeing/v1/chat/completions"])
def test_a_request_whose_picture_is_on_its_way_is_listed_and_can_be_cancelled(seeing: RunningDaemon, path: str) -> None:
    asked_for, leaves = threading.Event(), threading.Event()

    def never(_handler: object) -> None:
        asked_for.set()
        leaves.wait(PATIENCE)

    with media_server() as server, ThreadPoolExecutor(1) as thread:
        server.answers["/slow.png"] = never
        body = {"model": "seeing", "stream": True, **picture(server.url("/slow.png"))}
        answer = thread.submit(seeing.http.post, path, json=body)
        try:
            assert asked_for.wait(PATIENCE)
            (one,) = seeing.http.get("/api/v1/requests").json()["requests"]
            assert (one["model"], one["path"], one["state"], one["stream"]) == ("seeing", path, "fetching", True)
            assert seeing.http.delete(f"/api/v1/requests/{one['id']}").json()["state"] == "fetching"
            told = answer.result(PATIENCE)
        finally:
            leaves.set()
        assert (told.status_code, told.json()["error"]["code"]) == (499, "request_cancelled")
        assert seeing.http.get("/api/v1/requests").json()["requests"] == []

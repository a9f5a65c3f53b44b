"""A request names a model of the hub that nobody configured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.conftest import SAID
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.hub import LocalHub

pytestmark = pytest.mark.engine


@contextlib.contextmanager
def daemon_of(engine: Path, hub: LocalHub, autoload: str | None) -> Iterator[RunningDaemon]:
    """A daemon that knows no model but its own, with the hub's `a/b:Q4_0` on disk."""
    settings = {"server": {"autoload": autoload}} if autoload else {}
    with scratch_home() as home, running_daemon(home, engine, settings, env=hub.environment(home / "hf")) as daemon:
        fetched = daemon.http.post("/api/v1/models", json={"model": "a/b:Q4_0"})
        assert fetched.status_code == 200
        assert [model["id"] for model in daemon.http.get("/v1/models").json()["data"]] == ["demo"]
        yield daemon


@pytest.fixture
def hub_of_two(hub: LocalHub, talker: Path) -> LocalHub:
    """A hub with two variants of one model, and a model that is none."""
    hub.add("a/b", {"m-Q4_0.gguf": talker, "m-Q8_0.gguf": talker.read_bytes() + b"\0"})
    hub.add("a/broken", {"m-Q4_0.gguf": b"GGUF and nothing more"})
    return hub


def said(daemon: RunningDaemon, model: str) -> str:
    """What the model says, or the code of the error."""
    told = daemon.chat(model, "Hello?").json()
    return str(told["error"]["code"] if "error" in told else told["choices"][0]["message"]["content"])


def test_by_default_what_is_on_disk_is_found_and_nothing_is_downloaded(
    engine_binary: Path, hub_of_two: LocalHub
) -> None:
    with daemon_of(engine_binary, hub_of_two, None) as daemon:
        asked = len(hub_of_two.requests(""))
        for unknown in ("a/b:Q8_0", "a/none:Q4_0", "a/none", "none", "/a/b", "hf://a", "a/b/m-Q8_0.gguf"):
            assert said(daemon, unknown) == "model_not_found"
        for method in ("GET", "POST"):
            answer = daemon.http.request(method, "/lora-adapters", params={"model": "a/b:Q4_0"})
            assert answer.json()["error"]["code"] == "model_not_found"
        assert said(daemon, "a/b:q4_0") == SAID
        assert daemon.model("a/b:Q4_0")["hub"] == "a/b:Q4_0"
        assert [said(daemon, name) for name in ("a/b:Q4_0", "hf.co/a/b:Q4_0", "a/b")] == [SAID] * 3
        assert len(daemon.http.get("/v1/models").json()["data"]) == 2
        assert said(daemon, "a/b:Q8_0") == "model_not_found", "no answer from another variant"
        assert len(hub_of_two.requests("")) == asked


def test_a_repository_is_enough_where_one_variant_of_it_is_on_disk(engine_binary: Path, hub_of_two: LocalHub) -> None:
    with daemon_of(engine_binary, hub_of_two, "disk") as daemon:
        assert said(daemon, "a/b") == SAID
        assert daemon.model("a/b:Q4_0")["state"] == "ready"
    with daemon_of(engine_binary, hub_of_two, "disk") as daemon:
        daemon.http.post("/api/v1/models", json={"model": "a/b:Q8_0"})
        assert said(daemon, "a/b") == "model_not_found", "either could be meant"
        assert said(daemon, "a/b:Q8_0") == SAID


def test_off_finds_only_what_is_known(engine_binary: Path, hub_of_two: LocalHub) -> None:
    with daemon_of(engine_binary, hub_of_two, "off") as daemon:
        assert said(daemon, "a/b:Q4_0") == "model_not_found"
        daemon.load("a/b:Q4_0")
        assert said(daemon, "a/b:Q4_0") == SAID


def test_hub_downloads_what_is_asked_for(engine_binary: Path, hub_of_two: LocalHub) -> None:
    with daemon_of(engine_binary, hub_of_two, "hub") as daemon:
        assert said(daemon, "a/b:Q8_0") == SAID
        assert daemon.model("a/b:Q8_0")["path"].endswith("m-Q8_0.gguf")
        assert said(daemon, "a/nobody:Q4_0") == "repository_not_found"
        assert said(daemon, "a/b:Q2_K") == "variant_not_found"


def test_one_that_cannot_be_loaded_is_not_tried_again_by_requests(engine_binary: Path, hub_of_two: LocalHub) -> None:
    with daemon_of(engine_binary, hub_of_two, "hub") as daemon:
        assert said(daemon, "a/broken:Q4_0") == "gguf_invalid"
        asked = len(hub_of_two.requests(""))
        again = daemon.chat("a/broken:Q4_0", "Hello?").json()["error"]
        assert (again["code"], "could not be loaded" in again["message"]) == ("model_not_found", True)
        assert len(hub_of_two.requests("")) == asked

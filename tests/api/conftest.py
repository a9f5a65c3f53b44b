"""One daemon with one scripted model for a module of tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.demo.maker import write_scripted_gguf
from supervisor.demo.script import Reply, Script
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home

HELLO = "Hello from the test model; it always says this."
REASONED = "The answer is forty-two."
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ENDLESS = "and on and on it goes, round after round, "

SCRIPT = Script(
    name="talker",
    default=HELLO,
    replies=(
        Reply("think", f"<think>\nLet me ponder.\n</think>\n\n{REASONED}"),
        Reply("call", CALL),
        Reply("endless", ENDLESS, endless=True),
    ),
    n_ctx=131072,
)


@pytest.fixture(scope="session")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a model that says HELLO, or what a word of SCRIPT picks."""
    path = tmp_path_factory.mktemp("models") / "talker.gguf"
    write_scripted_gguf(path, SCRIPT)
    return path


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    """A daemon that knows `talker` (with embeddings) and `chatter` (without)."""
    models = {
        "talker": {"file": str(talker), "parallel": 4, "ctx_size": 65536, "aliases": ["parrot"]},
        "chatter": {"file": str(talker), "parallel": 2, "ctx_size": 4096, "embeddings": "off"},
    }
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        yield running

"""Whatever ends a daemon in a take-over or after one: nothing is left running."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.daemon import RunningDaemon, scratch_home, start_daemon, wait_until
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel
from tests.takeover.stage import ON_AND_ON, copies, reading, restart

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(sys.platform != "linux", reason="only on Linux can a daemon be taken over while it runs"),
]


@pytest.fixture
def daemon(engine_binary: Path, scripted_model: ScriptedModel) -> Iterator[RunningDaemon]:
    endless = str(scripted_model(ON_AND_ON, endless=True, n_ctx=262144))
    settings = {"models": {"endless": {"file": endless, "parallel": 2, "ctx_size": 262144}}, "server": {"drain": 0.1}}
    with scratch_home() as home:
        running = start_daemon(home, engine_binary, settings)
        try:
            yield running
        finally:
            running.http.close()
            if running.process.poll() is None:
                running.process.kill()
            running.process.wait()


def family(daemon: RunningDaemon) -> list[psutil.Process]:
    return psutil.Process(daemon.pid).children(recursive=True)


def assert_gone(left: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(left, timeout=PATIENCE)
    assert not alive, f"left behind: {alive}"


def test_a_daemon_that_stops_ends_what_a_copy_had_begun(daemon: RunningDaemon) -> None:
    daemon.load("endless")
    with reading(daemon) as reader:
        restart(daemon)
        reader.has_more()
        left = family(daemon)
        assert len(left) == 2, "an engine and a copy"
        os.kill(daemon.pid, signal.SIGTERM)
        assert reader.ended.wait(PATIENCE)
        assert reader.is_whole()
        assert isinstance(reader.error, dict), "the stream ends with the reason"
    assert daemon.process.wait(PATIENCE) == 0
    assert_gone(left)


@contextlib.contextmanager
def in_the_middle(daemon: RunningDaemon, moment: str) -> Iterator[None]:
    """Be in a take-over: `copy`, there is one of the image before; `image`, the next one has begun."""

    def ask() -> None:
        with (
            contextlib.suppress(httpx.HTTPError),
            httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False) as client,
        ):
            client.post("/api/v1/restart")

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: bool(copies(daemon)), "there is a copy")
    if moment == "image":
        log = daemon.home / "daemon-output.log"
        wait_until(lambda: log.read_text().count("config_file") > 1, "the next image has begun")
    yield
    asking.join(PATIENCE)
    assert not asking.is_alive()


@pytest.mark.parametrize("moment", ["copy", "image"])
def test_a_daemon_that_is_killed_in_the_middle_leaves_nothing(daemon: RunningDaemon, moment: str) -> None:
    daemon.load("endless")
    with reading(daemon), in_the_middle(daemon, moment):
        left = family(daemon)
        daemon.process.kill()
        daemon.process.wait(PATIENCE)
        assert_gone(left)


@pytest.mark.parametrize("moment", ["copy", "image"])
@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_that_is_stopped_in_the_middle_stops_in_order(
    daemon: RunningDaemon, moment: str, ends: signal.Signals
) -> None:
    daemon.load("endless")
    with reading(daemon) as reader, in_the_middle(daemon, moment):
        left = family(daemon)
        os.kill(daemon.pid, ends)
        assert daemon.process.wait(PATIENCE) == 0
        assert reader.ended.wait(PATIENCE)
        assert isinstance(reader.error, dict), "the stream ends with the reason"
        assert_gone(left)

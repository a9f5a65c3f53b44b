"""What goes wrong in the middle of a take-over: the program cannot be executed, or an engine is not what it was.

The interpreter of these daemons has a hook: it does, at the moment in question, what cannot be brought about from
without.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.daemon import ROOT, RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel
from tests.takeover.stage import ON_AND_ON, copies, log_of, reading, restart

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(sys.platform != "linux", reason="only on Linux can a daemon be taken over while it runs"),
]

NO_EXEC = """
import os

def execve(*arguments):
    raise OSError(8, "Exec format error")

os.execve = execve
"""
ENGINE_DIES = """
import os, signal
import psutil

fork = os.fork

def fork_after_a_death():
    for child in psutil.Process().children():
        if child.name() == "llama-server":
            child.send_signal(signal.SIGKILL)
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    return fork()

os.fork = fork_after_a_death
"""
UNREADABLE = """
import os, sys

execve = os.execve

def execve_with_another_format(path, argv, env):
    number = int(env["SUPERVISOR_TAKEOVER"])
    text = os.read(number, 1 << 24).replace(b'"format":1', b'"format":0')
    os.lseek(number, 0, os.SEEK_SET)
    os.write(number, text)
    os.lseek(number, 0, os.SEEK_SET)
    execve(path, argv, env)

os.execve = execve_with_another_format
"""

SLOW_THREADS = """
import os, threading
from concurrent.futures import ThreadPoolExecutor

submit, fork = ThreadPoolExecutor.submit, os.fork
working, pause = [], threading.Event()

def submit_slow_work(self, work, /, *arguments, **options):
    if not self._thread_name_prefix.startswith("ThreadPoolExecutor"):
        return submit(self, work, *arguments, **options)

    def slow():
        working.append(work)
        try:
            pause.wait(0.2)
            return work(*arguments, **options)
        finally:
            working.remove(work)

    return submit(self, slow)

def fork_and_tell():
    with open(os.environ["TOLD_AT_FORK"], "w") as told:
        told.write(f"{len(working)} at work")
    return fork()

ThreadPoolExecutor.submit, os.fork = submit_slow_work, fork_and_tell
"""
"""The loop's own threads take their time, and it is written down how many are at work as the process forks."""


@contextlib.contextmanager
def hooked(engine: Path, model: Path, folder: Path, hook: str) -> Iterator[RunningDaemon]:
    (folder / "sitecustomize.py").write_text(hook)
    env = {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))), "TOLD_AT_FORK": str(folder / "told")}
    models = {"endless": {"file": str(model), "parallel": 2, "ctx_size": 262144}}
    with scratch_home() as home, running_daemon(home, engine, {"models": models}, env=env) as daemon:
        yield daemon


@pytest.fixture
def endless(scripted_model: ScriptedModel) -> Path:
    return scripted_model(ON_AND_ON, endless=True, n_ctx=262144)


def test_a_program_that_cannot_be_executed(engine_binary: Path, endless: Path, tmp_path: Path) -> None:
    with hooked(engine_binary, endless, tmp_path, NO_EXEC) as daemon:
        pid = daemon.load("endless")["pid"]
        with reading(daemon) as reader:
            answer = daemon.http.post("/api/v1/restart")
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "takeover_failed")
            assert "Exec format error" in answer.json()["error"]["message"]
            assert not copies(daemon)
            reader.has_more()
            assert reader.is_whole()
        wait_until(lambda: daemon.busy_slots("endless") == 0, "the slot is free")
        assert daemon.model("endless")["pid"] == pid
        daemon.http.post("/api/v1/models/unload", json={"model": "endless"})
        assert daemon.load("endless")["pid"] != pid, "engines are started and ended again"


@pytest.mark.parametrize(("hook", "why"), [(ENGINE_DIES, "has ended"), (UNREADABLE, "format 0")])
def test_an_engine_that_cannot_be_adopted_is_loaded_again(
    engine_binary: Path, endless: Path, tmp_path: Path, hook: str, why: str
) -> None:
    with hooked(engine_binary, endless, tmp_path, hook) as daemon:
        pid = daemon.load("endless")["pid"]
        with reading(daemon) as reader:
            restart(daemon)
            assert reader.ended.wait(PATIENCE)
            assert isinstance(reader.error, dict)
            assert reader.error["code"] == "engine_lost"
        wait_until(lambda: daemon.model("endless")["state"] == "ready", "it is loaded again")
        assert daemon.model("endless")["pid"] != pid
        assert not psutil.pid_exists(pid)
        told = log_of(daemon)
        assert "engine_not_adopted" in told
        assert why in told
        with reading(daemon) as reader:
            reader.has_more()


def test_no_thread_is_at_work_while_the_process_forks(engine_binary: Path, endless: Path, tmp_path: Path) -> None:
    """In the copy nobody would do what it has begun, and who waits for that would wait for ever."""
    with hooked(engine_binary, endless, tmp_path, SLOW_THREADS) as daemon:
        over = threading.Event()

        def ask() -> None:
            with httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False) as client:
                while not over.is_set():
                    with contextlib.suppress(httpx.HTTPError):  # the copy ends what is no request for an engine
                        client.get("/metrics")

        clients = [threading.Thread(target=ask) for _ in range(3)]
        for one in clients:
            one.start()
        restart(daemon)
        over.set()
        for one in clients:
            one.join()
        assert (tmp_path / "told").read_text() == "0 at work"

"""A thread for work that may be done twice: a forked copy of the process has another one, and loses nothing."""

from __future__ import annotations

import os
import threading

import pytest

from supervisor.system.worker_thread import WorkerThread
from tests.support.patience import PATIENCE


def test_a_copy_of_the_process_does_what_was_not_done() -> None:
    aside, begun, gate = WorkerThread("test"), threading.Event(), threading.Event()

    def held() -> bool:
        begun.set()
        return gate.wait(PATIENCE)

    doing, waiting = aside.submit(held), aside.submit(lambda: 7)
    assert begun.wait(PATIENCE)
    if (pid := os.fork()) == 0:
        gate.set()
        os._exit(waiting.result(PATIENCE) + aside.submit(lambda: 30).result(PATIENCE) + doing.result(PATIENCE))
    gate.set()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 38
    assert (doing.result(PATIENCE), waiting.result(PATIENCE)) == (True, 7)
    aside.shutdown()


def test_an_error_is_for_who_asked() -> None:
    aside = WorkerThread("test")
    with pytest.raises(ZeroDivisionError):
        aside.submit(lambda: 1 // 0).result(PATIENCE)
    assert aside.submit(lambda: 1).result(PATIENCE) == 1
    aside.shutdown()

"""A thread beside the loop for long computations. It goes on in a forked copy of the process, which has no threads."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def carry_out(work: Callable[[], Any], future: Future[Any]) -> None:
    """Do what was asked for, and tell who asked, unless nobody wants it any more."""
    try:
        if future.running() or future.set_running_or_notify_cancel():
            future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is for who asked
        future.set_exception(error)


class WorkerThread(Executor):
    """One thread. In a forked copy of the process another one takes its place, and does anew what was not done.

    So it is for work that may be done twice. name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._thread = ThreadPoolExecutor(1, self._name)
        self._undone: dict[Future[Any], Callable[[], Any]] = {}

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Have something computed; see `Executor`."""
        return self._give(partial(fn, *args, **kwargs), Future())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the thread; see `Executor`."""
        self._thread.shutdown(wait, cancel_futures=cancel_futures)

    def _give(self, work: Callable[[], _Result], future: Future[_Result]) -> Future[_Result]:
        self._undone[future] = work
        self._thread.submit(self._do, work, future)
        return future

    def _do(self, work: Callable[[], Any], future: Future[Any]) -> None:
        carry_out(work, future)
        self._undone.pop(future, None)

    def _again(self) -> None:
        undone = self._undone
        self._begin()
        for future, work in undone.items():
            if not future.done():
                self._give(work, future)


_all: weakref.WeakSet[WorkerThread] = weakref.WeakSet()


def _after_fork() -> None:
    for one in tuple(_all):
        one._again()


os.register_at_fork(after_in_child=_after_fork)

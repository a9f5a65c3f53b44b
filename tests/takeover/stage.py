"""A daemon that is taken over again and again, and clients that must not notice."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import psutil

from tests.support.daemon import RunningDaemon, wait_until
from tests.support.patience import PATIENCE

ON_AND_ON = "one two three four five six seven eight nine ten. "


class Reader:
    """A stream of an endless answer, read by a thread of its own as it comes."""

    def __init__(self, daemon: RunningDaemon, model: str) -> None:
        self._client = httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False)
        self._model = model
        self._left = threading.Event()
        self.text = ""
        self.error: object = None
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def has_more(self) -> None:
        """Wait until more of it has come."""
        before = len(self.text)
        wait_until(lambda: len(self.text) > before or self.ended.is_set(), "more of the stream")
        assert not self.ended.is_set(), self.error

    def leave(self) -> None:
        """Break it off."""
        self._left.set()
        self._thread.join(PATIENCE)
        self._client.close()

    def is_whole(self) -> bool:
        """Return whether nothing of it is missing."""
        return bool(self.text) and (ON_AND_ON * (len(self.text) // len(ON_AND_ON) + 1)).startswith(self.text)

    def _run(self) -> None:
        body = {"model": self._model, "stream": True, "messages": [{"role": "user", "content": "count"}]}
        try:
            with self._client.stream("POST", "/v1/chat/completions", json=body) as answer:
                for line in answer.iter_lines():
                    if self._left.is_set():
                        return
                    self._take(line)
        except httpx.HTTPError as error:
            self.error = error
        finally:
            self.ended.set()

    def _take(self, line: str) -> None:
        if not line.startswith("data: {"):
            return
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            self.error = event["error"]
        for choice in event.get("choices", ()):
            self.text += choice["delta"].get("content") or ""


@contextlib.contextmanager
def reading(daemon: RunningDaemon, model: str = "endless") -> Iterator[Reader]:
    """Read an endless stream within the block."""
    reader = Reader(daemon, model)
    try:
        reader.has_more()
        yield reader
    finally:
        reader.leave()


def restart(daemon: RunningDaemon) -> dict[str, Any]:
    """Have it taken over; return the answer."""
    answer = daemon.http.post("/api/v1/restart")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def copies(daemon: RunningDaemon) -> list[psutil.Process]:
    """Return the copies of earlier images that live."""
    found = []
    for child in psutil.Process(daemon.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "serve" in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


def log_of(daemon: RunningDaemon) -> str:
    """Return what the daemon has logged, through all its images."""
    return (daemon.home / "daemon-output.log").read_text()

"""What `top` asks the daemon, beside the screen: the newest state again and again, and what a person ordered."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from supervisor.cli.client import Client, Json
from supervisor.cli.nodes import nodes_of
from supervisor.cli.picture import Snapshot
from supervisor.errors import SupervisorError


def look(client: Client, status: Json | None = None, *, here: bool = False) -> Snapshot:
    """Ask for everything that `top` shows; `here`: of this node alone. Raises as `Client.get`."""
    return Snapshot(
        client.get("/api/v1/status") if status is None else status,
        client.get("/api/v1/devices"),
        client.get("/api/v1/requests")["requests"],
        time.time(),
        [] if here else nodes_of(client),
    )


@dataclass(frozen=True)
class Order:
    """What a person wants to be done: the request, and how it is told when it is done."""

    method: str
    path: str
    body: Json
    done: str

    def send(self, client: Client) -> str:
        """Send it, wait until it is done, and return what is to be told; an error is told, too."""
        try:
            if self.method == "DELETE":
                client.delete(self.path, {})
            else:
                client.post(self.path, self.body, timeout=None)
        except SupervisorError as error:
            return f"error: {error.message} [{error.code}]"
        return self.done


def unload(model: str) -> Order:
    """Unload a model after its running requests."""
    return Order("POST", "/api/v1/models/unload", {"model": model}, f"{model} is unloaded")


def pin(model: str, *, pinned: bool) -> Order:
    """Pin a model, or let it go."""
    verb = "pin" if pinned else "unpin"
    return Order("POST", f"/api/v1/models/{verb}", {"model": model}, f"{model} is {'' if pinned else 'not '}pinned")


def cancel(request: str) -> Order:
    """End a request."""
    return Order("DELETE", f"/api/v1/requests/{quote(request, safe='')}", {}, f"request {request} is cancelled")


class Watch:
    """Looks at the daemon in threads of its own, so that no answer that takes long holds up the keys.

    Attributes:
        snapshot: the newest. told: what became of the last order or look; empty: nothing new. woken: a file that can be
            read when one of these is new.
    """

    def __init__(self, client: Client, first: Snapshot, every: float, *, here: bool = False) -> None:
        self.snapshot, self.told = first, ""
        self.woken, self._wake = os.pipe()
        self._client = client
        self._every = every
        self._here = here
        self._in_thread(self._look_on)

    def order(self, order: Order) -> None:
        """Have it done; told when a look has shown what came of it."""
        self._in_thread(lambda: self._look(order.send(self._client)))

    def _look_on(self) -> None:
        while True:
            time.sleep(self._every)
            self._look("")

    def _look(self, told: str) -> None:
        try:
            self.snapshot = look(self._client, here=self._here)
        except SupervisorError as error:
            told = told or f"error: {error.message} [{error.code}]"
        self._tell(told)

    def _tell(self, text: str) -> None:
        self.told = text or self.told
        os.write(self._wake, b".")

    @staticmethod
    def _in_thread(work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()

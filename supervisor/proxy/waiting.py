"""Send comments, which every SSE client ignores, to a streaming client while its request waits for an engine.

They keep clients and proxies from giving up on a load that takes minutes. A request whose engine is ready costs nothing
here: only one that has to wait comes to `Waiting.wait`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from supervisor.core.schedule.lifecycle import STARTING, EngineState
from supervisor.pool.inflight import Inflight, InflightRequest
from supervisor.pool.pool import Lease, Pool
from supervisor.proxy.asgi import Responder


@dataclass(frozen=True)
class Waiting:
    """The way in which streamed requests wait.

    Attributes:
        keep_alive: seconds before the first comment and between two; 0: none are sent. Asked for every such request.
        downloaded: which share of a model's files is here while they are downloaded; None: nothing is.
    """

    pool: Pool
    inflight: Inflight
    keep_alive: Callable[[], float]
    downloaded: Callable[[str], float | None] = lambda model: None

    async def wait(self, lease: asyncio.Future[Lease], request: InflightRequest, responder: Responder) -> Lease:
        """Return the lease once it is granted. Raise the error that it is refused with."""
        seconds = self.keep_alive() or None
        while True:
            await asyncio.wait((lease,), timeout=seconds)
            if lease.done():
                return lease.result()
            await responder.comment(self._text(request))

    def _text(self, request: InflightRequest) -> str:
        model = request.model
        status = self.pool.status(model)
        if status.view.state is EngineState.READY:
            return f"queued behind {self._ahead(request)}"
        share = self.downloaded(model)
        if share is not None:
            return f"downloading {model}, {_percent(share)}"
        if status.view.state is not EngineState.LOADING:
            return f"{model} waits for its room" if status.view.state in STARTING else f"waiting for {model}"
        progress = status.best.progress if status.best else None
        share = progress.value if progress else None
        return f"loading {model}" + (f", {_percent(share)}" if share is not None else "")

    def _ahead(self, request: InflightRequest) -> int:
        """Return the number of requests for the model that came earlier and wait, too."""
        same = (one for one in self.inflight if one.model == request.model and one.engine is None and not one.fetching)
        return sum(one.id < request.id for one in same)


def _percent(share: float) -> str:
    return f"{round(100 * share)} %"

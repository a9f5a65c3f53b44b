"""Ask for a take-over, and hear how it went."""

from __future__ import annotations

import asyncio

import structlog

from supervisor.errors import SupervisorError

_log = structlog.get_logger()


class Takeover:
    """The wish for one. All who ask while one is under way hear of the same."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._outcome: asyncio.Future[None] | None = None

    async def __call__(self) -> None:
        """Ask; return when the next image serves. Raises TakeoverFailed."""
        self.ask()
        assert self._outcome is not None
        await asyncio.shield(self._outcome)

    def ask(self) -> None:
        """Ask, and do not wait."""
        if self._outcome is None:
            self._outcome = asyncio.get_running_loop().create_future()
            self._outcome.add_done_callback(lambda done: done.exception())  # perhaps nobody waits
        self.asked.set()

    def over(self, error: SupervisorError | None = None) -> None:
        """Tell all who have asked how it went; `error`: everything goes on as before."""
        self.asked.clear()
        outcome, self._outcome = self._outcome, None
        if error is not None:
            _log.warning("takeover_failed", code=error.code, reason=error.message)
        if outcome is not None and not outcome.done():
            outcome.set_exception(error) if error is not None else outcome.set_result(None)

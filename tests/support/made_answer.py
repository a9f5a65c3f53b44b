"""The answer of an engine that nobody started, for what no engine of ours would send."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import cast

from supervisor.engines.client import EngineResponse


class MadeAnswer(EngineResponse):
    """An answer whose body is these parts; each is there when somebody reads on. Made within a running loop."""

    ends_with_connection = False

    def __init__(self, parts: Sequence[bytes], content_type: str = "text/event-stream") -> None:
        super().__init__(cast(socket.socket, None))
        self.status, self.content_type, self.full_content_type = 200, content_type, content_type.encode()
        self._left = list(parts)

    def heard_by(self, listener: Callable[[bytes], None]) -> MadeAnswer:
        """Tell nobody."""
        return self

    @property
    def is_over(self) -> bool:
        """True if all parts were taken."""
        return not self._left

    async def pipe(self, sink: Callable[[bytes], bool]) -> bool:
        """Hand on one part."""
        return not self._left or (sink(self._left.pop(0)) and not self._left)

    async def read_some(self) -> bytes:
        """Return the next part."""
        return self._left.pop(0) if self._left else b""

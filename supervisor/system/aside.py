"""A second event loop, in a thread of its own, for work whose steps may take long, as strangers set their length.

A loop serves nobody else during a step. Beside it, a step costs the others no more than their turns at the interpreter.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

_Result = TypeVar("_Result")


async def aside(work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
    """Run a coroutine on the second loop and return its result. Its errors are raised here; a cancellation reaches it.

    It may share nothing with the present loop that is bound to one.
    """
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), _second()))


@cache
def _second() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="aside", daemon=True).start()
    return loop

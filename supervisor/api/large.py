"""Answers of any size, which are made in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import Response

from supervisor.core.text.foreignjson import written


async def told(answer: Callable[[], dict[str, Any]]) -> Response:
    """Return an answer, which is made in a thread: others chose what is in it, and it may be megabytes."""
    content = await asyncio.to_thread(lambda: written(answer()))
    return Response(content, media_type="application/json", headers={"cache-control": "no-store"})

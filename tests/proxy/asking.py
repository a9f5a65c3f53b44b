"""One request to an ASGI endpoint, from a client that stays."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Scope


async def answer_of(endpoint: ASGIApp, scope: Scope, body: bytes = b"") -> list[Message]:
    """What the endpoint sends."""
    asked: list[Message] = [{"type": "http.request", "body": body}]
    sent: list[Message] = []

    async def receive() -> Message:
        return asked.pop() if asked else await asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        sent.append(message)

    await endpoint(scope, receive, send)
    return sent

"""An engine that costs next to nothing: a stream of one event every tenth of a second, or a short answer at once.

    python -m benchmarks.paced --socket PATH

For measurements of what stands before an engine, on machines on which a real one would take all there is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence

_EVERY_S = 0.1
_HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: "
_STREAM = _HEAD + b"text/event-stream\r\n\r\n"


def _event(content: str | None, finish: str | None = None) -> bytes:
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    told = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "paced", "choices": [choice]}
    return b"data: " + json.dumps(told).encode() + b"\n\n"


_WORD = _event("word ")
_SHORT = _STREAM + _WORD + _event(None, "stop") + b"data: [DONE]\n\n"


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET "):
            writer.write(_HEAD + b"application/json\r\n\r\n{}")
            return
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        body = json.loads(await reader.readexactly(int(length.split(b":")[1])))
        if body.get("max_tokens"):
            writer.write(_SHORT if body.get("stream") else _whole())
            return
        writer.write(_STREAM)
        while not writer.is_closing():
            writer.write(_WORD)
            await writer.drain()
            await asyncio.sleep(_EVERY_S)
    except (OSError, asyncio.IncompleteReadError):
        return
    finally:
        writer.close()


def _whole() -> bytes:
    message = {"role": "assistant", "content": "word"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    told = {"id": "x", "object": "chat.completion", "created": 1, "model": "paced", "choices": [choice]}
    text = json.dumps(told).encode()
    return _HEAD + b"application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text


async def _serve(path: str) -> None:
    async with await asyncio.start_unix_server(_answer, path, backlog=512) as server:
        await server.serve_forever()


def main(argv: Sequence[str]) -> int:
    """Serve until it is ended."""
    parser = argparse.ArgumentParser(description="An engine that costs next to nothing.")
    parser.add_argument("--socket", required=True, metavar="PATH", help="where it listens")
    asyncio.run(_serve(parser.parse_args(argv).socket))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

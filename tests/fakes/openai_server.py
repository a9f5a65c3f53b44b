"""A server that speaks OpenAI's API in the way of programs that are not llama-server: a real process of its own.

    python openai_server.py --socket PATH | --port N [--hold MIB] [--never-ready] [--journal FILE]

It answers chats, pictures, speech and recordings with what it was asked, says its errors as plain text or in forms of
other programs, and notes in its journal what it saw: a line of JSON for each request, and for each client that left.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

_WAV = b"RIFF\x24\x00\x00\x00WAVEfmt "


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: Any

    def address_string(self) -> str:
        return "client"

    def log_message(self, format: str, *args: Any) -> None:
        sys.stderr.write(f"{format % args}\n")

    def do_GET(self) -> None:
        ready = not self.server.options.never_ready
        self._say(200 if ready else 503, b"ok" if ready else b"loading", "text/plain")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        kind = self.headers.get("content-type", "")
        asked = json.loads(body) if kind.startswith("application/json") else {}
        self.server.note({"path": self.path, "type": kind.partition(";")[0], "asked": asked, "size": len(body)})
        getattr(self, "_" + self.path.rpartition("/")[2].replace("-", "_"), self._missing)(asked, body)

    def _missing(self, asked: dict[str, Any], body: bytes) -> None:
        self._say(404, b"no such path", "text/plain")

    def _completions(self, asked: dict[str, Any], body: bytes) -> None:
        content = asked["messages"][-1]["content"]
        if content == "refuse":
            self._say(422, json.dumps({"detail": [{"msg": "field required"}]}).encode())
        elif content == "die":
            os._exit(3)
        elif content == "crash":
            self._say(500, b"Traceback: out of luck", "text/plain")
        elif asked.get("stream"):
            self._stream(asked, content)
        else:
            message = {"role": "assistant", "content": f"{asked['model']}: {content}"}
            answer = {"id": "1", "model": asked["model"], "choices": [{"index": 0, "message": message}]}
            self._say(200, json.dumps({**answer, "own": 1.0, "usage": {"prompt_tokens": 3}}).encode())

    def _stream(self, asked: dict[str, Any], content: str) -> None:
        self._head(200, "text/event-stream")
        words = 0
        while content == "for ever" or words < int(asked.get("max_tokens", 3)):
            words += 1
            chunk = {"choices": [{"index": 0, "delta": {"content": f"word{words} "}}], "own": 1.0}
            if not self._send(f"data: {json.dumps(chunk)}\r\n\r\n".encode()):
                self.server.note({"left": self.path, "after": words})
                return
            if content == "die midway":
                os._exit(3)
        if asked.get("stream_options"):
            usage = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": words}}
            self._send(f"data: {json.dumps(usage)}\r\n\r\n".encode())
        self._send(b"data: [DONE]\r\n\r\n")

    def _send(self, data: bytes) -> bool:
        """Write, unless the client has gone."""
        gone = select.select([self.connection], [], [], 0.005)[0]
        if gone and not self.connection.recv(1, socket.MSG_PEEK):
            return False
        try:
            self.wfile.write(data)
        except OSError:
            return False
        return True

    def _generations(self, asked: dict[str, Any], body: bytes) -> None:
        self._say(200, json.dumps({"created": 1, "data": [{"b64_json": "QUJD" * asked.get("n", 1)}]}).encode())

    def _speech(self, asked: dict[str, Any], body: bytes) -> None:
        self._head(200, "audio/wav")
        self._send(_WAV + asked["input"].encode())

    def _transcriptions(self, asked: dict[str, Any], body: bytes) -> None:
        if b'name="file"' not in body:
            self._say(400, b"no 'file' field in the request", "text/plain")
        else:
            self._say(200, b"1\n00:00 hello\n", "text/plain")

    def _say(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _head(self, status: int, kind: str) -> None:
        """Begin an answer that ends with its connection."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()


class _Journal:
    options: argparse.Namespace
    lock = threading.Lock()

    def note(self, what: dict[str, Any]) -> None:
        if self.options.journal:
            with self.lock, Path(self.options.journal).open("a", encoding="utf-8") as file:
                file.write(json.dumps(what) + "\n")


class OnPort(_Journal, socketserver.ThreadingTCPServer):
    daemon_threads = True


class OnSocket(_Journal, socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket")
    parser.add_argument("--port", type=int)
    parser.add_argument("--hold", type=int, default=0)
    parser.add_argument("--never-ready", action="store_true")
    parser.add_argument("--taken", type=Path, help="where this file is: remove it, and say that the port is taken")
    parser.add_argument("--journal")
    parser.add_argument("--api-key")
    parser.add_argument("--also", nargs="*")
    options = parser.parse_args()
    if options.taken and options.taken.exists():
        options.taken.unlink()
        sys.exit("OSError: [Errno 98] Address already in use")
    held = bytearray(os.urandom(1)) * (options.hold << 20)
    server = OnSocket(options.socket, Handler) if options.socket else OnPort(("127.0.0.1", options.port), Handler)
    server.options = options
    sys.stdout.write(f"listening, holding {len(held)} bytes, TOKEN={os.environ.get('TOKEN', '')}\n")
    sys.stdout.flush()
    server.serve_forever(poll_interval=0.05)


if __name__ == "__main__":
    main()

"""HTTP on a Unix socket: a thread for every connection."""

from __future__ import annotations

import json
import select
import socket
import socketserver
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from .answering import Answer, Leaving, Place
from .answers import Chat, Form, Raw, Text
from .asked import Asked, Refused, asked_of
from .generation import Generation
from .model import Model

_EVENTS: Final = "text/event-stream"
_IDLE_S = 600.0  # without a byte of the one program that asks
_MOST_BODY = 256 << 20


@dataclass
class Engine:
    """What requests are answered with.

    Attributes:
        name: of the model. context: tokens of prompt and answer. parallel: answers at the same time.
        model: None while it is loaded.
    """

    name: str
    context: int
    parallel: int
    generation: Generation
    model: Model | None = field(default=None)

    def loaded(self) -> Model:
        """Return the model. Raise Refused while there is none."""
        if self.model is None:
            raise Refused("Loading model", 503, "unavailable_error")
        return self.model


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Listens from its making on."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: str, engine: Engine) -> None:
        self.engine = engine
        super().__init__(path, Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a connection that breaks off is no news."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    server: Server

    def address_string(self) -> str:
        """Return nothing: a Unix socket has no address."""
        return ""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of requests; the daemon does."""

    def do_GET(self) -> None:
        """Answer one of the questions about the engine."""
        self._serve(_ASKED)

    def do_POST(self) -> None:
        """Answer a request with a body."""
        self._serve(_POSTED)

    def _serve(self, routes: Mapping[str, Callable[[Handler, Engine], object]]) -> None:
        try:
            route = routes.get(self.path.partition("?")[0])
            if route is None:
                self.close_connection = True  # its body stays unread
                raise Refused(
                    f"An engine for MLX does not answer {self.command} {self.path[:200]}.", 404, "not_found_error"
                )
            found = route(self, self.server.engine)
            if found is not None:
                self._send(200, found)
        except Refused as error:
            self._send(error.status, error.body)
        except (Leaving, OSError):
            self.close_connection = True

    def body(self) -> dict[str, Any]:
        """Return the request's JSON object."""
        length = self.headers.get("content-length", "")
        if not length.isascii() or not length.isdigit() or len(length) > 12 or int(length) > _MOST_BODY:
            self.close_connection = True
            raise Refused(f"A body needs a length of at most {_MOST_BODY} bytes.", 413)
        raw = self.rfile.read(int(length))
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError):
            raise Refused("The body is no JSON.") from None
        if not isinstance(found, dict):
            raise Refused("The body is no JSON object.")
        return found

    def is_gone(self) -> bool:
        """Return whether the other end has closed the connection."""
        connection = self.connection
        if not select.select([connection], [], [], 0)[0]:
            return False
        try:
            return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def answer(self, engine: Engine, form: Form, asked: Asked, prompt: list[int], *, within: bool) -> object:
        """Return the whole answer, or stream it and return None."""
        place = Place(engine.loaded(), engine.generation, engine.context, self.is_gone)
        found = Answer(place, asked, prompt, within=within)
        if not asked.stream:
            pieces = [piece for step in found.steps() if isinstance(step, list) for piece in step]
            return form.whole(found.account, pieces)
        self.send_response(200)
        self.send_header("content-type", _EVENTS)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for events in _streamed(found, form, asked):
            self._write("".join(f"data: {_json(event)}\n\n" for event in events))
        if form.ends_with_done:
            self._write("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")
        return None

    def _write(self, text: str) -> None:
        data = text.encode()
        if data:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _send(self, status: int, found: object) -> None:
        body = _json(found).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)


def _json(found: object) -> str:
    """Return JSON as llama-server writes it, without spaces."""
    return json.dumps(found, separators=(",", ":"))


def _streamed(answer: Answer, form: Form, asked: Asked) -> Iterator[list[dict[str, Any]]]:
    account = answer.account
    for step in answer.steps():
        if isinstance(step, list):
            yield [form.piece(account, piece) for piece in step if piece.text]
        elif asked.with_progress:
            yield [form.progress(account, step)]
    yield form.end(account, with_usage=asked.with_usage)


def _health(handler: Handler, engine: Engine) -> object:
    engine.loaded()
    return {"status": "ok"}


def _props(handler: Handler, engine: Engine) -> object:
    model = engine.loaded()
    return {
        "default_generation_settings": {"n_ctx": engine.context},
        "total_slots": engine.parallel,
        "model_path": str(model.folder),
        "chat_template": model.template,
        "chat_template_caps": model.abilities,
        "modalities": {"vision": False, "audio": False},
        "build_info": "mlx-lm",
    }


def _slots(handler: Handler, engine: Engine) -> object:
    engine.loaded()
    busy = engine.generation.busy
    return [{"id": at, "n_ctx": engine.context, "is_processing": at < busy} for at in range(engine.parallel)]


def _models(handler: Handler, engine: Engine) -> object:
    return {"object": "list", "data": [{"id": engine.name, "object": "model", "owned_by": "mlx"}]}


def _tokenize(handler: Handler, engine: Engine) -> object:
    body = handler.body()
    text = body.get("content")
    if not isinstance(text, str):
        raise Refused("`content` must be a text.", param="content")
    return {"tokens": engine.loaded().tokens_of(text, special=bool(body.get("add_special")))}


def _detokenize(handler: Handler, engine: Engine) -> object:
    model = engine.loaded()
    return {"content": model.text_of(_tokens(handler.body().get("tokens"), model.n_vocab, "tokens"))}


def _template(handler: Handler, engine: Engine) -> object:
    return {"prompt": engine.loaded().render(handler.body())}


def _chat(handler: Handler, engine: Engine) -> object:
    body, model = handler.body(), engine.loaded()
    asked = asked_of(body, model.sampling, engine.name)
    text = model.render(body)
    prompt = model.tokens_of(text, special=False)
    return handler.answer(engine, Chat(asked.model), asked, prompt, within=model.is_thinking(text))


def _completions(handler: Handler, engine: Engine) -> object:
    return _continued(handler, engine, Text(engine.name))


def _completion(handler: Handler, engine: Engine) -> object:
    return _continued(handler, engine, Raw(engine.name))


def _continued(handler: Handler, engine: Engine, form: Form) -> object:
    body, model = handler.body(), engine.loaded()
    asked = asked_of({**body, "reasoning_format": "none"}, model.sampling, engine.name)
    return handler.answer(engine, form, asked, _prompt(body.get("prompt"), model), within=False)


def _prompt(value: object, model: Model) -> list[int]:
    """Return the tokens of a prompt: a text, its tokens, or a list of one text."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        value = value[0]
    return model.tokens_of(value, special=True) if isinstance(value, str) else _tokens(value, model.n_vocab, "prompt")


def _tokens(value: object, n_vocab: int, name: str) -> list[int]:
    if not isinstance(value, list) or not all(type(one) is int and 0 <= one < n_vocab for one in value):
        message = f"`{name}` must be one text or a list of tokens; several prompts at once cannot be had with mlx-lm."
        raise Refused(message, param=name)
    return value


_ASKED: Final[Mapping[str, Callable[[Handler, Engine], object]]] = {
    "/health": _health,
    "/props": _props,
    "/slots": _slots,
    "/v1/models": _models,
}
_POSTED: Final[Mapping[str, Callable[[Handler, Engine], object]]] = {
    "/tokenize": _tokenize,
    "/detokenize": _detokenize,
    "/apply-template": _template,
    "/v1/chat/completions": _chat,
    "/v1/completions": _completions,
    "/completion": _completion,
}

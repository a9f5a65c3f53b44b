"""What the calls of LocalAI do: requests to the daemon, as `core/localai` maps them.

It is a front: models, their memory and their queue are the daemon's, so several backends and all other clients share
them. A backend of its own process for each model would know nothing of the others.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from supervisor.cli.client import Client, Json, remote_error
from supervisor.cli.daemon import Daemon
from supervisor.cli.localai.call import Call
from supervisor.cli.localai.loading import load, unload
from supervisor.core.localai import messages as m
from supervisor.core.localai.answering import Stream, ranked, vectors, whole
from supervisor.core.localai.asking import Ask, ask
from supervisor.core.localai.figures import Figures, told
from supervisor.core.localai.loaded import Loaded, Models
from supervisor.core.localai.loading import wanted
from supervisor.core.localai.refusals import text_of
from supervisor.core.text.foreignjson import NotJson, parse
from supervisor.errors import DaemonError, DaemonUnreachable, InvalidRequest, SupervisorError

_CLOSING_SECONDS = 5.0
_QUESTION = ({"role": "user", "content": "test"},)


class Backend:
    """The calls, by their names in LocalAI's contract. Every method but `close` is called in a thread of its own.

    Args:
        find: returns the daemon, and starts one where none runs.
    """

    def __init__(self, find: Callable[[], Daemon]) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._models = Models()
        self._daemon: Daemon | None = None
        self._figures = Figures()

    def health(self, _: m.Nothing, call: Call) -> m.Reply:
        """Say that the backend lives, with or without a model."""
        return m.Reply(message=b"OK")

    def load_model(self, asked: m.ModelOptions, call: Call) -> m.Result:
        """Load a model and wait until it is ready; why it failed is in the result."""
        try:
            wants = wanted(asked)
            self._daemon = self._find()
            loaded, note = load(self._client(call), asked, wants, lambda: call.left)
        except SupervisorError as error:
            return m.Result(text_of(error), success=False)
        with self._lock:
            self._models.add(loaded)
        return m.Result(note, success=True)

    def predict(self, asked: m.PredictOptions, call: Call) -> m.Reply:
        """Answer in one piece."""
        question = ask(asked, self._meant(asked.model_identity).id, stream=False)
        answer = self._client(call).post(question.path, question.body, timeout=None)
        return self._counted(whole(answer, is_chat=question.is_chat))

    def predict_stream(self, asked: m.PredictOptions, call: Call) -> Iterator[m.Reply]:
        """Answer in pieces; the last one has the counts of all."""
        question = ask(asked, self._meant(asked.model_identity).id, stream=True)
        answer = Stream(question.is_chat)
        for chunk in _chunks(self._client(call), question):
            piece = answer.piece(chunk)
            if piece is not None:
                yield piece
        yield self._counted(answer.end())

    def embedding(self, asked: m.PredictOptions, call: Call) -> m.EmbeddingResult:
        """Turn a text, or tokens, into a vector."""
        text: str | list[int] = asked.embeddings or list(asked.embedding_tokens)
        if not text:
            raise InvalidRequest("Embeddings is empty: there is no text to turn into a vector.", param="Embeddings")
        body = {"model": self._meant(asked.model_identity).id, "input": text, "encoding_format": "float"}
        return vectors(self._client(call).post("/v1/embeddings", body, timeout=None))

    def rerank(self, asked: m.RerankRequest, call: Call) -> m.RerankResult:
        """Order documents by how well they answer a question."""
        body: Json = {"model": self._meant(asked.model_identity).id, "query": asked.query}
        body |= {"documents": list(asked.documents), **({"top_n": asked.top_n} if asked.top_n > 0 else {})}
        return ranked(self._client(call).post("/v1/rerank", body, timeout=None), asked.documents)

    def tokenize_string(self, asked: m.PredictOptions, call: Call) -> m.Tokenization:
        """Turn a text into tokens."""
        body = {"model": self._meant(asked.model_identity).id, "content": asked.prompt}
        tokens = tuple(self._client(call).post("/tokenize", body, timeout=None).get("tokens") or ())
        return m.Tokenization(len(tokens), tokens)

    def detokenize(self, asked: m.DetokenizeRequest, call: Call) -> m.DetokenizeResponse:
        """Turn tokens into a text."""
        body = {"model": self._meant("").id, "tokens": list(asked.tokens)}
        return m.DetokenizeResponse(self._client(call).post("/detokenize", body, timeout=None).get("content") or "")

    def status(self, _: m.Nothing, call: Call) -> m.StatusResponse:
        """Say what the models of this backend do, and their memory."""
        return told(self._statuses(call) if self._all() else ())

    def get_metrics(self, _: m.Nothing, call: Call) -> m.MetricsResponse:
        """Tell the figures of all answers together."""
        with self._lock:
            return self._figures.as_message()

    def model_metadata(self, asked: m.ModelOptions, call: Call) -> m.ModelMetadata:
        """Say whether the template of a model has a switch for reasoning, and show what it makes of a question."""
        model, client = self._meant(asked.model), self._client(call)
        status = next(iter(one for one in self._statuses(call) if one["id"] == model.id), {})
        thinking = (status.get("abilities") or {}).get("thinking")
        body = {"model": model.id, "messages": _QUESTION, **({"enable_thinking": True} if thinking else {})}
        shown = client.post("/apply-template", body, timeout=None).get("prompt") or ""
        return m.ModelMetadata(supports_thinking=bool(thinking), rendered_template=shown)

    def free(self, _: m.Nothing, call: Call) -> m.Result:
        """Unload the model. The call names none: with several loaded, none is meant."""
        models = self._all()
        if len(models) > 1:
            names = ", ".join(one.identity for one in models)
            return m.Result(f"Free names no model, and several are loaded: {names}. The daemon makes room by itself.")
        for one in models:
            if one.is_ours:
                unload(self._client(call), one.id, timeout=None)
            with self._lock:
                self._models.drop(one)
        return m.Result(success=True)

    def close(self) -> None:
        """Unload what was loaded for this backend, as far as that goes in a few seconds."""
        until = time.monotonic() + _CLOSING_SECONDS
        for one in self._all():
            left = until - time.monotonic()
            if one.is_ours and left > 0 and self._daemon is not None:
                with contextlib.suppress(SupervisorError):
                    unload(self._daemon.client, one.id, timeout=left, now=True)

    def _client(self, call: Call) -> Client:
        daemon = self._daemon
        if daemon is None:
            raise DaemonUnreachable("No daemon was asked for yet; LoadModel comes first.")
        return daemon.client.telling(call.hold)

    def _all(self) -> Sequence[Loaded]:
        with self._lock:
            return self._models.all

    def _meant(self, identity: str) -> Loaded:
        with self._lock:
            return self._models.meant(identity)

    def _statuses(self, call: Call) -> list[Json]:
        ours = {one.id for one in self._all()}
        found = self._client(call).get("/api/v1/models").get("models") or ()
        return [one for one in found if one["id"] in ours]

    def _counted(self, reply: m.Reply) -> m.Reply:
        with self._lock:
            self._figures = self._figures.and_then(reply)
        return reply


def _chunks(client: Client, question: Ask) -> Iterator[Json]:
    """Yield the chunks of a stream. Raises RemoteError, DaemonError where it breaks off."""
    with contextlib.closing(client.events(question.path, question.body)) as events:
        for event in events:
            if event == "[DONE]":
                return
            chunk = _object(event)
            if chunk.get("error"):
                raise remote_error(chunk)
            yield chunk
    raise DaemonError(f"The daemon at {client.url} broke off its answer; see `supervisor logs`.")


def _object(event: str) -> Json:
    with contextlib.suppress(NotJson):
        found = parse(event)
        if isinstance(found, dict):
            return found
    raise DaemonError("The daemon's stream breaks its own format; see `supervisor logs`.")

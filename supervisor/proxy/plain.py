"""Requests to engines that speak OpenAI's API in their own way: sent as they are, and answered as the engine answers.

The client's `model` becomes the engine's name for it. Nothing is added, looked for or folded. A client that leaves
closes the connection to the engine, which is all that can be told to a program of which nothing else is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from supervisor.core.models.registry import ModelEntry
from supervisor.core.routes import Route
from supervisor.core.stream.filter import StreamFilter
from supervisor.core.text.members import set_fields
from supervisor.engines.service import Service
from supervisor.proxy.answers import Filter
from supervisor.proxy.bodies import ClientJson
from supervisor.proxy.spoken import Plain
from supervisor.proxy.toolcalls import Prepared

_END: Final = b"\n\n"
_LOOKED_AT: Final = 256  # bytes of an event that tell whether it is the last one
_TELL_USAGE = frozenset({"chat", "completion"})


class AsItIs:
    """A filter that lets every byte through; `relay` says how a stream is ended early.

    Attributes:
        done: whatever came before the engine ended its answer is all of it.
    """

    done = True

    def __init__(self, relay: StreamFilter) -> None:
        self._relay = relay

    def feed(self, chunk: bytes, /) -> bytes:
        """Return the bytes."""
        return chunk

    def ending(self, error: Mapping[str, object]) -> bytes:
        """Return the event that tells of an error, in the form of the API."""
        return self._relay.ending(error)

    def cut(self) -> None:
        """Do nothing: nothing is held back."""


class UntilLastEvent(AsItIs):
    """The same for an answer that ends with its connection, which a server that dies closes too.

    Attributes:
        done: the event that ends a stream of this API was let through.
    """

    done = False

    def __init__(self, relay: StreamFilter) -> None:
        super().__init__(relay)
        self._open = b""  # how the event begins that has not ended yet, and its newest bytes

    def feed(self, chunk: bytes, /) -> bytes:
        """Return the bytes; note which event they end with."""
        whole, ended, rest = (self._open + chunk).replace(b"\r\n", b"\n").rpartition(_END)
        if ended:
            self.done = self._relay.is_last(whole.rpartition(_END)[2])
        self._open = rest if len(rest) <= _LOOKED_AT else rest[:_LOOKED_AT] + rest[-len(_END) :]
        return chunk


class AsItCame(Plain):
    """An answer of which nothing is known but its bytes."""

    def stream(self, relay: StreamFilter) -> Filter:
        """Return the filter of a streamed answer's bytes."""
        return AsItIs(relay)

    def unframed(self, relay: StreamFilter, filtered: Filter) -> Filter:
        """Return a filter that tells an end from a break."""
        return UntilLastEvent(relay)


_AS_IT_CAME: Final = AsItCame()


def sent_as_it_is(route: Route, body: ClientJson, entry: ModelEntry, service: Service, *, counted: bool) -> Prepared:
    """Return the request under the engine's name for the model, with what the configuration sets by default.

    counted: a key pays for its tokens, so a stream has to tell them.
    """
    missing = entry.requests.missing_in_form if route.is_form else entry.requests.missing
    changes: dict[str, object] = dict(missing(body.fields)) if route.generates else {}
    changes["model"] = service.model_name or entry.id
    if counted and route.kind in _TELL_USAGE and body.fields.get("stream") is True:
        options = body.fields.get("stream_options")
        changes["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    text = set_fields(body.text, changes)
    return Prepared(route.path, text, {**body.fields, **changes}, _AS_IT_CAME, native=False)

"""The paths on which an engine answers a client, one row each. To relay another path, add its row.

The daemon's endpoints, the schema and the form of errors are made from the rows; `route_of` gives the row of a path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from supervisor.core.recovery.forms import CHAT_FORM, MESSAGES_FORM, RESPONSES_FORM, Form
from supervisor.core.stream.apis import ANTHROPIC, OPENAI, RESPONSES, Api
from supervisor.core.stream.outgoing import Kind

UPSTREAM: Final = "/upstream/"
"""The path before `MODEL/PATH` by which a client gets the engine's own answer."""

_TEXT: Final = {"type": "string"}
_MESSAGES: Final = {"messages": {"type": "array", "items": {"type": "object"}}}
_INPUT: Final = {"input": {"anyOf": [_TEXT, {"type": "array", "items": {}}]}}
_PROMPT: Final = {"prompt": {"anyOf": [_TEXT, {"type": "array", "items": {}}]}}


@dataclass(frozen=True, slots=True)
class Route:
    """A path of an engine.

    Attributes:
        path: as the engine has it. also: its other spellings there.
        summary: what it does, for the schema.
        served: by the daemon under the same path, `model` in the body; the others are reached below `/upstream/` alone.
        api: how a stream ends and an error is said.
        kind: of the answer that its stream is folded into; None: nothing is generated, or nothing that can be folded.
        form: how its request becomes one for a chat, and the answer its own again; None: no calls are looked for.
        takes: the fields that a request has to have besides `model`, with their JSON schema.
    """

    path: str
    summary: str = ""
    also: tuple[str, ...] = ()
    served: bool = True
    api: Api = OPENAI
    kind: Kind | None = None
    form: Form | None = None
    takes: Mapping[str, object] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """All its spellings."""
        return (self.path, *self.also)

    @property
    def generates(self) -> bool:
        """True if its answer can be a stream, and a client that leaves ends something."""
        return self.kind is not None or self.form is not None

    @property
    def finds_calls(self) -> bool:
        """True if tool calls are looked for in its answers."""
        return self.form is not None


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "/v1/chat/completions",
        "Answer a conversation.",
        also=("/chat/completions",),
        kind="chat",
        form=CHAT_FORM,
        takes=_MESSAGES,
    ),
    Route("/v1/completions", "Continue a text.", kind="completion", takes=_PROMPT),
    Route("/v1/embeddings", "Turn texts into vectors.", takes=_INPUT),
    Route(
        "/v1/responses",
        "Answer a conversation, in the form of OpenAI's responses.",
        also=("/responses",),
        api=RESPONSES,
        kind="responses",
        form=RESPONSES_FORM,
        takes=_INPUT,
    ),
    Route(
        "/v1/messages",
        "Answer a conversation, in the form of Anthropic's messages.",
        api=ANTHROPIC,
        form=MESSAGES_FORM,
        takes=_MESSAGES,
    ),
    Route("/v1/messages/count_tokens", "Count the tokens of a conversation.", api=ANTHROPIC, takes=_MESSAGES),
    Route("/completion", also=("/completions",), served=False, kind="raw"),
    Route("/infill", served=False, kind="raw"),
)

SERVED: Final[Mapping[str, Route]] = {route.path: route for route in ROUTES if route.served}
"""The rows of the daemon's own paths."""

_BY_NAME: Final[Mapping[str, Route]] = {name: route for route in ROUTES for name in route.names}


def route_of(path: str) -> Route | None:
    """Return the row of an engine's path, in any of its spellings."""
    return _BY_NAME.get(path)


def kind_of(path: str) -> Kind | None:
    """Return the kind of answer that an engine's path gives, if it can be folded."""
    route = route_of(path)
    return None if route is None else route.kind


def api_of(path: str) -> Api:
    """Return the API of a path of ours; below `/upstream/MODEL`, that of the engine's path."""
    route = _BY_NAME.get(path)
    if route is None and path.startswith(UPSTREAM):
        route = next((row for name, row in _BY_NAME.items() if path.endswith(name)), None)
    return OPENAI if route is None else route.api

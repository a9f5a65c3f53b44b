"""The paths on which an engine answers a client, one row each. To relay another path, add its row.

The daemon's endpoints, the schema and the form of errors are made from the rows; `route_of` gives the row of a path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from supervisor.core.recovery.forms import CHAT_FORM, MESSAGES_FORM, RESPONSES_FORM, Form
from supervisor.core.stream.apis import ANTHROPIC, OLLAMA, OLLAMA_CHAT, OPENAI, RAW, RESPONSES, Api
from supervisor.core.stream.outgoing import Kind

UPSTREAM: Final = "/upstream/"
"""The path before `MODEL/PATH` by which a client gets the engine's own answer."""

_INVISIBLE: Final = "".join(map(chr, range(0x21)))  # control characters and the space
_NEVER: Final = frozenset({"/tools", "/cors-proxy"})  # run programs, fetch any address

_TEXT: Final = {"type": "string"}
_MESSAGES: Final = {"messages": {"type": "array", "items": {"type": "object"}}}
_INPUT: Final = {"input": {"anyOf": [_TEXT, {"type": "array", "items": {}}]}}
_PROMPT: Final = {"prompt": {"anyOf": [_TEXT, {"type": "array", "items": {}}]}}


_NAMED: Final = {"model": _TEXT}
_TOKENS: Final = {"tokens": {"type": "array", "items": {"type": "integer"}}}
_CONTENT: Final = {"content": _TEXT}
_DOCUMENTS: Final = {"query": _TEXT, "documents": {"type": "array", "items": _TEXT}}
_INFILL: Final = {"input_prefix": _TEXT, "input_suffix": _TEXT}
_FILE: Final = {"file": {**_TEXT, "format": "binary"}}
_CONTROL: Final = {"id": {**_TEXT, "description": "Of the chat's answer."}, "action": {"enum": ["reasoning_end"]}}


@dataclass(frozen=True, slots=True)
class Route:
    """A path of an engine, to which a request is posted. `model` stands in its body, or in the query.

    Attributes:
        path: as the engine has it. also: its other spellings, the engine's and those that clients use.
        summary: what it does, for the schema.
        api: how a stream ends and an error is said.
        kind: of the answer that its stream is folded into; None: nothing is generated, or nothing that can be folded.
        form: how its request becomes one for a chat, and the answer its own again; None: no calls are looked for.
        takes: the fields that a request has to have besides `model`, with their JSON schema.
        is_form: the request is a form, as files need it, and no JSON.
        prompts: it tells of the prompt that an answer would have, so the parameters mean what they mean there.
        vectors: its answer is made of the prompt alone, and in llama-server's own forms tells no tokens.
    """

    path: str
    summary: str
    also: tuple[str, ...] = ()
    api: Api = OPENAI
    kind: Kind | None = None
    form: Form | None = None
    takes: Mapping[str, object] = field(default_factory=dict)
    is_form: bool = False
    prompts: bool = False
    vectors: bool = False

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
        also=("/messages",),
        api=ANTHROPIC,
        form=MESSAGES_FORM,
        takes=_MESSAGES,
    ),
    Route(
        "/completion",
        "Continue a text, in llama-server's own form.",
        also=("/completions",),
        api=RAW,
        kind="raw",
        takes=_PROMPT,
    ),
    Route("/infill", "Fill in the middle of a text.", also=("/v1/infill",), api=RAW, kind="raw", takes=_INFILL),
    Route("/v1/embeddings", "Turn texts into vectors.", takes=_INPUT, vectors=True),
    Route(
        "/embeddings",
        "Turn texts into vectors, in llama-server's own form.",
        also=("/embedding",),
        takes=_CONTENT,
        vectors=True,
    ),
    Route(
        "/v1/rerank",
        "Order documents by how well they answer a question.",
        also=("/rerank", "/v1/reranking", "/reranking"),
        takes=_DOCUMENTS,
        vectors=True,
    ),
    Route(
        "/v1/audio/transcriptions",
        "Write down what is said in a recording.",
        also=("/audio/transcriptions",),
        kind="transcript",
        takes=_FILE,
        is_form=True,
    ),
    Route(
        "/v1/audio/translations",
        "Write down in English what is said in a recording.",
        also=("/audio/translations",),
        takes=_FILE,
        is_form=True,
    ),
    Route("/v1/audio/speech", "Say a text.", also=("/audio/speech",), takes={"input": _TEXT}),
    Route("/v1/images/generations", "Make pictures of a text.", also=("/images/generations",), takes={"prompt": _TEXT}),
    Route(
        "/v1/images/edits",
        "Change a picture as a text says.",
        also=("/images/edits",),
        takes={"image": _FILE["file"], "prompt": _TEXT},
        is_form=True,
    ),
    Route("/tokenize", "Turn a text into tokens.", also=("/v1/tokenize",), takes=_CONTENT),
    Route("/detokenize", "Turn tokens into a text.", also=("/v1/detokenize",), takes=_TOKENS),
    Route(
        "/apply-template",
        "Show the prompt that the template makes of a conversation.",
        also=("/v1/apply-template",),
        takes=_MESSAGES,
        prompts=True,
    ),
    Route(
        "/v1/chat/completions/input_tokens",
        "Count the tokens of a conversation.",
        also=("/chat/completions/input_tokens",),
        takes=_MESSAGES,
        prompts=True,
    ),
    Route(
        "/v1/chat/completions/control",
        "End the thoughts of an answer that is being streamed.",
        also=("/chat/completions/control",),
        takes=_CONTROL,
    ),
    Route(
        "/v1/responses/input_tokens",
        "Count the tokens of a conversation, in the form of OpenAI's responses.",
        also=("/responses/input_tokens",),
        api=RESPONSES,
        takes=_INPUT,
        prompts=True,
    ),
    Route(
        "/v1/messages/count_tokens",
        "Count the tokens of a conversation, in the form of Anthropic's messages.",
        also=("/messages/count_tokens",),
        api=ANTHROPIC,
        takes=_MESSAGES,
        prompts=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A path of an engine for which `model` stands in the query.

    Attributes:
        path: as the engine has it; `{slot}` stands for a number.
        summary: what it does, for the schema, by method.
    """

    path: str
    summary: Mapping[str, str]


ASKED: Final[tuple[Asked, ...]] = (
    Asked("/props", {"GET": "Show the settings of a model's engine."}),
    Asked("/slots", {"GET": "Show what the slots of a model's engine do."}),
    Asked("/slots/{slot}", {"POST": "Save, restore or erase a slot; `action` says which."}),
    Asked("/lora-adapters", {"GET": "Show a model's adapters.", "POST": "Set how much each adapter counts."}),
)

DOORS: Final[tuple[Route, ...]] = (
    Route("/api/chat", "Answer a conversation, as Ollama does.", api=OLLAMA_CHAT, kind="chat", takes=_NAMED),
    Route("/api/generate", "Continue a text, as Ollama does.", api=OLLAMA, kind="chat", takes=_NAMED),
    Route("/api/embed", "Turn texts into vectors, as Ollama does.", api=OLLAMA, takes=_NAMED, vectors=True),
    Route("/api/embeddings", "Turn a text into a vector, as Ollama does.", api=OLLAMA, takes=_NAMED, vectors=True),
    Route("/api/v0/chat/completions", "Answer a conversation, as LM Studio does.", kind="chat", takes=_MESSAGES),
    Route("/api/v0/completions", "Continue a text, as LM Studio does.", kind="completion", takes=_PROMPT),
    Route("/api/v0/embeddings", "Turn texts into vectors, as LM Studio does.", takes=_INPUT, vectors=True),
)
"""Paths of other programs' APIs; `core/doors` turns their requests into those of the rows above."""

SERVED: Final[Mapping[str, Route]] = {name: route for route in (*ROUTES, *DOORS) for name in route.names}
"""The row of each of the daemon's own paths, in all spellings."""

_OF_ENGINES: Final[Mapping[str, Route]] = {name: route for route in ROUTES for name in route.names}

OLLAMA_S: Final = ("tags", "ps", "show", "version", "pull", "delete", "copy", "create", "push", "blobs")
"""Paths below `/api/` on which the daemon answers as Ollama does, apart from those of models' answers."""


def asked_of(path: str) -> Asked | None:
    """Return the row of a path whose model stands in the query."""
    head, _, last = path.rpartition("/")
    return _ASKED.get(f"{head}/{{slot}}" if last.isdigit() else path)


_ASKED: Final[Mapping[str, Asked]] = {row.path: row for row in ASKED}


def is_relayed(path: str) -> bool:
    """Return whether an engine answers on this path."""
    return path in SERVED or path.startswith("/upstream/") or asked_of(path) is not None


def is_withheld(method: str, path: str) -> bool:
    """Return whether an engine's path is for nobody: its tools, its proxy, and changes of its settings.

    `path`: without percent escapes. An engine takes its paths literally. Here whatever might be taken for one of these
    counts, also by an engine to come: in any case, with slashes and dots between and behind, with parameters.
    """
    plain = _plain(path)
    return plain in _NEVER or (plain == "/props" and method != "GET")


def _plain(path: str) -> str:
    """Return the shortest spelling of a path, in lower case."""
    parts: list[str] = []
    for part in re.split(r"[/\\]", unquote(path).partition("?")[0].lower()):
        name = part.partition(";")[0].strip(_INVISIBLE)
        if name == "..":
            del parts[-1:]
        elif name not in {"", "."}:
            parts.append(name)
    return "/" + "/".join(parts)


def route_of(path: str) -> Route | None:
    """Return the row of an engine's path, in any of its spellings."""
    return _OF_ENGINES.get(path)


def makes_vectors(path: str) -> bool:
    """Return whether an engine's path makes vectors or ranks of its prompt."""
    route = _OF_ENGINES.get(path)
    return route is not None and route.vectors


def kind_of(path: str) -> Kind | None:
    """Return the kind of answer that an engine's path gives, if it can be folded."""
    route = route_of(path)
    return None if route is None else route.kind


def api_of(path: str) -> Api:
    """Return the API of a path of ours; below `/upstream/MODEL`, that of the engine's path."""
    route = SERVED.get(path.rstrip("/"))
    if route is None and path.startswith(UPSTREAM):
        route = next((row for name, row in _OF_ENGINES.items() if path.endswith(name)), None)
    if route is None and path.startswith("/api/") and path.split("/")[2] in OLLAMA_S:
        return OLLAMA
    return OPENAI if route is None else route.api

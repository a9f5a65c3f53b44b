"""The OpenAPI schema: what FastAPI knows of its routes, and the relayed paths, which it does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from supervisor.core.stream.apis import ANTHROPIC, api_of

_JSON = "application/json"
_TEXT = {"type": "string"}
_MESSAGES = {"type": "array", "items": {"type": "object"}}
_LIST_OR_TEXT = {"anyOf": [_TEXT, {"type": "array", "items": {}}]}
_TOOL_CALLS = {
    "tool_calls": {
        "type": "string",
        "enum": ["auto", "native", "recover", "raw", "off"],
        "description": "How tool calls are looked for in the answer.",
    },
    "agent_help": {
        "type": "object",
        "properties": {"nudge": {"type": "boolean"}, "repeats": {"type": "boolean"}},
    },
}

# path: what it does, the fields that have to be there, those that may be, whether an answer can be a stream
_Relayed = tuple[str, Mapping[str, Any], Mapping[str, Any], bool]
RELAYED: Mapping[str, _Relayed] = {
    "/v1/chat/completions": ("Answer a conversation.", {"messages": _MESSAGES}, _TOOL_CALLS, True),
    "/v1/completions": ("Continue a text.", {"prompt": _LIST_OR_TEXT}, {}, True),
    "/v1/embeddings": ("Turn texts into vectors.", {"input": _LIST_OR_TEXT}, {}, False),
    "/v1/responses": (
        "Answer a conversation, in the form of OpenAI's responses.",
        {"input": _LIST_OR_TEXT},
        _TOOL_CALLS,
        True,
    ),
    "/v1/messages": (
        "Answer a conversation, in the form of Anthropic's messages.",
        {"messages": _MESSAGES},
        _TOOL_CALLS,
        True,
    ),
    "/v1/messages/count_tokens": ("Count the tokens of a conversation.", {"messages": _MESSAGES}, {}, False),
}
_UPSTREAM = "/upstream/{model}/{path}"
_UPSTREAM_METHODS = ("get", "post", "put", "patch", "delete")

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code", "param"],
            "properties": {
                "message": {**_TEXT, "description": "What is wrong, and what to do."},
                "type": _TEXT,
                "code": {**_TEXT, "description": "Stable; docs/rest.md has them all."},
                "param": {"anyOf": [_TEXT, {"type": "null"}]},
                "log_lines": {"type": "array", "items": _TEXT, "description": "What an engine said of it."},
            },
        }
    },
}
_ANTHROPIC_ERROR = {
    **_ERROR,
    "required": ["type", "error"],
    "properties": {"type": {"const": "error"}, **_ERROR["properties"]},  # type: ignore[dict-item]  # it is a mapping
}
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


class Documented(FastAPI):
    """FastAPI, whose schema has the relayed paths and our errors too."""

    def openapi(self) -> dict[str, Any]:
        """The schema of everything that is served."""
        if self.openapi_schema is None:
            schema = super().openapi()
            schema["paths"] = {**{path: {"post": _relayed(*of)} for path, of in RELAYED.items()}, **schema["paths"]}
            schema["paths"][_UPSTREAM] = {method: _upstream(method) for method in _UPSTREAM_METHODS}
            components = schema.setdefault("components", {})
            for unused in ("HTTPValidationError", "ValidationError"):
                components.get("schemas", {}).pop(unused, None)
            components.setdefault("schemas", {}).update(Error=_ERROR, AnthropicError=_ANTHROPIC_ERROR)
            components["securitySchemes"] = _KEYS
            schema["security"] = [{}, *({name: []} for name in _KEYS)]
            for path, operations in schema["paths"].items():
                for operation in operations.values():
                    _say_errors(path, operation["responses"])
        return self.openapi_schema or {}


def _relayed(summary: str, needed: Mapping[str, Any], further: Mapping[str, Any], streamed: bool) -> dict[str, Any]:
    properties = {
        "model": {**_TEXT, "description": "An id or an alias; it is loaded where it is not."},
        **needed,
        **({"stream": {"type": "boolean", "default": False}} if streamed else {}),
        **further,
    }
    body = {"type": "object", "required": ["model", *needed], "properties": properties, "additionalProperties": True}
    answers: dict[str, Any] = {_JSON: {"schema": {"type": "object"}}}
    if streamed:
        answers["text/event-stream"] = {"schema": _TEXT}
    return {
        "summary": summary,
        "description": "Everything else in the body is llama-server's own and passed on.",
        "requestBody": {"required": True, "content": {_JSON: {"schema": body}}},
        "responses": {"200": {"description": "llama-server's answer", "content": answers}},
    }


def _upstream(method: str) -> dict[str, Any]:
    parameters = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in ("model", "path")]
    return {
        "summary": "Whatever the model's engine answers",
        "operationId": f"upstream_{method}",
        "description": "Passed on as it is. Loads the model, but for `GET` of what only looks at an engine.",
        "parameters": parameters,
        **({} if method in {"get", "delete"} else {"requestBody": {"content": {_JSON: {"schema": {}}}}}),
        "responses": {"200": {"description": "the engine's answer"}},
    }


def _say_errors(path: str, responses: dict[str, Any]) -> None:
    """FastAPI's own form of faults is not what is sent."""
    responses.pop("422", None)
    name = "AnthropicError" if api_of(path) is ANTHROPIC else "Error"
    content = {_JSON: {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    responses["default"] = {"description": "What went wrong", "content": content}

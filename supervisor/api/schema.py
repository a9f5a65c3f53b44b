"""The OpenAPI schema: what FastAPI knows of its routes, and the relayed paths, which it does not know."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse

from supervisor.api.described import tell_forms
from supervisor.core.routes import ASKED, DOORS, SERVED, Asked, Route, api_of
from supervisor.core.stream.apis import ANTHROPIC, OLLAMA, OLLAMA_CHAT

_JSON = "application/json"
_FORM = "multipart/form-data"
_TEXT = {"type": "string"}
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

_UPSTREAM = "/upstream/{model}/{path}"
_OF_ANOTHER = "Everything else in the body is as that program has it; docs/ollama.md says what is not mapped."
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
_OLLAMA_ERROR = {
    "type": "object",
    "required": ["error", "code"],
    "properties": {
        "error": {**_TEXT, "description": "What is wrong, and what to do."},
        "code": {**_TEXT, "description": "Stable; docs/rest.md has them all."},
    },
}
_OLLAMAS = (OLLAMA, OLLAMA_CHAT)
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


class Documented(FastAPI):
    """FastAPI, whose schema has the relayed paths and our errors too.

    Args:
        routers: of the paths that it serves itself.
    """

    def __init__(self, routers: Sequence[APIRouter], *, title: str, version: str, description: str) -> None:
        super().__init__(
            title=title, version=version, description=description, docs_url=None, redoc_url=None, openapi_url=None
        )
        self.add_route("/openapi.json", self._show, include_in_schema=False)
        self._routers = routers
        self._making = asyncio.Lock()
        for one in routers:
            self.include_router(one)

    def openapi(self) -> dict[str, Any]:
        """The schema of everything that is served."""
        if self.openapi_schema is None:
            tell_forms()
            known = FastAPI(title=self.title, version=self.version, description=self.description)
            for one in self._routers:
                known.include_router(one)
            self.openapi_schema = schema = known.openapi()
            schema["paths"] = {**{path: {"post": _relayed(route)} for path, route in SERVED.items()}, **schema["paths"]}
            schema["paths"].update((row.path, {m.lower(): _asked(row, m) for m in row.summary}) for row in ASKED)
            schema["paths"][_UPSTREAM] = {method: _upstream(method) for method in _UPSTREAM_METHODS}
            components = schema.setdefault("components", {})
            for unused in ("HTTPValidationError", "ValidationError"):
                components.get("schemas", {}).pop(unused, None)
            components.setdefault("schemas", {}).update(
                Error=_ERROR, AnthropicError=_ANTHROPIC_ERROR, OllamaError=_OLLAMA_ERROR
            )
            components["securitySchemes"] = _KEYS
            schema["security"] = [{}, *({name: []} for name in _KEYS)]
            for path, operations in schema["paths"].items():
                for operation in operations.values():
                    _say_errors(path, operation["responses"])
        return self.openapi_schema or {}

    async def _show(self, request: Request) -> Response:
        async with self._making:  # once, and beside the loop that relays: it takes a quarter of a second
            return JSONResponse(await asyncio.to_thread(self.openapi))


def _relayed(route: Route) -> dict[str, Any]:
    properties = {
        "model": {
            **_TEXT,
            "description": "An id, an alias, or a beginning of one; loaded where it is not. Default: the only one.",
        },
        **route.takes,
        **({"stream": {"type": "boolean", "default": route.api in _OLLAMAS}} if route.generates else {}),
        **(_TOOL_CALLS if route.finds_calls else {}),
    }
    body = {
        "type": "object",
        "required": list(route.takes),
        "properties": properties,
        "additionalProperties": True,
    }
    answers: dict[str, Any] = {_JSON: {"schema": {"type": ["object", "array"]}}}
    if route.generates:
        answers[route.api.media_type.decode()] = {}
    return {
        "summary": route.summary,
        "description": _OF_ANOTHER
        if route in DOORS
        else "Everything else in the body is llama-server's own and passed on.",
        "requestBody": {"required": True, "content": {_FORM if route.is_form else _JSON: {"schema": body}}},
        "responses": {"200": {"description": "llama-server's answer", "content": answers}},
    }


def _asked(row: Asked, method: str) -> dict[str, Any]:
    told = "An id or an alias. Without one, the default."
    parameters: list[dict[str, Any]] = [{"name": "model", "in": "query", "schema": _TEXT, "description": told}]
    if "{slot}" in row.path:
        whole = {"type": "integer", "minimum": 0}
        parameters.append({"name": "slot", "in": "path", "required": True, "schema": whole})
        actions = {"enum": ["save", "restore", "erase"]}
        parameters.append({"name": "action", "in": "query", "required": True, "schema": actions})
    return {
        "summary": row.summary[method],
        "operationId": f"{method.lower()}_{row.path.strip('/').replace('/', '_').replace('-', '_')}",
        "parameters": parameters,
        **({"requestBody": {"content": {_JSON: {"schema": {}}}}} if method == "POST" else {}),
        "responses": {"200": {"description": "the engine's answer"}},
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
    api = api_of(path)
    name = "AnthropicError" if api is ANTHROPIC else "OllamaError" if api in _OLLAMAS else "Error"
    content = {_JSON: {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    responses["default"] = {"description": "What went wrong", "content": content}

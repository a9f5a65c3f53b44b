"""Paths of engines whose model stands in the query: they are answered as those below `/upstream/`."""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from supervisor.core.routes import UPSTREAM, api_of, asked_of
from supervisor.errors import SupervisorError
from supervisor.proxy.asgi import Responder
from supervisor.proxy.exchange import transport_of
from supervisor.proxy.metered import key_of
from supervisor.proxy.naming import split_query
from supervisor.proxy.relay import Relaying
from supervisor.proxy.upstream import OWN_PATH


def asked_endpoint(relaying: Relaying, upstream: ASGIApp) -> ASGIApp:
    """Return the ASGI endpoint of the paths whose model stands in the query; `upstream`: the one below UPSTREAM."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].rstrip("/")
        query = scope.get("query_string", b"")
        try:
            model = _of_another_node(relaying, query) or _of_this_node(relaying, scope, path)
        except SupervisorError as error:
            await Responder(send, transport_of(scope), api_of(path)).whole(*relaying.render_error(error))
            return
        target = f"{UPSTREAM}{quote(model, safe='')}{path}"
        rest = split_query(query)[1].encode("latin-1")
        await upstream(
            {**scope, "path": unquote(target), "raw_path": target.encode(), "query_string": rest, OWN_PATH: True},
            receive,
            send,
        )

    return serve


def _of_another_node(relaying: Relaying, query: bytes) -> str | None:
    """Return the id of a model that other nodes alone know; a key that does not see it is told so later."""
    name = split_query(query)[0]
    if relaying.elsewhere is None or not name or relaying.registry.get(name) is not None:
        return None
    return relaying.elsewhere.id_of(name)


def _of_this_node(relaying: Relaying, scope: Scope, path: str) -> str:
    """Return the id of the model that is meant. Raises what a request without such a model, or service, is told."""
    entry = relaying.naming.entry(None, scope.get("query_string", b""), key_of(scope))
    if (row := asked_of(path)) is not None:
        relaying.services(entry).check(row.path, entry.id)
    return entry.id

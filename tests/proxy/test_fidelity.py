"""What a client says reaches the engine as it was written, wherever nothing has to change."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Scope

from supervisor.core.routes import ROUTES, Route
from supervisor.proxy.bodies import DIRECT, Bodies
from supervisor.proxy.upstream import upstream_endpoint
from tests.proxy.test_bodies import MIB, _Engine, ask, endpoint, pieces_of, relaying_to
from tests.support.routes import OF_LLAMA

WRITTEN = {
    "numbers": b'"big": 9007199254740993, "bigger":123456789012345678901234567890, "exact": 0.10000000000000000555',
    "beyond": b'"far": 1e400, "near": -0.0, "plus": 1E+2',
    "escapes": rb'"escaped": "\u00e9\ud83d\ude00\/\u0000 \"", "half": "\ud83d"',
    "space": b'"unknown":{ "a" :[1 , 2,\t3 ],\r\n"null":null}',
    "text": '"text": "é😀\u2028"'.encode(),
}
"""Members that a parser and a writer would write in another way."""
PADDING = b'"padding": "%b"' % (b"x" * DIRECT)  # so that the body is not parsed as a whole
OURS = [row for row in ROUTES if row.path in OF_LLAMA and not row.is_form]
AS_WRITTEN = [row for row in OURS if row.form is None or not row.form.always]


class Engine(_Engine):
    """One whose answer is not the one that every path wants; what it is asked counts here."""

    broken = None

    async def engine_gone(self, within: float) -> bool:
        return False


async def engine_gets(body: bytes, route: Route, *, upstream: bool) -> bytes:
    """The body that the engine is asked with."""
    engine, bodies = Engine(), Bodies(4 * MIB, 4 * MIB)
    named = f"/upstream/m{route.path}"
    scope: Scope = {"method": "POST", "path": named, "raw_path": named.encode(), "query_string": b""}
    app = (
        upstream_endpoint(relaying_to(engine, bodies), lambda: 0) if upstream else endpoint(engine, bodies, route.path)
    )
    await ask(app, pieces_of(body), scope=scope)
    (asked,) = engine.asked
    return asked[1]


@pytest.mark.parametrize("upstream", [False, True], ids=["relayed", "upstream"])
@pytest.mark.parametrize("padding", [b'"padding": 1', PADDING], ids=["small", "large"])
@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("route", AS_WRITTEN, ids=lambda row: row.path)
def test_members_that_nobody_has_to_change_stay_as_they_were_written(
    route: Route, written: bytes, padding: bytes, upstream: bool
) -> None:
    body = b'{"model": "m", %b,%b}' % (written, padding)
    asked = asyncio.run(engine_gets(body, route, upstream=upstream))
    assert written in asked
    assert padding in asked
    assert route.generates or asked == body


@pytest.mark.parametrize("padding", [b'"padding": 1', PADDING], ids=["small", "large"])
@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize(
    "dropped", [b'"thinking": true', b'"tool_calls": "off"', b'"text": {"format": {"type": "text"}}']
)
def test_so_they_do_beside_a_parameter_that_the_engine_does_not_get(
    written: bytes, padding: bytes, dropped: bytes
) -> None:
    body = b'{"model": "m", %b ,%b, %b}' % (dropped, written, padding)
    row = next(row for row in AS_WRITTEN if row.path == "/v1/chat/completions")
    asked = asyncio.run(engine_gets(body, row, upstream=False))
    assert written in asked
    assert padding in asked

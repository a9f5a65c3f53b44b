"""Errors of servers that are not llama-server."""

from __future__ import annotations

import pytest

from supervisor.core.engine_output.errors import translate
from supervisor.core.engine_output.foreign import foreign_error


@pytest.mark.parametrize(
    ("body", "status", "message", "code"),
    [
        (b'{"error": {"message": "bad", "type": "invalid_request_error", "code": "x"}}', 400, "bad", "invalid_request"),
        (b'{"error": {"message": "bad", "type": null}}', 400, "bad", "invalid_request"),
        (b'{"error": "no such voice"}', 400, "no such voice", "invalid_request"),
        (b'{"detail": "Not Found"}', 404, "Not Found", "route_not_found"),
        (b'{"detail": [{"loc": ["body"], "msg": "missing"}]}', 422, '{"detail": [{"loc"', "invalid_request"),
        (b'{"object": "error", "message": "too long"}', 400, "too long", "invalid_request"),
        (b"out of slots\n", 503, "out of slots", "engine_busy"),
        (b"slow down", 429, "slow down", "engine_busy"),
        (b"", 500, "The engine failed without a reason", "engine_error"),
        (b"\xff\xfe", 500, "\ufffd", "engine_error"),
        (b"[]", 400, "[]", "invalid_request"),
        (b'{"error": {}}', 500, '{"error": {}}', "engine_error"),
        (b'"a text"', 400, "a text", "invalid_request"),
    ],
)
def test_every_form_becomes_ours(body: bytes, status: int, message: str, code: str) -> None:
    found, envelope = translate(foreign_error(body, status), status)
    assert found == status
    assert str(envelope["error"]["message"]).startswith(message)
    assert envelope["error"]["code"] == code


def test_a_long_page_is_cut() -> None:
    assert len(str(foreign_error(b"<html>" * 1000, 502)["message"])) == 500

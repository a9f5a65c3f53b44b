"""What a client wrote may be repeated in an error, whatever it wrote."""

from __future__ import annotations

import json

import pytest

from supervisor.api.errors import error_response, render_error
from supervisor.errors import EngineLost

HALF = "\ud800"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/api/v1/models/load"])
def test_half_a_surrogate_pair_in_a_name_is_no_internal_error(path: str) -> None:
    error = EngineLost(f"There is no '{HALF}'.", param=HALF, log_lines=(HALF,))
    for body in (error_response(error, path).body, render_error(error)[1]):
        told = json.loads(bytes(body))["error"]
        assert told["message"] == "There is no '?'."
        json.dumps(told, ensure_ascii=False).encode()

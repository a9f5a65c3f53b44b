"""The kind `llama`: models in GGUF, each in a llama-server of its own."""

from __future__ import annotations

from typing import Final

from supervisor.core.options import LaunchOptions
from supervisor.core.routes import ASKED, ROUTES
from supervisor.engines.kind import Kind
from supervisor.engines.service import Service

_LACKING: Final = frozenset({
    *("/v1/audio/speech", "/v1/audio/translations"),
    *("/v1/images/edits", "/v1/images/generations"),
})
"""Rows that are other engines' alone."""

_ROWS: Final = frozenset({row.path for row in ROUTES} | {row.path for row in ASKED})
_SERVICE: Final = Service(_ROWS - _LACKING)

LLAMA: Final = Kind(
    name="llama",
    summary="llama.cpp's `llama-server`, for models in GGUF.",
    options=LaunchOptions,
    shared=frozenset(),
    lacks=frozenset(),
    source=None,
    placed=lambda options, absolute: {},
    complaints=lambda options: (),
    service=lambda entry: _SERVICE,
    planning=lambda ground: ground.gguf,
    launching=lambda yard: yard.gguf,
)

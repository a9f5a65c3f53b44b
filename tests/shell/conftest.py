"""Every test of the shell runs on asyncio's own loop and on uvloop, which uvicorn brings into the daemon."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
def llama_server() -> str:
    """The real engine that $SUPERVISOR_LLAMA_SERVER names."""
    path = os.environ.get("SUPERVISOR_LLAMA_SERVER")
    if not path:
        pytest.skip("set SUPERVISOR_LLAMA_SERVER to a llama-server")
    return path

"""Every test of the shell runs on asyncio's own loop and on uvloop, which uvicorn brings into the daemon."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}

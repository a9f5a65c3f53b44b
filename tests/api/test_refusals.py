"""What the system refuses to write is told as that, and as no bug of ours."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest

from supervisor.api.app import framework
from supervisor.api.services import Services
from supervisor.errors import SystemRefused
from supervisor.llamacpp.install import InstallRequest
from supervisor.llamacpp.progress import Report
from supervisor.llamacpp.store import EngineStore, Manifest
from supervisor.service.engines import Installed

pytestmark = pytest.mark.anyio


def failing(number: int) -> Callable[..., Manifest]:
    def fail(*_: object) -> Manifest:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    """One installation, and no room for another one."""
    (tmp_path / "a" / "bin").mkdir(parents=True)
    (tmp_path / "a" / "bin" / "llama-server").touch()
    (tmp_path / "a" / "manifest.json").write_text('{"build": 1}')

    async def make(_: InstallRequest, report: Report) -> Manifest:
        return failing(errno.ENOSPC)(report)

    return Installed(EngineStore(tmp_path), make)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "system_refused"),
        (errno.EROFS, "system_refused"),
        (errno.EFBIG, "system_refused"),
        (errno.EBADF, "internal_error"),
    ],
)
async def test_a_full_disk_is_no_bug(
    installed: Installed, number: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.llamacpp.jsonfile.atomic_write", failing(number))
    app = framework(cast(Services, SimpleNamespace(installed=installed)))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://daemon") as client:
        answer = await client.post("/api/v1/engines/use", json={"name": "a"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, code)


async def test_an_installation_that_finds_no_room_says_so(installed: Installed) -> None:
    with pytest.raises(SystemRefused, match=r"No space left on device\. Free some room"):
        async for _ in installed.made(InstallRequest((), "cpu", use=False)):
            pass

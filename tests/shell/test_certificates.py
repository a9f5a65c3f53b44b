"""A certificate that is renewed while the disk is full: it is shown to clients, and told once there is room."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from supervisor.daemon import tls
from supervisor.daemon.tls import Certificates
from supervisor.system.certificates import TlsFiles
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.anyio


async def test_a_full_disk_does_not_end_the_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "_WATCH_S", 0.001)
    authority = Authority(tmp_path)
    certificates = Certificates(TlsFiles(*map(str, authority.issue("localhost"))))
    first, refusals, told = certificates.leaf, [1, 2], asyncio.Event()

    def tell() -> None:
        if refusals:
            refusals.pop()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        told.set()

    watching = asyncio.create_task(certificates.watch(tell))
    authority.issue("localhost")
    await asyncio.wait_for(told.wait(), PATIENCE)
    watching.cancel()
    assert certificates.leaf != first
    assert not refusals

"""The daemon's own log."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
import structlog

from supervisor import logs


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Leave both libraries as they were."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_a_reader_that_is_gone_does_not_fail_who_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    reader, writer = os.pipe()
    os.close(reader)
    broken = os.fdopen(writer, "w")
    monkeypatch.setattr("sys.stderr", broken)
    logs.configure("text", seen.append)
    structlog.get_logger().info("still_there")
    assert len(seen) == 1
    assert b"still_there" in seen[0]
    monkeypatch.undo()
    with pytest.raises(BrokenPipeError):
        broken.close()


def test_what_libraries_log_is_seen_too_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[bytes] = []
    logs.configure("text", seen.append)
    try:
        raise KeyError("a bug")
    except KeyError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
    assert b"Exception in ASGI application" in seen[0]
    assert seen[-1] == b"KeyError: 'a bug'"
    assert "KeyError: 'a bug'" in capsys.readouterr().err


def test_secrets_are_hidden() -> None:
    seen: list[bytes] = []
    logs.configure("json", seen.append)
    structlog.get_logger().info("asked", api_key="open sesame")
    assert b"sesame" not in seen[0]

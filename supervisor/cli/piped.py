"""What is piped into a command, up to a size: a pipe need not have an end."""

from __future__ import annotations

import sys

from supervisor.cli.options import require

_MOST = 32 << 20


def piped_text() -> str:
    """Return standard input. Raises UsageError where it has more than 32 Mi characters."""
    text = sys.stdin.read(_MOST + 1)
    require(len(text) <= _MOST, f"What is piped in is longer than {_MOST >> 20} MiB.")
    return text


def piped_bytes() -> bytes:
    """Return the bytes of standard input. Raises UsageError where it has more than 32 MiB."""
    content = sys.stdin.buffer.read(_MOST + 1)
    require(len(content) <= _MOST, f"What is piped in is longer than {_MOST >> 20} MiB.")
    return content

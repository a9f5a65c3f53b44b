"""The build of llama.cpp: the two ends of RPC must be of the same."""

from __future__ import annotations

from supervisor.core.engine_output.capabilities import Capabilities


def build_of(able: Capabilities) -> str:
    """Return a build as text, such as `b11434 (1a2b3c4)`: the number, or the commit, or what it says of itself."""
    number = f"b{able.build}" if able.build is not None else ""
    commit = f"({able.commit[:9]})" if able.commit else ""
    return " ".join(part for part in (number, commit) if part) or able.version_text

"""Why figures differ: by part, and architecture or family. What is not here is reported as unknown."""

from __future__ import annotations

REASONS: dict[tuple[str, str], str] = {}

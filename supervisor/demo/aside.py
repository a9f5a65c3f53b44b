"""The built-in model's file for those whose loop must not wait."""

from __future__ import annotations

import asyncio
from pathlib import Path

from supervisor.demo.builtin import ensure_demo_model
from supervisor.errors import ModelLoadFailed


async def make_demo_model(cache: Path) -> Path:
    """Return the built-in model's file in the cache folder, made on first use; raises ModelLoadFailed."""
    try:
        return await asyncio.to_thread(ensure_demo_model, cache)
    except OSError as error:
        raise ModelLoadFailed(
            f"The built-in model could not be made in {cache} ({error}). "
            "Make that folder writable, or choose another with SUPERVISOR_HOME."
        ) from error

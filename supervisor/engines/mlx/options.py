"""The options of a model for MLX: launch options of llama-server's that mean something to mlx-lm."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from supervisor.core.mlx.settings import Said
from supervisor.core.options import LaunchOptions

_COUNTED: Final = tuple(one.name for one in fields(Said))

SHARED: Final = frozenset({*_COUNTED, "chat_template_kwargs", "env"})
"""Launch options that this kind takes."""


@dataclass(frozen=True)
class MlxOptions:
    """Options of its own: none."""


def said_in(options: LaunchOptions) -> Said:
    """Return the options that count for memory."""
    return Said(**{name: getattr(options, name) for name in _COUNTED})

"""The dialects: one module for each way of writing, with a record for each dialect in `DIALECTS`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.registry import Registry


def _declared() -> Iterator[Dialect]:
    """Yield the dialects that the modules of this package declare; some modules are only helpers of the readers."""
    for module in sorted(iter_modules(__path__), key=lambda module: module.name):
        yield from getattr(import_module(f"{__name__}.{module.name}"), "DIALECTS", ())


REGISTRY: Final = Registry(_declared())
"""All that there are."""

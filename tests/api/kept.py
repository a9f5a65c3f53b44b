"""The schemas that programs are written by, part by part: `python -m tests.api.kept` keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from supervisor.config.editors import editor_schema
from tests.support.recorded import write
from tests.support.schemas import schema

KEPT: Final = Path(__file__).parent / "data" / "schemas.json"


def outcomes() -> dict[str, Any]:
    """Each part of both schemas, that of the interface and that of the configuration."""
    interface, configuration = schema(), editor_schema()
    calls = {f"{method} {path}": said for path, found in interface["paths"].items() for method, said in found.items()}
    objects = {f"object {name}": said for name, said in interface["components"]["schemas"].items()}
    rest = {
        f"interface {name}": said for name, said in interface.items() if name not in {"paths", "components", "info"}
    }
    sections = {f"section {name}": said for name, said in configuration["$defs"].items()}
    keys = {f"key {name}": said for name, said in configuration["properties"].items()}
    return {**calls, **objects, **rest, **sections, **keys}


if __name__ == "__main__":
    write(KEPT, outcomes())

"""The command line of the launcher."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from supervisor.core.mlx.memory import MlxSettings

_HERE: Final = Path(__file__).parent
_RUN: Final = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); "
    "runpy.run_module('launcher', run_name='__main__', alter_sys=True)"
)
"""Runs the package `launcher` of a folder. `-I` leaves the folder of a script out, so it is added here, as the last."""


@dataclass(frozen=True)
class MlxLaunch:
    """An engine to start.

    Attributes:
        folder: of the model. name: its id. settings: with the context that was chosen.
        template_args: what the chat template gets beside messages and tools.
    """

    folder: Path
    name: str
    settings: MlxSettings
    template_args: Mapping[str, Any]

    def arguments(self) -> tuple[str, ...]:
        """Return the launcher's arguments, without the socket."""
        settings = self.settings
        found = [
            *("--model", str(self.folder), "--name", self.name, "--context", str(settings.context)),
            *("--parallel", str(settings.sequences), "--prefill-step", str(settings.prefill_step)),
            *("--prompt-cache-bytes", str(settings.prompt_cache_bytes or 0)),
        ]
        if settings.kv_bits is not None:
            found += ["--kv-bits", str(settings.kv_bits)]
        if self.template_args:
            found += ["--template-args", json.dumps(dict(self.template_args))]
        return tuple(found)

    def argv(self, python: Path, socket: str) -> tuple[str, ...]:
        """Return the whole command."""
        return (str(python), "-I", "-c", _RUN, str(_HERE), "--socket", socket, *self.arguments())

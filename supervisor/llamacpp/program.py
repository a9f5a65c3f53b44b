"""The `llama-server` in use, whichever that is when somebody asks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.engine_output.capabilities import Capabilities
from supervisor.core.launch import check_extra, check_options
from supervisor.core.options import LaunchOptions
from supervisor.errors import EngineNotFound, EngineUnusable
from supervisor.llamacpp.digest import engine_digest
from supervisor.llamacpp.locate import EngineBinary, capability_cache, locate
from supervisor.llamacpp.probe import capabilities
from supervisor.system.paths import Places


@dataclass(frozen=True)
class InUse:
    """A `llama-server`, and what it can do."""

    binary: EngineBinary
    able: Capabilities

    @property
    def path(self) -> Path:
        return self.binary.path


class Program:
    """Finds it anew for everybody who asks: it may be installed, replaced or chosen meanwhile. All of it may block.

    Args:
        named: the one that the configuration names now, if any.
    """

    def __init__(self, where: Places, env: Mapping[str, str], named: Callable[[], str | None]) -> None:
        self._where = where
        self._env = env
        self._named = named

    def find(self) -> InUse:
        """The one in use; raises EngineNotFound, EngineUnusable."""
        binary = locate(self._where, self._env, self._named())
        return InUse(binary, capabilities(binary.path, capability_cache(self._where)))

    def usable(self) -> InUse | None:
        """The one in use, where there is one."""
        with contextlib.suppress(EngineNotFound, EngineUnusable):
            return self.find()
        return None

    def path(self) -> Path | None:
        """Return its path; None where there is none."""
        found = self.usable()
        return found.path if found else None

    def digest(self, found: InUse) -> str:
        """Return what tells it from every other; raises EngineUnusable."""
        return engine_digest(found.path, self._where.cache / "engine-digests.json")

    def check(self, options: LaunchOptions, client_args: Sequence[str] = ()) -> None:
        """Raise InvalidRequest or OptionNotSupported where no engine could be started with these options.

        `client_args` are those of its further arguments that a client gave, who may give less than the configuration.
        """
        found = self.usable()
        flags = found.able.flags if found else None  # without one: that is for the load to say
        check_extra(client_args, flags, "client")
        check_options(options, flags)

    def check_other(self, path: str | None) -> None:
        """Raise EngineNotFound or EngineUnusable where there would be none if the configuration named this one."""
        locate(self._where, self._env, path)

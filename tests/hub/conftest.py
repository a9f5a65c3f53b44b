"""A local hub, a model that talks, and a daemon that knows both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from supervisor.core.repository import parse_reference
from supervisor.files.header_cache import HeaderCache
from supervisor.hub.access import HubAccess, HubChoices, hub_access
from supervisor.hub.download import Downloads
from supervisor.hub.models import Chosen, HubModels
from tests.support.hub import LocalHub, local_hub
from tests.support.scripted import ScriptedModel

SAID = "Fetched from the hub, and it talks."


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    with local_hub() as server:
        yield server


@pytest.fixture(scope="session")
def talker(scripted_model: ScriptedModel) -> Path:
    """The file of a model that says SAID."""
    return scripted_model(SAID)


@dataclass
class Client:
    """Our side of the hub, with a cache of its own."""

    hub: LocalHub
    home: Path
    opened: list[HubModels] = field(default_factory=list)

    def access(self, choices: HubChoices | None = None, **env: str) -> HubAccess:
        kept = {"PATH": "/usr/bin:/bin", "HOME": str(self.home)}
        return hub_access({**kept, **self.hub.environment(self.home / "hf"), **env}, choices)

    def models(self, choices: HubChoices | None = None, **env: str) -> HubModels:
        access = self.access(choices, **env)
        headers = HeaderCache(self.home / "headers")
        self.opened.append(HubModels(access, Downloads(access), headers, self.home / "listings"))
        return self.opened[-1]

    def close(self) -> None:
        for models in self.opened:
            models.close()

    def chosen(self, text: str, models: HubModels | None = None) -> Chosen:
        reference = parse_reference(text)
        assert reference is not None
        found = (models or self.models()).look(reference)
        return found.choice(found.candidates[0])


@pytest.fixture
def client(hub: LocalHub, tmp_path: Path) -> Iterator[Client]:
    found = Client(hub, tmp_path)
    yield found
    found.close()

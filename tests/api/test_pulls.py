"""Downloads that nobody waits for: one of each, and so many at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from supervisor.api.files import RouterPullRequest, router_pull
from supervisor.errors import HubUnreachable, TooManyDownloads
from supervisor.hub.models import Chosen
from supervisor.models.fetch import Fetcher
from supervisor.service.pulls import MOST_UNATTENDED, Pulls
from tests.support.patience import PATIENCE


class _Hub:
    """Downloads of which each lasts until `over`; the one of `broken` fails."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.begun: Counter[str] = Counter()

    async def fetch(self, chosen: Chosen, **_: object) -> None:
        self.begun[chosen.reference] += 1
        await self.over.wait()
        if chosen.reference == "broken":
            raise HubUnreachable("gone")


class _Pulls(Pulls):
    """Finds whatever is asked for. `hub`: where it is."""

    def __init__(self) -> None:
        self.hub = _Hub()
        unused = cast(Any, None)
        super().__init__(cast(Fetcher, SimpleNamespace(hub=self.hub)), unused, unused, unused, unused)

    async def find(self, target: str, *, update: bool) -> tuple[dict[str, Any], Chosen]:
        """Anything, at one commit."""
        found = SimpleNamespace(reference=target, repository=SimpleNamespace(commit="c"), files=lambda vision: ())
        return {}, cast(Chosen, found)


async def ask(pulls: Pulls, model: str) -> None:
    assert await router_pull(RouterPullRequest(model=model), pulls) == {"success": True}
    for _ in range(5):  # turns of the loop until the hub is asked
        await asyncio.sleep(0)


def test_a_download_that_is_asked_for_again_and_again_is_one() -> None:
    async def go() -> None:
        pulls = _Pulls()
        for _ in range(100):
            await ask(pulls, "o/r:Q4_0")
        assert pulls.hub.begun == {"o/r:Q4_0": 1}

    asyncio.run(go())


def test_so_many_downloads_are_under_way_and_no_more() -> None:
    async def go() -> None:
        pulls = _Pulls()
        names = ["broken", *(f"o/r{number}" for number in range(MOST_UNATTENDED - 1))]
        for name in names:
            await ask(pulls, name)
        with pytest.raises(TooManyDownloads, match="wait for one"):
            await ask(pulls, "o/more")
        pulls.hub.over.set()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others, timeout=PATIENCE)
        await ask(pulls, "o/more")
        await ask(pulls, "broken")
        assert pulls.hub.begun == {**dict.fromkeys(names, 1), "broken": 2, "o/more": 1}

    asyncio.run(go())

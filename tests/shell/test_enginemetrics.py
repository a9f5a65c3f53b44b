"""Metrics of engines that make no sense take nothing away from those of others."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from supervisor.engines.client import EngineClient
from supervisor.service.enginemetrics import EngineMetrics, Family

pytestmark = pytest.mark.anyio

COUNTED = "# TYPE tokens counter\ntokens 3\n"


def answering(page: str) -> EngineClient:
    @contextlib.asynccontextmanager
    async def send(*_: object) -> AsyncIterator[object]:
        async def read(_: int) -> bytes:
            return page.encode()

        yield SimpleNamespace(status=200, read=read)

    return cast(EngineClient, SimpleNamespace(send=send))


class _Page:
    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> list[Family]:
        return self._families


async def shown(*pages: str) -> dict[str, float]:
    """The figures of a page by name and number of the engine, as a strict parser reads them."""
    engines = [(str(number), answering(page)) for number, page in enumerate(pages)]
    metrics = EngineMetrics(lambda: engines)
    await metrics.look()
    registry = CollectorRegistry()
    registry.register(_Page(list(metrics.families())))
    text = generate_latest(registry).decode()  # type: ignore[no-untyped-call]  # the library has no types here
    families = list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]  # likewise
    return {f"{one.name} {one.labels['model']}": one.value for family in families for one in family.samples}


@pytest.mark.parametrize(
    "page",
    [
        f"tokens {'9' * 400}\n",
        "0bad 1\n",
        "tokens 0x10\n",
        "# TYPE tokens bogus\ntokens 1\n",
        'x{a="b"} 1\n',
        "# TYPE tokens counter\ntokens -1\n",
        "# TYPE tokens counter\ntokens NaN\n",
    ],
)
async def test_what_makes_no_sense_is_left_out(page: str) -> None:
    assert await shown(page, COUNTED) == {"engine_tokens_total 1": 3.0}


async def test_a_name_is_there_once_whatever_kind_each_engine_says_it_is() -> None:
    found = await shown(COUNTED, "# TYPE tokens_total gauge\ntokens_total 4\n")
    assert found == {"engine_tokens_total 0": 3.0, "engine_tokens_total 1": 4.0}

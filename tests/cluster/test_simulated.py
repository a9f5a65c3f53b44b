"""Clusters in simulated time, with deaths and partitions: what nobody lost is not loaded twice, no request hangs."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator

import pytest
import structlog

from tests.cluster.simulated.virtual import run
from tests.cluster.simulated.world import Outcome, World

FAULTS, SECONDS = 10, 120.0
PROPER = {"answered", "client_lost", "cluster_unavailable", "node_lost"}


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """The log of so many nodes takes longer than what they do."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def outcome(seed: int, faults: int = FAULTS) -> Outcome:
    """Of a run. Every third one has a single NATS server, the others three."""

    async def happens() -> Outcome:
        return await World(seed, servers=3 if seed % 3 else 1).run(faults, SECONDS)

    return run(happens())


def check(seeds: range, faults: int = FAULTS) -> Counter[str]:
    """That all is well with these seeds; the faults that there were."""
    happened: Counter[str] = Counter()
    for seed in seeds:
        found = outcome(seed, faults)
        assert not found.twice, (seed, found.twice)
        assert not found.wrong, (seed, found.wrong)
        assert found.answers.keys() <= PROPER, (seed, found.answers)
        assert found.answers["answered"] > found.answers.total() / 3, (seed, found.answers)
        happened += found.faults
    return happened


def test_without_faults_every_model_is_loaded_once_and_every_request_answered() -> None:
    for seed in range(6):
        found = outcome(seed, faults=0)
        assert found.answers.keys() <= {"answered"}
        assert found.loads == 4
        assert not found.twice + found.wrong


def test_of_a_hundred_deaths_and_partitions_none_has_a_model_loaded_twice_that_nobody_lost() -> None:
    assert check(range(10)).total() == 100


@pytest.mark.full
@pytest.mark.parametrize("part", range(10))
def test_of_a_thousand_deaths_and_partitions_none_has(part: int) -> None:
    assert check(range(1000 + part * 10, 1010 + part * 10)).total() == 100


@pytest.mark.parametrize("seed", [2, 4, 7, 9, 13, 15, 52, 190, 230])
def test_what_was_loaded_twice_once_is_not_any_more(seed: int) -> None:
    check(range(seed, seed + 1))


def test_the_same_seed_gives_the_same_run() -> None:
    assert outcome(3) == outcome(3)


def test_why_a_node_is_not_ready_is_told_once_and_shown_until_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Log:
        def warning(self, event: str, *, reason: str) -> None:
            told.append(f"{event}: {reason}")

        def info(self, event: str, **_: object) -> None:
            told.append(event)

    monkeypatch.setattr("supervisor.cluster.member._log", Log())

    async def happens() -> None:
        world = World(1)
        node, servers = world.nodes["n0"], world.servers
        for server in servers.all[1:]:
            servers.kill(server)
        node.start()
        await asyncio.sleep(30.0)
        assert told == ["cluster_not_ready: it does not answer"]
        assert node.member.unready == "it does not answer"
        for server in servers.all[1:]:
            servers.start(server)
        await asyncio.sleep(30.0)
        assert (told[1:], node.member.unready) == (["cluster_connected"], "")
        world.stores["n0"].close()
        await node.die(silently=False)

    run(happens())

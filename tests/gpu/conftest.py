"""Daemons on machines with one, two and three GPUs, each shared by all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from tests.support.gpu import gpu_bench
from tests.support.planning_bench import Bench
from tests.support.vulkan import VulkanEngine


class Benches(Protocol):
    """The `gpus` fixture: the bench of a daemon with so many devices, started when it is first asked for."""

    def __call__(self, devices: int) -> Bench: ...


@pytest.fixture(scope="module")
def gpus(vulkan_engine: VulkanEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benches]:
    folder = tmp_path_factory.mktemp("models")
    running: dict[int, Bench] = {}
    with ExitStack() as stack:

        def bench(devices: int) -> Bench:
            if devices not in running:
                running[devices] = stack.enter_context(gpu_bench(vulkan_engine, devices, folder))
            return running[devices]

        yield bench

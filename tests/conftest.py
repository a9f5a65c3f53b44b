"""Fixtures for every test: a real engine's binary and models for it."""

from __future__ import annotations

import gc
import signal
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from supervisor.demo.builtin import ensure_demo_model
from tests.support.engine_binary import require_engine_binary
from tests.support.gguf_split import GgufSplit, build_gguf_split
from tests.support.scripted import ScriptedModel, ScriptedModels
from tests.support.vulkan import VulkanEngine, require_vulkan_engine

# How long an example may take depends on what else this machine does.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Nothing that is made while tests are collected becomes garbage; looking for it takes a third of that time.
gc.disable()

# A shell that runs the tests in the background makes them, and with them every child, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two workers more than processors with `-n auto`: a third of the tests' time is waiting for other processes."""
    return (psutil.cpu_count() or 1) + 2


def pytest_collection_finish() -> None:
    """Have garbage looked for from now on, in what tests make."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def engine_binary() -> Path:
    """The llama-server to drive; skips the test where there is none."""
    return require_engine_binary()


@pytest.fixture(scope="session")
def vulkan_engine() -> VulkanEngine:
    """An engine with a GPU back end and the devices for it: see `VulkanEngine`; skips the test where there is none."""
    return require_vulkan_engine()


@pytest.fixture(scope="session")
def gguf_split(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> GgufSplit:
    """Makes split models of whole ones: see `GgufSplit`."""
    return build_gguf_split(engine_binary, tmp_path_factory.mktemp("gguf-split"))


@pytest.fixture(scope="session")
def scripted_model(tmp_path_factory: pytest.TempPathFactory) -> ScriptedModel:
    """Makes models that say the given texts: see `ScriptedModel`."""
    return ScriptedModels(tmp_path_factory.mktemp("scripted"))


@pytest.fixture(scope="session")
def demo_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in model's file."""
    return ensure_demo_model(tmp_path_factory.mktemp("demo"))

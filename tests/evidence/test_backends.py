"""The estimate for devices of a back end, beside what the engine's own projection says of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.evidence import backends, report_backends
from tests.evidence.compare import Comparison, Row
from tests.evidence.make import write_model
from tests.evidence.measure import Measurement, Server
from tests.evidence.subjects import TINY, architecture_of, kind_of

MAINSTREAM = frozenset(
    {"llama", "qwen2", "qwen3", "qwen3moe", "gemma2", "gemma3", "gpt-oss", "phi3", "mamba2", "lfm2", "glm4moe"}
    | {"qwen3next", "granitehybrid", "deepseek2"}
)
BACKENDS = backends.recorded_backends()


@pytest.fixture(scope="module", params=BACKENDS)
def found(request: pytest.FixtureRequest) -> Sequence[Comparison]:
    return report_backends.comparisons(request.param)


def test_vulkan_is_on_record() -> None:
    assert "vulkan" in BACKENDS
    assert len(backends.recorded("vulkan")) > 1500
    assert {one.setting.partition("-")[0] for one in backends.recorded("vulkan")} >= {"1dev", "2dev", "3dev"}


def test_everything_but_compute_buffers_is_equal(found: Sequence[Comparison]) -> None:
    rows = [row for one in found for row in one.rows if row.part != "compute"]
    assert [row for row in rows if not row.equal] == []


def test_no_compute_buffer_is_below_the_log(found: Sequence[Comparison]) -> None:
    rows = report_backends.compute_rows(found)
    assert [row for row in rows if row.error < -0.01] == []


def test_compute_buffers_are_near_the_log(found: Sequence[Comparison]) -> None:
    every = report_backends.compute_rows(found)
    rows = [row for row in every if row.setting not in LENT]
    assert _share(rows, 0.9) < 0.35
    assert _share([row for row in every if row.setting in LENT], 0.9) < 0.75
    assert _share([row for row in rows if architecture_of(row.subject) in MAINSTREAM], 0.5) < 0.05
    whole = {"8k", "32k", "8k-auto", "8k-ub2048", "32k-np4-q8", "2dev-equal", "2dev-3:1"}
    usual = [row for row in rows if row.setting in whole and architecture_of(row.subject) in MAINSTREAM]
    assert _share(usual, 0.9) < 0.15


LENT = frozenset({"128k-nkvo", "32k-np4-nkvo", "2dev-32k-nkvo", "32k-nkvo-cmoe", "32k-nkvo-noop-cmoe"})
"""Caches on the host with long contexts: how their copies lie is known of plain layers alone."""

COMMON = frozenset({"llama", "qwen2", "qwen3", "qwen3moe", "gemma2", "gemma3", "phi3", "gpt-oss"})
PARTED = {
    "ngl": ({"1dev-ngl20", "2dev-ngl20", "32k-ngl20"}, 0.13, 0.35),
    "experts": ({"1dev-cmoe", "1dev-ncmoe10", "1dev-noop-cmoe", "2dev-cmoe", "2dev-ncmoe10"}, 0.06, 0.16),
    "lent": ({"1dev-nkvo", "128k-nkvo", "32k-np4-nkvo"}, 0.08, 0.3),
    "host": ({"1dev-nkvo", "128k-nkvo", "1dev-noop-cmoe", "1dev-ngl20", "1dev-cmoe"}, 0.01, 0.02),
}
"""Settings that divide a model between device and host; the median and the ninth decile of the error on each side."""


@pytest.mark.parametrize("name", PARTED)
def test_divided_models_are_near_the_log(found: Sequence[Comparison], name: str) -> None:
    settings, median, most = PARTED[name]
    known = [row for row in report_backends.compute_rows(found) if kind_of(row.subject) != TINY]
    rows = [row for row in known if row.setting in settings and architecture_of(row.subject) in COMMON]
    chosen = [row for row in rows if (row.where == "CPU") == (name == "host")]
    assert _share(chosen, 0.5) < median
    assert _share(chosen, 0.9) < most


def _share(rows: Sequence[Row], share: float) -> float:
    errors = sorted(row.error for row in rows)
    return errors[int(len(errors) * share)]


def test_a_projection_names_its_devices(tmp_path: Path) -> None:
    """A stand-in for an engine: two devices in its list, and the lines that a projection ends with."""
    engine = tmp_path / "llama-server"
    engine.write_text(
        "#!/bin/sh\n"
        'case "$1" in --list-devices) echo "Available devices:"\n'
        'echo "  Vulkan0: Card (8192 MiB, 8000 MiB free)"\n'
        'echo "  CUDA0: Card (8192 MiB, 8000 MiB free)"; exit;; esac\n'
        'echo "0.00.000.001 I sched_reserve:    Vulkan0 compute buffer size =   124.01 MiB ($*)"\n'
        'echo "projected to use 1 MiB"\n',
        "utf-8",
    )
    engine.chmod(0o755)
    server = Server(engine)
    assert server.devices("vulkan") == {"Vulkan0": "Card"}
    model = tmp_path / "model.gguf"
    write_model(model, {"general.architecture": "llama", "llama.block_count": 2}, ())
    (setting,) = (one for one in backends.settings_of("llama-3.1-8b", 1) if one.name == "8k")
    done = server.project_on("llama-3.1-8b", model, setting, ["Vulkan0", "Vulkan1"])
    assert done == Measurement("llama-3.1-8b", "8k", "projected", compute={"Vulkan0": 124.01})


def test_settings_want_no_more_devices_than_there_are() -> None:
    for devices in (1, 2, 3):
        assert max(one.devices for one in backends.settings_of("deepseek-v3", devices)) == devices
    assert {one.name for one in backends.settings_of("gpt-oss+experts/wide", 2)} >= {"1dev-ncmoe3", "2dev-ncmoe3"}

"""The estimate against what the real llama-server logs: the whole record, and some of it live.

`tests/evidence` made the record and regenerates it; docs/memory-accuracy.md shows it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evidence import matrix, report
from tests.evidence.compare import Comparison, Row, compare
from tests.evidence.measure import Server
from tests.evidence.reasons import REASONS
from tests.evidence.settings import EVERY
from tests.evidence.subjects import KNOWN, TINY, architecture_of, kind_of, write_subject

LIVE = (  # at least one of every layout
    ("llama/wide", "np3"),
    ("qwen3/upstream", "q8"),
    ("gemma3/wide", "auto"),
    ("gpt-oss+experts/wide", "swafull"),
    ("gemma4/wide", "np3"),
    ("deepseek2+experts/wide", "np3"),
    ("deepseek32+experts/wide", "kvu"),
    ("minimax-m3+experts/wide", "np3"),
    ("deepseek4+experts/wide", "kvu"),
    ("mamba2/wide", "np3"),
    ("rwkv7/wide", "auto"),
    ("qwen3next+experts/wide", "auto"),
    ("lfm2/wide", "q4"),
    ("falcon-h1/wide", "faoff"),
    ("kimi-linear+experts/wide", "np8"),
    ("bert/wide", "np1"),
    ("qwen35+nextn/wide", "mtp"),
    ("llama-3.1-8b", "32k"),
    ("qwen3-30b-a3b", "2dev-ncmoe10"),
)


@pytest.fixture(scope="module")
def comparisons() -> list[Comparison]:
    return report.compare_all()


@pytest.fixture(scope="module")
def rows(comparisons: list[Comparison]) -> list[Row]:
    return [row for one in comparisons for row in one.rows]


def explained(row: Row) -> bool:
    return (row.part, architecture_of(row.subject)) in REASONS


def differing(rows: list[Row], parts: tuple[str, ...]) -> list[Row]:
    return [row for row in rows if row.part in parts and not row.equal and not explained(row)]


def test_the_record_is_wide(comparisons: list[Comparison]) -> None:
    subjects = {one.measurement.subject for one in comparisons}
    assert len({architecture_of(subject) for subject in subjects if kind_of(subject) == TINY}) >= 143
    assert len([subject for subject in subjects if kind_of(subject) == KNOWN]) >= 25
    assert len([one for one in comparisons if EVERY[one.measurement.setting].devices == 2]) >= 20


def test_contexts_caches_and_states_are_the_servers(rows: list[Row]) -> None:
    parts = ("n_ctx", "n_ctx_seq", "n_seq", "cache", "state", "context")
    assert differing(rows, parts) == []
    chosen = [row.equal for row in rows if row.part in {"cache", "state"}]
    assert sum(chosen) / len(chosen) >= 0.995


def test_weights_and_outputs_are_the_servers(rows: list[Row]) -> None:
    assert differing(rows, ("weights", "output")) == []


def test_the_estimate_refuses_what_the_server_refuses(comparisons: list[Comparison]) -> None:
    refusals = [one for one in comparisons if one.verdict in {"not-refused", "wrongly-refused"}]
    assert [(one.measurement.subject, one.measurement.setting, one.verdict) for one in refusals] == []


def test_compute_buffers_are_bounds(rows: list[Row]) -> None:
    compute = [row for row in rows if row.part == "compute" and row.logged]
    assert [row for row in compute if row.error < -0.01 and not explained(row)] == []
    errors = sorted(row.error for row in compute)
    assert errors[int(len(errors) * 0.9)] <= 0.35


def test_compute_buffers_of_mainstream_families_are_near(rows: list[Row]) -> None:
    """On known models with one device, as most are run."""
    compute = [row for row in rows if row.part == "compute" and row.where == "RPC0"]
    single = [row for row in compute if EVERY[row.setting].devices == 1]
    mainstream = [row for row in single if architecture_of(row.subject) in report.MAINSTREAM]
    assert [row for row in mainstream if row.error > 0.05 and not explained(row)] == []


def test_the_report_is_the_records(comparisons: list[Comparison]) -> None:
    written = Path(__file__).parents[2] / "docs" / "memory-accuracy.md"
    assert written.read_text("utf-8") == report.text(comparisons), "run: python -m tests.evidence report"


@pytest.mark.engine
@pytest.mark.parametrize(("subject", "setting"), LIVE)
def test_a_live_server_agrees(engine_binary: Path, tmp_path: Path, subject: str, setting: str) -> None:
    server, model = Server(engine_binary), write_subject(subject, tmp_path)
    if kind_of(subject) == TINY:
        measurement = server.measure(subject, model, EVERY[setting])
    else:
        if not engine_binary.with_name("ggml-rpc-server").exists():
            pytest.skip("this build has no RPC worker to stand for a device")
        with server.workers(EVERY[setting].devices) as workers:
            measurement = server.project(subject, model, EVERY[setting], workers)
    found = compare(measurement)
    assert found.verdict == "compared", measurement
    assert [row for row in found.rows if row.part in report.EXACT and not row.equal] == []


@pytest.mark.engine
def test_a_live_server_logs_what_is_on_record(engine_binary: Path, tmp_path: Path) -> None:
    server = Server(engine_binary)
    if server.build() != matrix.recorded_build():
        pytest.skip(f"the record is of {matrix.recorded_build()}")
    model = write_subject("llama/wide", tmp_path)
    live = [server.measure("llama/wide", model, setting) for setting in matrix.settings_of("llama/wide")]
    recorded = [one for one in matrix.recorded() if one.subject == "llama/wide"]
    assert list(matrix.differences(recorded, live)) == []

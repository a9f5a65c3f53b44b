"""`/metrics` on a real daemon and engine, as a parser of OpenMetrics reads it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from supervisor.core.history.metrics import CLUSTERED, METRICS, PREFIX, Metric
from supervisor.service.tallies import UNKNOWN
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.grafana import FILE

pytestmark = pytest.mark.engine

CHAT = "/v1/chat/completions"
_SUFFIX = {"counter": "_total", "gauge": "", "histogram": "_count"}


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    """A daemon in which every kind of thing has happened that a metric counts."""
    models = {
        "talker": {"file": str(talker), "parallel": 4, "ctx_size": 16384, "ttl": "1h"},
        "idle": {"file": str(talker)},
        "broken": {"file": str(talker), "extra_args": ["--nonsense"]},
    }
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        for _ in range(2):  # of the second one, some of the prompt is in the cache
            assert running.chat("talker", "call", stream=True, tools=[TOOL]).status_code == 200
        assert running.chat("broken", "hello").status_code >= 400
        yield running


TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


def scraped(daemon: RunningDaemon) -> dict[str, Family]:
    """The families of a page by name."""
    answer = daemon.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = list(text_string_to_metric_families(answer.text))  # type: ignore[no-untyped-call]  # the library has no types here
    assert len({one.name for one in families}) == len(families)
    return {one.name: one for one in families}


def value(families: Mapping[str, Family], name: str, **labels: str) -> float:
    """The sum of all samples of a name that have these labels."""
    wanted = labels.items()
    every = (sample for family in families.values() for sample in family.samples)
    return float(sum(one.value for one in every if one.name == name and wanted <= one.labels.items()))


def faults(families: Mapping[str, Family], row: Metric) -> list[str]:
    """What a page lacks of a row of the table."""
    found = families.get(PREFIX + row.name)
    if found is None:
        return [f"{row.name} is not there"]
    samples = [one for one in found.samples if one.name == found.name + _SUFFIX[row.kind]]
    checks = {
        "kind": found.type == row.kind,
        "help": found.documentation == row.help,
        "no sample": bool(samples),
        "labels": all(set(one.labels) == set(row.labels) for one in samples),
    }
    return [f"{row.name}: {what}" for what, is_right in checks.items() if not is_right]


def test_every_row_of_the_table_is_there_with_its_kind_help_and_labels(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    families = scraped(daemon)
    rows = [row for row in METRICS if row not in CLUSTERED]
    assert [fault for row in rows for fault in faults(families, row)] == []
    ours = {name for name in families if name.startswith(PREFIX)}
    assert ours == {PREFIX + row.name for row in rows}


def test_a_page_is_there_before_anybody_has_looked_at_the_machine(engine_binary: Path) -> None:
    with scratch_home() as home, running_daemon(home, engine_binary, {}) as fresh:
        families = scraped(fresh)
    assert families[f"{PREFIX}requests_in_flight"].samples
    assert not families[f"{PREFIX}device_total_bytes"].samples


def test_a_row_that_the_page_lacks_is_noticed(daemon: RunningDaemon) -> None:
    families = scraped(daemon)
    assert faults(families, Metric("scratch", "gauge", "A scratch row.")) == ["scratch is not there"]
    assert faults(families, Metric("requests", "gauge", "Another help.", ("key",))) == [
        *("requests: kind", "requests: help", "requests: no sample"),
    ]


def test_counts_grow_by_one_request(daemon: RunningDaemon) -> None:
    before = scraped(daemon)
    said = daemon.chat("talker", "hello", stream=True, max_tokens=4)
    assert said.status_code == 200
    labels = {"model": "talker", "path": CHAT, "status": "200"}
    requests = f"{PREFIX}requests_total"
    wait_until(lambda: value(scraped(daemon), requests, **labels) > value(before, requests, **labels), "one more")
    after = scraped(daemon)

    def grown(name: str, **labels: str) -> float:
        return value(after, PREFIX + name, **labels) - value(before, PREFIX + name, **labels)

    assert grown("requests_total") == grown("requests_total", **labels) == 1
    assert grown("completion_tokens_total", model="talker") == 4
    assert grown("prompt_tokens_total", model="talker") > 0
    assert grown("errors_total") == 0
    histograms = ("request_seconds", "queue_seconds", "time_to_first_token_seconds", "token_seconds")
    assert [grown(f"{name}_count", model="talker") for name in histograms] == [1, 1, 1, 1]
    assert grown("load_seconds_count") == 0


def test_loads_that_fail_are_counted_by_code(daemon: RunningDaemon) -> None:
    before = scraped(daemon)
    code = daemon.chat("broken", "hello").json()["error"]["code"]
    after = scraped(daemon)
    errors = f"{PREFIX}errors_total"
    wait_until(
        lambda: (
            value(scraped(daemon), errors, model="broken", code=code)
            == value(before, errors, model="broken", code=code) + 1
        ),
        "one more error",
    )
    assert value(after, f"{PREFIX}engine_failures_total", model="broken") >= 1


def test_memory_is_told_as_planned_and_as_the_engine_told(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    families = scraped(daemon)
    name = f"{PREFIX}model_memory_bytes"
    status = daemon.model("talker")
    for part in status["plan"]["parts"]:
        assert value(families, name, kind="planned", model="talker", device=part["name"]) == part["total_bytes"]
    for device, held in status["footprint"].items():
        assert value(families, name, kind="told", model="talker", device=device) == held
    assert value(families, name, kind="planned", model="talker") > 0
    assert value(families, name, kind="told", model="talker") > 0


def test_a_scrape_wakes_no_model_and_keeps_none(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    kept, idle = daemon.model("talker"), daemon.model("idle")
    assert kept["expires_at"] is not None
    assert idle["state"] == "unloaded"
    for _ in range(3):
        families = scraped(daemon)
    assert value(families, f"{PREFIX}model_state", model="idle", state="unloaded") == 1
    assert value(families, f"{PREFIX}model_state", model="idle") == 1
    assert daemon.model("idle") == idle
    after = daemon.model("talker")
    assert (after["expires_at"], after["state"], after["leases"]) == (kept["expires_at"], "ready", 0)


def engines_of(families: Mapping[str, Family]) -> set[str]:
    samples = [one for name, family in families.items() if name.startswith("engine_") for one in family.samples]
    assert all(set(one.labels) == {"model"} for one in samples)
    return {one.labels["model"] for one in samples}


def test_an_engines_own_metrics_have_its_model_as_a_label(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    wait_until(lambda: engines_of(scraped(daemon)) == {"talker"}, "the engine's metrics")
    families = scraped(daemon)
    assert {name for name in families if f'"expr": "{name}"' in FILE.shown()} >= {"engine_requests_deferred"}
    assert families["engine_tokens_predicted"].type == "counter"
    assert value(families, "engine_tokens_predicted_total", model="talker") > 0
    daemon.http.post("/api/v1/models/unload", json={"model": "talker"}).raise_for_status()
    assert engines_of(scraped(daemon)) == set()


def test_an_engine_that_does_not_answer_delays_nobody(daemon: RunningDaemon) -> None:
    """The answer comes while it stands still, without what it would say."""
    daemon.http.post("/api/v1/models/unload", json={"model": "talker"})
    pid = daemon.load("talker")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(3):
            families = scraped(daemon)
            assert value(families, f"{PREFIX}model_state", model="talker", state="ready") == 1
            assert engines_of(families) == set()
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: engines_of(scraped(daemon)) == {"talker"}, "it answers again")


def test_names_that_clients_make_up_are_one_label(daemon: RunningDaemon) -> None:
    requests = f"{PREFIX}requests_total"
    before = value(scraped(daemon), requests, model=UNKNOWN)
    for number in range(100):
        assert daemon.chat(f"nobody-{number}", "hello").status_code == 404
        daemon.http.get(f"/upstream/talker/nowhere/{number}")
    wait_until(lambda: value(scraped(daemon), requests, model=UNKNOWN) == before + 100, "all are counted")
    families = scraped(daemon)
    samples = [one for family in families.values() for one in family.samples]
    models = {one.labels["model"] for one in samples if "model" in one.labels}
    assert models == {UNKNOWN, "talker", "idle", "broken", "demo"}
    paths = {one.labels["path"] for one in samples if "path" in one.labels}
    assert paths == {CHAT, "/upstream/MODEL/*"}


def test_no_label_has_a_word_of_a_prompt_or_a_key(daemon: RunningDaemon) -> None:
    daemon.chat("talker", "pssst", user="pssst", max_tokens=1)
    daemon.chat("pssst", "pssst")
    assert "pssst" not in daemon.http.get("/metrics", headers={"user-agent": "pssst"}).text


def test_the_first_scrape_may_come_before_anybody_looked_at_the_machine(engine_binary: Path) -> None:
    with scratch_home() as home, running_daemon(home, engine_binary) as running:
        found = scraped(running)
        assert not found[f"{PREFIX}device_total_bytes"].samples
        assert running.http.get("/api/v1/devices").status_code == 200
        assert scraped(running)[f"{PREFIX}device_total_bytes"].samples

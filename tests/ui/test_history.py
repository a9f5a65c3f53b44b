"""Requests that have ended, as the dashboard shows them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.support.browser import Tab
from tests.support.daemon import RunningDaemon
from tests.ui.test_dashboard import section

pytestmark = pytest.mark.engine


def test_what_has_ended_is_listed_filtered_and_summed(daemon: RunningDaemon, laptop: Tab) -> None:
    for _ in range(3):
        assert daemon.chat("talker", "Hello").status_code == 200
    assert daemon.chat("talker", "Hello", max_tokens=-5).status_code == 400
    page = laptop.go("requests")
    history = section(page, "History")
    ended = history.get_by_role("table", name="Requests that have ended")
    expect(ended.get_by_role("row")).to_have_count(5)
    expect(history.get_by_role("table", name="Percentiles")).to_contain_text("4 requests, 1 failed")
    expect(history.get_by_role("row", name="Tokens per second")).to_contain_text(re.compile(r"\d t/s"))
    history.get_by_label("With the error code").fill("invalid_request")
    expect(ended.get_by_role("row")).to_have_count(2)
    expect(ended).to_contain_text("invalid_request")
    history.get_by_label("With the error code").fill("")
    history.get_by_role("combobox", name="For the model").select_option("endless")
    expect(history).to_contain_text("None that has ended is like that.")


def test_a_table_of_them_is_saved(daemon: RunningDaemon, laptop: Tab) -> None:
    daemon.chat("talker", "Hello")
    page = laptop.go("requests")
    with page.expect_download() as saved:
        section(page, "History").get_by_role("button", name="Save as CSV").click()
    assert saved.value.suggested_filename == "requests.csv"
    assert "/v1/chat/completions" in saved.value.path().read_text(encoding="utf-8")


def test_throughput_and_speed_are_on_the_overview(daemon: RunningDaemon, laptop: Tab) -> None:
    daemon.chat("talker", "Hello")
    page = laptop.go()
    expect(section(page, "Throughput").get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("Tokens written per second")
    )
    expect(section(page, "Models").get_by_role("row", name="talker")).to_contain_text("t/s")


def test_what_runs_shows_its_tokens_and_its_speed(daemon: RunningDaemon, laptop: Tab) -> None:
    body = {"model": "endless", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    with daemon.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        page = laptop.go()
        expect(section(page, "Models").get_by_role("row", name="endless")).to_contain_text(re.compile(r"\d t/s"))
        expect(page.get_by_role("definition").filter(has_text="in all")).to_contain_text(re.compile(r"\d t/s"))
        page.get_by_role("link", name="Requests").click()
        running = section(page, "In flight")
        expect(running).to_contain_text(re.compile(r"\d \+ \d"))
        expect(running).to_contain_text(re.compile(r"\d t/s"))
        page.get_by_role("button", name="Cancel request").click()
        assert "request_cancelled" in "".join(lines)
    ended = section(page, "History").get_by_role("table", name="Requests that have ended")
    expect(ended).to_contain_text("request_cancelled")


def test_answers_that_go_on_are_in_the_throughput(daemon: RunningDaemon, laptop: Tab) -> None:
    script = """async ({written, width, requests}) => {
        const {withRunning} = await import("/ui/history.js");
        return withRunning({over_time: {bucket_seconds: width, completion_tokens: written}}, requests);
    }"""
    page = laptop.go("logs")
    running = [{"completion_tokens": 250, "tokens_per_second": 10}, {"completion_tokens": 1, "tokens_per_second": 0}]
    asked = {"written": [1, 1, 1, 1], "width": 10, "requests": running}
    assert page.evaluate(script, asked) == [1, 51, 101, 101], "back from now, at its own speed"
    old = {**asked, "requests": [{"completion_tokens": 900, "tokens_per_second": 10}]}
    assert page.evaluate(script, old) == [101, 101, 101, 101], "what was written before is left out"


def test_what_happened_to_a_model_is_told(daemon: RunningDaemon, laptop: Tab) -> None:
    daemon.load("talker")
    expect(section(laptop.go("models/talker"), "What happened to it")).to_contain_text("engine ready")

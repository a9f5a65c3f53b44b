"""The dashboard in a real browser, against a real daemon with real engines."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser import Tab
from tests.support.daemon import RunningDaemon, wait_until
from tests.support.patience import PATIENCE
from tests.ui.conftest import HELLO, HOSTILE, LONG, REASONED

pytestmark = pytest.mark.engine


def section(page: Page, name: str) -> Locator:
    """A part of the page, by its heading."""
    return page.get_by_role("region", name=name, exact=True)


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))


def test_what_is_loaded_elsewhere_appears_by_itself(daemon: RunningDaemon, laptop: Tab) -> None:
    page = laptop.go()
    expect(section(page, "Models")).to_contain_text("No model is loaded")
    daemon.load("talker")
    expect(row(page, "talker")).to_contain_text("ready")
    bar = section(page, "Device CPU")
    expect(bar).to_contain_text("talker")
    expect(bar.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("talker .*other programs .*free for models")
    )
    for part in ("weights", "kv", "compute", "elsewhere", "reserve", "free"):
        expect(bar.locator(f".bar .{part}")).to_have_count(1)
    daemon.http.post("/api/v1/models/unload", json={"model": "talker"})
    expect(section(page, "Models")).to_contain_text("No model is loaded")
    expect(bar).not_to_contain_text("talker")


def test_a_plan_is_drawn_and_drawn_anew(daemon: RunningDaemon, laptop: Tab) -> None:
    page = laptop.go("models")
    page.get_by_role("searchbox").fill("talk")
    page.get_by_role("list", name="What is here").get_by_role("link", name="talker").click()
    plan = section(page, "Plan")
    expect(plan).to_contain_text("It fits on CPU")
    expect(plan).to_contain_text("All of it is on the CPU.")
    kv = plan.locator(".bar .kv")
    before = kv.get_attribute("title")
    slider = plan.get_by_role("slider")
    slider.focus()
    slider.press("End")
    expect(plan).to_contain_text("131,072 tokens")
    expect(kv).not_to_have_attribute("title", str(before))
    full = str(kv.get_attribute("title"))
    plan.get_by_role("combobox", name="Type of K").select_option("q8_0")
    expect(kv).not_to_have_attribute("title", full)
    plan.get_by_text("By device and part").click()
    expect(plan).to_contain_text("--cache-type-k q8_0")
    plan.get_by_role("button", name="Choose automatically").click()
    expect(kv).to_have_attribute("title", str(before))
    assert daemon.model("talker")["state"] == "unloaded", "nothing was loaded"


def test_a_chosen_plan_is_what_is_loaded(daemon: RunningDaemon, laptop: Tab) -> None:
    page = laptop.go("models/talker")
    plan = section(page, "Plan")
    expect(plan).to_contain_text("It fits on CPU")
    plan.get_by_role("slider").focus()
    plan.get_by_role("slider").press("Home")
    expect(plan).to_contain_text("1,024 tokens")
    plan.get_by_role("button", name="Load", exact=True).click()
    expect(section(page, "Facts")).to_contain_text("1 k tokens")
    expect(row(page, "ctx_size")).to_contain_text("1024")
    expect(row(page, "ctx_size")).to_contain_text("load")
    expect(row(page, "aliases")).to_contain_text(re.compile(r"file, line \d+"))
    page.get_by_role("button", name="Pin talker", exact=True).click()
    expect(page.get_by_text("pinned", exact=True)).to_be_visible()
    page.get_by_role("button", name="Unload talker").click()
    expect(plan.get_by_role("button", name="Load", exact=True)).to_be_enabled()
    assert daemon.model("talker")["state"] == "unloaded"
    daemon.http.post("/api/v1/models/unpin", json={"model": "talker"})


def test_a_chat_streams_and_shows_what_it_is_made_of(daemon: RunningDaemon, laptop: Tab) -> None:
    page = laptop.go("playground/talker")
    talk = page.get_by_role("log")
    say(page, "Hello")
    expect(talk).to_contain_text(HELLO)
    expect(talk).to_contain_text("t/s")
    say(page, "think")
    expect(talk).to_contain_text(REASONED)
    expect(talk.get_by_text("Let me ponder.")).to_be_hidden()
    talk.get_by_text("Reasoning").click()
    expect(talk.get_by_text("Let me ponder.")).to_be_visible()
    say(page, "hostile")
    expect(talk).to_contain_text(HOSTILE)
    expect(talk.locator("img")).to_have_count(0)
    assert "taken" not in page.title()


def say(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Message").fill(text)
    page.get_by_role("button", name="Send").click()


def test_a_tool_call_is_shown_and_given_its_result(daemon: RunningDaemon, laptop: Tab) -> None:
    page = laptop.go("playground/talker")
    page.get_by_text("System prompt, sampling, tools").click()
    page.get_by_label("Offer tools").check()
    say(page, "weather")
    talk = page.get_by_role("log")
    expect(talk).to_contain_text("get_weather")
    expect(talk).to_contain_text("Paris")
    talk.get_by_label("Its result").fill("sunny")
    talk.get_by_role("button", name="Give").click()
    expect(talk).to_contain_text(HELLO)
    page.get_by_text("This request as a command or a program").click()
    assert '"role": "tool"' in page.get_by_text("curl -N").inner_text()


def test_two_models_answer_side_by_side_and_are_stopped(daemon: RunningDaemon, laptop: Tab) -> None:
    page = laptop.go("playground/endless")
    page.get_by_label("Two models side by side").check()
    page.get_by_role("combobox", name="Model 2").select_option("talker")
    say(page, "Hello")
    first, second = (page.get_by_role("region", name=f"Conversation {number}") for number in (1, 2))
    expect(second).to_contain_text(HELLO)
    expect(first).to_contain_text("and on it goes")
    page.get_by_role("button", name="Stop").click()
    expect(first).to_contain_text("stopped")
    wait_until(lambda: daemon.busy_slots("endless") == 0, "the slot is free")


def test_a_request_is_cancelled(daemon: RunningDaemon, laptop: Tab) -> None:
    daemon.load("endless")
    page = laptop.go("requests")
    body = {"model": "endless", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    with daemon.http.stream("POST", "/v1/chat/completions", json=body, timeout=PATIENCE) as answer:
        lines = answer.iter_lines()
        next(lines)
        expect(section(page, "In flight")).to_contain_text("endless")
        page.get_by_role("button", name="Cancel request").click()
        assert "request_cancelled" in "".join(lines)
    expect(section(page, "In flight")).to_contain_text("No request is running or waiting.")


def test_logs_go_on(daemon: RunningDaemon, laptop: Tab) -> None:
    daemon.load("talker")
    page = laptop.go("logs/talker")
    expect(page.get_by_role("log")).to_contain_text("model loaded")
    page.get_by_role("combobox", name="Of", exact=True).select_option("the daemon")
    expect(page.get_by_role("log")).to_contain_text("daemon_ready")
    page.get_by_role("combobox", name="Level").select_option("debug")
    expect(page.get_by_role("log")).to_contain_text("log_level")
    page.get_by_label("Only lines with").fill("log_level")
    expect(page.get_by_role("log")).not_to_contain_text("daemon_ready")


def test_a_log_that_is_left_while_it_scrolls_throws_nothing(daemon: RunningDaemon, laptop: Tab) -> None:
    page = laptop.go("logs")
    log = page.get_by_role("log")
    expect(log).to_contain_text("daemon_ready")
    box = log.element_handle()
    page.get_by_role("link", name="Overview").click()
    expect(log).to_have_count(0)
    box.evaluate("box => box.dispatchEvent(new Event('scroll'))")


def test_settings_say_where_they_come_from(daemon: RunningDaemon, laptop: Tab) -> None:
    page = laptop.go("settings")
    expect(row(page, "server.port")).to_contain_text("command line")
    expect(row(page, "models.talker.aliases")).to_contain_text(re.compile(r"file, line \d+"))
    expect(row(page, "queue.max_waiting")).to_have_count(0)
    page.get_by_label("Defaults too").check()
    expect(row(page, "queue.max_waiting")).to_contain_text("default")
    config = daemon.home / "test.yaml"
    config.write_text(config.read_text() + "\nqueue: {max_waiting: 77}\n")
    page.get_by_role("button", name="Read the file again").click()
    expect(row(page, "queue.max_waiting")).to_contain_text("77")


def test_a_connection_that_is_lost_is_said_and_found_again(daemon: RunningDaemon, laptop: Tab) -> None:
    page = laptop.go()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    page.context.set_offline(True)
    laptop.complaints.clear()
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.get_by_role("status")).to_contain_text("does not answer")
    page.context.set_offline(False)
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    laptop.complaints = [one for one in laptop.complaints if "ERR_INTERNET_DISCONNECTED" not in one]


def test_what_rest_says_of_memory_adds_up(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    (cpu,) = daemon.http.get("/api/v1/memory").json()["devices"]
    held = {one["model"]: one for one in cpu["held"]}
    plan = daemon.model("talker")["plan"]["parts"][-1]
    assert held["talker"]["measured"]
    assert held["talker"]["weights_bytes"] > 0
    assert held["talker"]["reserve_bytes"] == plan["reserve_bytes"]
    parts = ("weights_bytes", "kv_bytes", "compute_bytes", "other_bytes")
    assert sum(held["talker"][part] for part in parts) == daemon.model("talker")["footprint"]["CPU"]
    assert cpu["others_bytes"] + cpu["usable_bytes"] <= cpu["total_bytes"]


def test_rest_says_where_a_model_s_settings_come_from(daemon: RunningDaemon) -> None:
    daemon.load("endless", cache_type_k="q8_0")
    told = daemon.http.get("/api/v1/config", params={"model": "endless"}).json()
    values = {one["key"]: one for one in told["values"]}
    assert (values["cache_type_k"]["value"], values["cache_type_k"]["origin"]) == ("q8_0", "load")
    assert (values["ctx_size"]["value"], values["ctx_size"]["origin"]) == (LONG, "file")
    assert values["ctx_size"]["place"].startswith(f"{told['path']}:")
    missing: httpx.Response = daemon.http.get("/api/v1/config", params={"model": "nobody"})
    assert missing.json()["error"]["code"] == "model_not_found"
    assert json.dumps(told)

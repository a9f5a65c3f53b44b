"""The nodes of a cluster in the dashboard of one of them."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.cluster.stage import Node, cluster_of
from tests.support.browser import axe_script, tab
from tests.support.daemon import RunningDaemon, wait_until
from tests.support.node_packages import node_folder
from tests.support.scripted import ScriptedModel
from tests.ui.conftest import HELLO
from tests.ui.test_dashboard import row, section
from tests.ui.test_looks import LAPTOP, PHONE, SERIOUS, settle

pytestmark = pytest.mark.engine

HOSTILE = "<b onclick=alert(1)>far"


@pytest.fixture(scope="module")
def nodes(engine_binary: Path, scripted_model: ScriptedModel) -> Iterator[tuple[Node, Node]]:
    """`one` with `near` loaded, and `two` with a model of a hostile name."""
    short: dict[str, Any] = {"file": str(scripted_model(HELLO, n_ctx=8192)), "ctx_size": 8192, "cache_ram": 0}
    with cluster_of(engine_binary, one={"models": {"near": short}}, two={"models": {HOSTILE: short}}) as (one, two):
        one.did("load", "near")
        two.did("load", HOSTILE)
        wait_until(lambda: bool(one.sees(two)["models"]), "one has heard of it")
        yield one, two


def test_every_node_is_shown_with_its_devices_and_models(browser: Browser, nodes: tuple[Node, Node]) -> None:
    one, two = nodes
    with tab(browser, one.daemon.url, **LAPTOP) as shown:
        page = shown.go()
        expect(section(page, "Nodes")).to_contain_text("seen from one")
        expect(section(page, "Nodes").get_by_role("row").nth(1)).to_contain_text("this one")
        expect(section(page, "Nodes").get_by_role("row").nth(2)).to_contain_text(HOSTILE)
        there = section(page, "Node two")
        expect(there.get_by_role("rowheader", name=HOSTILE)).to_be_visible()
        expect(there.locator("b[onclick]")).to_have_count(0)
        bar = section(page, "Device CPU of two")
        expect(bar).to_contain_text(HOSTILE)
        expect(bar.get_by_role("img")).to_have_attribute("aria-label", re.compile("other programs .*free for models"))
        expect(bar.locator(".bar .weights")).to_have_count(1)
        expect(section(page, "Device CPU")).to_contain_text("near")
        expect(row(page, "near")).to_have_count(1)
        two.daemon.http.post("/api/v1/models/unload", json={"model": HOSTILE})
        expect(there).to_contain_text("No model is loaded there.")
        two.did("load", HOSTILE)
        expect(there.get_by_role("rowheader", name=HOSTILE)).to_be_visible()


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, nodes: tuple[Node, Node], colours: Any) -> None:
    for size in (LAPTOP, PHONE):
        with tab(browser, nodes[0].daemon.url, **size, color_scheme=colours, bypass_csp=True) as shown:
            page = shown.go()
            expect(section(page, "Device CPU of two")).to_be_visible()
            settle(page)
            page.evaluate(axe_script(node_folder()))
            found = page.evaluate("axe.run().then((results) => results.violations)")
            told = [(one["id"], [node["html"] for node in one["nodes"]]) for one in found if one["impact"] in SERIOUS]
            assert told == []
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_node_that_hangs_is_said_to(browser: Browser, nodes: tuple[Node, Node]) -> None:
    one, two = nodes
    with tab(browser, one.daemon.url, **LAPTOP) as shown:
        page = shown.go()
        there = section(page, "Node two")
        expect(section(page, "Device CPU of two")).to_be_visible()
        two.daemon.process.send_signal(signal.SIGSTOP)
        try:
            expect(there).to_contain_text("there is only what it last told")
            expect(section(page, "Device CPU of two")).to_have_count(0)
            expect(there).to_contain_text("What it has is not known.")
            expect(section(page, "Nodes").get_by_role("row").nth(2)).to_contain_text("away")
        finally:
            two.daemon.process.send_signal(signal.SIGCONT)
        expect(section(page, "Device CPU of two")).to_be_visible()


def test_in_no_cluster_nothing_of_it_is_shown(browser: Browser, daemon: RunningDaemon) -> None:
    with tab(browser, daemon.url) as shown:
        found: list[str] = []
        shown.page.on("request", lambda request: found.append(request.url))
        page = shown.go()
        expect(section(page, "Device CPU")).to_be_visible()
        expect(section(page, "Nodes")).to_have_count(0)
        with page.expect_response("**/api/v1/memory"):  # the next look
            pass
        assert len([url for url in found if url.endswith("/api/v1/cluster/nodes")]) == 1

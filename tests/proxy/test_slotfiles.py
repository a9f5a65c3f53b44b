"""Slots that clients have an engine save: into the folder that the configuration names, within a budget, or not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import pytest

from supervisor.api.errors import render_error
from supervisor.core.launch import LaunchOptions
from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.errors import DiskFull, InvalidRequest
from supervisor.pool.inflight import Inflight
from supervisor.pool.pool import Pool
from supervisor.proxy.bodies import Bodies
from supervisor.proxy.naming import Naming
from supervisor.proxy.relay import Relaying
from supervisor.proxy.slotfiles import check_slot_action, is_slot_action
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.proxy.upstream import upstream_endpoint
from supervisor.proxy.waiting import Waiting
from tests.proxy.asking import answer_of

KEPT, PLAIN = LaunchOptions(keep_kv=True), LaunchOptions()


@pytest.mark.parametrize("path", ["/slots/0", "/slots/1", "//slots/0/", "/%73lots/0", "/slots%2F0", "/slots"])
def test_however_it_is_written_it_is_one(path: str) -> None:
    assert is_slot_action("POST", path)
    assert not is_slot_action("GET", path)
    assert not is_slot_action("POST", f"/v1{path}x")


@pytest.mark.parametrize("options", [KEPT, PLAIN])
@pytest.mark.parametrize("action", ["save", "restore"])
def test_without_a_folder_of_the_configuration_it_is_refused(options: LaunchOptions, action: str) -> None:
    with pytest.raises(InvalidRequest, match="slot_save_path"):
        check_slot_action("m", options, f"action={action}", 1 << 30)
    check_slot_action("m", options, "action=erase", 1 << 30)


@pytest.mark.parametrize("query", ["", "action=", "action=save&action=erase", "action=erase&x", "ACTION=save", "a=b"])
def test_only_one_plain_action_is_taken(query: str) -> None:
    with pytest.raises(InvalidRequest, match="action=save"):
        check_slot_action("m", LaunchOptions(slot_save_path="/x"), query, 1 << 30)


def test_a_folder_that_is_full_takes_no_more_and_still_gives(tmp_path: Path) -> None:
    options = LaunchOptions(slot_save_path=str(tmp_path))
    check_slot_action("m", options, "action=save", 10)
    (tmp_path / "one").write_bytes(b"0123456789")
    with pytest.raises(DiskFull, match=r"kv_store\.max_mib"):
        check_slot_action("m", options, "action=save", 10)
    check_slot_action("m", options, "action=restore", 10)


@pytest.mark.parametrize("path", [b"/upstream/m/slots/0", b"/upstream/m//slots/0", b"/upstream/m/%73lots/0"])
def test_the_engine_is_not_even_asked(path: bytes) -> None:
    pool = cast(Pool, None)  # a request that came so far would need one
    inflight = Inflight(lambda: 0.0)
    registry = Registry((ModelEntry("m", Source.FILE, "/m.gguf", KEPT),))
    waiting = Waiting(pool, inflight, lambda: 0.0)
    naming = Naming(registry, frozenset, lambda: None)
    relaying = Relaying(pool, registry, inflight, Bodies(1 << 20, 1 << 20), render_error, ToolCalls(), waiting, naming)
    scope: dict[str, Any] = {"method": "POST", "path": unquote(path), "raw_path": path, "headers": []}
    scope["query_string"] = b"action=save"
    sent = asyncio.run(answer_of(upstream_endpoint(relaying, lambda: 1 << 30), scope))
    assert sent[0]["status"] == 400

"""The search for the fastest options, of a model whose speed is a formula; and rows of tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from supervisor.cli.daemon import Daemon
from supervisor.cli.loading import download_text, variant_lines
from supervisor.cli.render import speed_cell, state_word, token_rate
from supervisor.cli.rows import model_row, request_row, speed
from supervisor.cli.tuning import Row, Tuner, as_it_was, text_of
from supervisor.core.speed.tuning import Job
from supervisor.errors import ModelDoesNotFit, ModelLoadFailed

Json = dict[str, Any]
FAST = {"threads": 8, "ubatch_size": 512, "cache_type_k": "f16"}
"""What makes the model twice as fast, each."""


class Planner:
    """A daemon's client that plans and loads what it is told, and writes as fast as the options say."""

    def __init__(self, **plan: Any) -> None:
        self.plan = {"fits": True, "evict_models": [], "request_ctx": 4096, "n_cpu_moe": 0, "speed": None} | plan
        self.calls: list[tuple[str, Json]] = []
        self.loaded: Json = {}

    def post(self, path: str, body: Json, timeout: float | None = None) -> Json:
        self.calls.append((path, body))
        options = body.get("options") or {}
        if path == "/api/v1/plan":
            if options.get("spec_type") == ["draft-mtp"]:
                raise ModelLoadFailed("no such blocks")
            return self.plan | ({"request_ctx": 2048} if options.get("cache_type_k") == "q8_0" else {})
        if path == "/completion":
            rate = 100 * 2 ** sum(self.loaded.get(name) == value for name, value in FAST.items())
            return {"timings": {
                "prompt_n": 200, "prompt_ms": 200_000 / rate, "predicted_n": body["n_predict"],
                "predicted_ms": (body["n_predict"] - 1) * 10_000 / rate,
            }}  # fmt: skip
        return {}

    def events(self, path: str, body: Json) -> Iterator[Json]:
        self.calls.append((path, body))
        self.loaded = body["options"] or {}
        broken = self.loaded.get("spec_type")
        yield {"id": "m", "state": "loading"}
        failed = {"state": "failed", "error": {"code": "model_load_failed", "message": "x"}}
        yield {"id": "m", **(failed if broken else {"state": "ready"})}

    @staticmethod
    def parsed(event: Json) -> Json:
        return event


def tuner(planner: Planner, *, ends: float = 1e9, given: Mapping[str, object] | None = None, most: int = 9) -> Tuner:
    daemon = cast("Daemon", SimpleNamespace(client=planner))
    clock = itertools.count()
    told = dict(given or {})
    return Tuner(daemon, "m", told, Job(200, 20), most, ends, lambda: float(next(clock)), lambda stage, share: None)


def test_each_kind_of_change_begins_with_the_best_so_far() -> None:
    search = tuner(planner := Planner())
    best = search.search(8, 16)
    assert best.changes == {
        "threads": 8,
        "ubatch_size": 512,
        "batch_size": 2048,
        "cache_type_k": "f16",
        "cache_type_v": "f16",
    }
    assert (best.prefill, best.decode, best.seconds) == (800.0, 80.0, 0.5)
    assert (search.rows[0].changes, search.rows[0].seconds) == ({}, 4.0)
    notes = {text_of(row.changes).rpartition(" ")[2]: row.note for row in search.rows if row.note}
    assert notes == {
        "cache_type_v=q8_0": "does not fit, or with less context",
        "spec_type=draft-mtp": "model_load_failed",
        "spec_type=ngram-mod": "model_load_failed",
    }
    loads = [body for path, body in planner.calls if path == "/api/v1/models/load"]
    assert loads[0] == {"target": "m", "options": None, "reset": True}
    assert all(body["reset"] for body in loads)
    prompts = [body for path, body in planner.calls if path == "/completion"]
    assert {(body["model"], body["cache_prompt"], body["ignore_eos"], body["truncate"]) for body in prompts} == {
        ("m", False, True, False)
    }
    assert [body["n_predict"] for body in prompts[:3]] == [2, 20, 20], "the first, which takes longer, is not timed"
    texts = [body["prompt"] for body in prompts[:3]]
    assert len(set(texts)) == 3, "no prompt is found in a cache"
    assert len(texts[0]) < len(texts[1])


def test_what_was_given_stays_and_time_and_number_have_an_end() -> None:
    search = tuner(planner := Planner(), given={"threads": 3})
    assert "threads" not in search.search(8, 16).changes
    assert all(
        (body["options"] or {})["threads"] == 3 for path, body in planner.calls if path.endswith(("plan", "load"))
    )
    short = tuner(Planner(), ends=0)
    assert short.search(8, 16) == short.rows[0]
    assert len(short.rows) == 1
    few = tuner(Planner(), most=1)
    few.search(8, 16)
    assert [row.changes["threads"] for row in few.rows if "threads" in row.changes][:1] == [4]
    assert sum(row.changes.keys() == {"threads"} for row in few.rows) == 1


def test_where_it_does_not_fit_nothing_is_tried() -> None:
    planner = Planner(fits=False, message="No.", hints=["Less."])
    with pytest.raises(ModelDoesNotFit, match=r"^No\. Less\.$"):
        tuner(planner).search(8, 16)
    crowded = Planner(evict_models=["a", "b"])
    with pytest.raises(ModelDoesNotFit, match=r"^a, b would have to leave first"):
        tuner(crowded).search(8, 16)
    assert {path for path, _ in planner.calls + crowded.calls} == {"/api/v1/plan"}


def test_what_is_foretold_is_for_the_depth_of_the_prompt() -> None:
    rates = {"0": 50.0, "100": 40.0, "1000": 1.0}
    found = tuner(Planner(speed={"prefill_tokens_per_second": 100.0, "decode_tokens_per_second": rates}))
    assert found.search(8, 16).foretold == 200 / 100 + 20 / 40
    assert found.rows[0].to_json() == {
        "options": {}, "foretold_seconds": 2.5, "prefill_tokens_per_second": 100.0,
        "decode_tokens_per_second": 10.0, "seconds": 4.0, "note": "",
    }  # fmt: skip
    assert Row({"a": 1}, note="x").to_json() == dict.fromkeys(found.rows[0].to_json()) | {
        "options": {"a": 1},
        "note": "x",
    }


def test_the_model_is_as_it_was() -> None:
    for was, path, options in (
        (None, "/api/v1/models/unload", None),
        ({"state": "unloaded", "given": {}}, "/api/v1/models/unload", None),
        ({"state": "ready", "given": {"threads": 1}}, "/api/v1/models/load", {"threads": 1}),
        ({"state": "ready", "given": {}}, "/api/v1/models/load", None),
    ):
        planner = Planner()
        with as_it_was(cast("Daemon", SimpleNamespace(client=planner)), "m", was):
            assert planner.calls == []
        ((asked, body),) = planner.calls
        assert asked == path
        assert body == ({"model": "m"} if "unload" in path else {"target": "m", "options": options, "reset": True})


def test_options_as_a_person_writes_them() -> None:
    assert text_of({}) == "as it is"
    assert text_of({"a": 1, "b": ["x", "y"], "c": "z"}) == "a=1 b=x,y c=z"


MODEL: Json = {"id": "m", "state": "ready", "pid": 7, "n_ctx": 4096, "rss_bytes": 1 << 30, "leases": 1, "waiting": 0}


@pytest.mark.parametrize(
    ("more", "state", "up", "until"),
    [
        ({}, "ready", "-", "-"),
        ({"loaded_at": 40.0, "expires_at": 130.0}, "ready", "60s", "30s"),
        ({"expires_at": 30.0}, "ready", "-", "0s"),
        ({"expires_at": 130.0, "pinned": True}, "ready", "-", "pinned"),
        ({"state": "loading", "progress": 0.25}, "loading 25%", "-", "-"),
        ({"state": "loading", "progress": 0.0}, "loading 0%", "-", "-"),
        ({"state": "loading"}, "loading", "-", "-"),
        ({"progress": 0.5}, "ready", "-", "-"),
        ({"state": "failed", "error": {"code": "crashed"}}, "failed (crashed)", "-", "-"),
        ({"state": "backoff"}, "waiting to retry", "-", "-"),
        ({"state": "reserved"}, "starting", "-", "-"),
    ],
)
def test_the_row_of_a_model(more: Json, state: str, up: str, until: str) -> None:
    assert model_row(MODEL | more, 100.0) == ("m", state, "7", "4096", "1.0 GiB", "1", "0", up, until)


def test_a_model_of_which_nothing_is_known_and_a_request() -> None:
    assert model_row({"id": "m", "state": "x"}, 0.0) == ("m", "x", *"-------")
    asked = {"id": "r", "model": "m", "path": "/v1", "state": "running"}
    assert request_row(asked, 9.0) == ("r", "m", "/v1", "running", "-", "-", "-", "-")
    more = {"engine": 3, "since": 4.0, "completion_tokens": 0, "tokens_per_second": 9.46}
    assert request_row(asked | more, 9.0) == ("r", "m", "/v1", "running", "3", "5s", "0", "9.5 t/s")
    assert [speed(one) for one in (None, 0.0, 99.94, 100.0, 120.4)] == ["-", "-", "99.9 t/s", "100 t/s", "120 t/s"]
    assert [state_word(one) for one in ("reserved", "backoff", "ready", None)] == [
        "starting", "waiting to retry", "ready", "None",
    ]  # fmt: skip


def test_speeds_have_as_many_digits_as_are_foretold() -> None:
    assert [token_rate(one) for one in (1674.0, 38.04, 10.0, 9.96, 0.4234)] == ["1,670", "38", "10", "10", "0.42"]
    told = {"speed": {"decode_tokens_per_second": {"1000": 21.0, "0": 38.0, "100": 30.0}}}
    assert speed_cell(told) == "38 … 21"
    assert speed_cell({"speed": {"decode_tokens_per_second": {"0": 38.0, "9": 38.1}}}) == "38"
    assert [speed_cell(one) for one in (None, {}, {"error": "x"}, {"speed": None})] == ["-", "-", "x", "-"]


def test_downloads_and_variants() -> None:
    begun: Json = {"done_bytes": 0, "total_bytes": 2048}
    assert download_text(begun) == "0 B of 2.0 KiB"
    more = {"bytes_per_second": 1024, "eta_seconds": 59.4, "note": "again"}
    assert download_text(begun | more) == "0 B of 2.0 KiB, 1.0 KiB/s, 59 s left, again"
    assert "1 min 0 s left" in download_text(begun | {"eta_seconds": 60})
    assert "2 min 5 s left" in download_text(begun | {"eta_seconds": 125})
    one: Json = {"name": "Q4", "size_bytes": 1024, "note": ""}
    shown = variant_lines([
        one | {"chosen": True, "fits": True, "well": True},
        one | {"chosen": False, "fits": True, "well": False, "note": "spills"},
        one | {"chosen": False, "fits": False, "well": False},
    ])
    assert shown == ["→  Q4  1.0 KiB  fits", "   Q4  1.0 KiB  tight  spills", "   Q4  1.0 KiB  no"]
    assert variant_lines([]) == []

"""A request that is left frees its slot: on every relayed path, in every phase, however it is left.

The engine itself says whether a slot is at work (`GET /slots` on its socket). No answer here ends by itself, so a slot
that is free was freed. Beside them goes a stream that nobody ends: without it an engine notices after a second what it
does not notice at all otherwise. How quickly a slot is free, `benchmarks/relay.py` measures.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import openai
import psutil
import pytest

from supervisor.core.routes import DOORS, ROUTES
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.gated import Gate
from tests.support.leaving import CASES, ENDLESS, LIMIT_TOKENS, PHASES, STATUS, WAITING, WAYS, Case, Phase, Way
from tests.support.patience import PATIENCE
from tests.support.routes import OF_LLAMA

pytestmark = pytest.mark.engine

SLOTS = 48  # of all that generate, as a stream and in one piece, and of the bystander
GENERATING = [case for case in CASES if case.has("decode")]
COMPUTING = [case for case in CASES if case.has("prefill") and not case.has("decode")]
TOGETHER = {
    "texts": [case for case in GENERATING if case.path != "/infill"],
    "middles": [case for case in GENERATING if case.path == "/infill"],
}
"""What the engine computes at once; it lets the one kind wait until nothing of the other is left."""


def models(talker: Path) -> dict[str, Any]:
    """They read their prompts in small batches; asked to fill in a middle, too, they say what never ends."""
    words = gguf.GGUFReader(talker).fields["tokenizer.ggml.tokens"].contents()
    token = words.index(f"<|say:word:{ENDLESS}|>")
    marks = ",".join(f"tokenizer.ggml.fim_{mark}_token_id=int:{token}" for mark in ("pre", "suf", "mid"))
    model: dict[str, Any] = {
        "file": str(talker),
        "parallel": SLOTS,
        "ctx_size": 1 << 19,
        "batch_size": SLOTS,
        "ubatch_size": SLOTS,
        "kv_unified": True,
        "extra_args": ["--no-cache-prompt", "--override-kv", marks],
    }
    return {"talker": model, "ranker": {**model, "reranking": True}, "single": {**model, "parallel": 1}}


@dataclass
class Stage:
    """A daemon whose engines load while their gate is open."""

    daemon: RunningDaemon
    gate: Gate

    def in_flight(self) -> list[dict[str, Any]]:
        """The oldest first."""
        found: list[dict[str, Any]] = self.daemon.http.get("/api/v1/requests").json()["requests"]
        return found

    def settled(self, model: str, left: int) -> bool:
        """Whether so many requests are left of all, and their slots alone are at work."""
        status = self.daemon.model(model)
        if (len(self.in_flight()), status["leases"], status["waiting"]) != (left, left, 0):
            return False
        return status["state"] != "ready" or self.daemon.busy_slots(model) == left


@contextlib.contextmanager
def staged(engine: Path, folder: Path, talker: Path) -> Iterator[Stage]:
    gate = Gate(folder, engine)
    server = {"keep_alive": 0, "drain": 0.01}
    settings = {"models": models(talker), "server": server, "engine": {"stop_timeout": 1}}
    with scratch_home() as home, running_daemon(home, gate.engine, settings) as daemon:
        yield Stage(daemon, gate)


@pytest.fixture(scope="module")
def stage(engine_binary: Path, talker: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(engine_binary, tmp_path_factory.mktemp("stage"), talker) as found:
        yield found


NewStage: TypeAlias = Callable[[Way], Stage]


@pytest.fixture
def new_stage(stage: Stage, engine_binary: Path, talker: Path, tmp_path: Path) -> Iterator[NewStage]:
    """The stage for a way to leave: one of its own for a daemon that stops."""
    with contextlib.ExitStack() as own:
        yield lambda way: stage if way != "stopped" else own.enter_context(staged(engine_binary, tmp_path, talker))


@dataclass
class Asked:
    """A request that was sent over a bare connection."""

    case: Case
    stream: bool
    connection: socket.socket

    @property
    def has_come(self) -> bool:
        """Whether something of the answer is there."""
        return bool(select.select([self.connection], [], [], 0)[0])

    def told(self) -> tuple[int, str]:
        """Status and code of what came; no code where it broke off without a word."""
        raw = b"".join(iter(lambda: self.connection.recv(1 << 16), b""))
        codes = re.findall(rb'"code": ?"(\w+)"', raw[-2000:])
        return int(raw.split(b" ", 2)[1]), codes[-1].decode() if codes else ""

    def may_be_told(self, phase: Phase, way: Way) -> set[tuple[int, str]]:
        """A stream may begin while the prompt is read. An upstream one that has begun only breaks off."""
        _, waiting, answered = WAYS[way]
        code = waiting if phase in WAITING else answered
        before, within = (STATUS[code], code), (200, "" if self.case.upstream else code)
        streams = self.stream and self.case.has("decode") and phase not in WAITING
        if not streams:
            return {before}
        return {within} if phase == "decode" else {before, within}


@contextlib.contextmanager
def posted(stage: Stage, case: Case, model: str, phase: Phase, *, stream: bool) -> Iterator[Asked]:
    """Send a request, whose connection is closed at the end of the block."""
    payload = json.dumps(case.asked(model, phase, stream=stream)).encode()
    host, port = stage.daemon.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        start = f"POST {case.target(model)} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n"
        connection.sendall(f"{start}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
        yield Asked(case, stream, connection)


def is_in(phase: Phase, stage: Stage, model: str, count: int) -> bool:
    """Whether so many requests and the bystander are in this phase."""
    if phase in WAITING:
        status = stage.daemon.model(model)
        return bool(status["waiting"] == count and status["pid"])
    decoded = [one["next_token"][0]["n_decoded"] for one in stage.daemon.slots(model) if one["is_processing"]]
    return len(decoded) == count + 1 and (phase == "prefill" or all(decoded))


def end(way: Way, stage: Stage, model: str, numbers: list[int]) -> None:
    """End the requests, but for those whose clients leave."""
    if way == "cancelled":
        for number in numbers:
            assert stage.daemon.http.delete(f"/api/v1/requests/{number}").status_code == 200
    elif way == "unloaded":
        stage.daemon.http.post("/api/v1/models/unload", json={"model": model, "now": True})
    elif way == "stopped":
        stage.daemon.process.terminate()


def slots_of_all(stage: Stage, model: str) -> list[dict[str, Any]]:
    return [] if stage.daemon.model(model)["pid"] is None else stage.daemon.slots(model)


def leave(stage: Stage, phase: Phase, way: Way, cases: Sequence[Case]) -> None:
    """Have requests left in one phase and one way, each as a stream and in one piece; the first goes on beside them."""
    model = "single" if phase == "queued" else "talker"
    beside = phase != "loading"
    if beside:
        stage.gate.open()
        stage.daemon.load(model)
    else:
        stage.daemon.http.post("/api/v1/models/unload", json={"model": model, "now": True})
        stage.gate.close()
    with contextlib.ExitStack() as bystanders:
        if beside:
            asked = bystanders.enter_context(posted(stage, cases[0], model, "decode", stream=True))
            assert b"200 OK" in asked.connection.recv(1 << 16)
        with contextlib.ExitStack() as leaving:
            both = [(case, stream) for case in cases for stream in (True, False)]
            sent = [leaving.enter_context(posted(stage, case, model, phase, stream=stream)) for case, stream in both]
            wait_until(lambda: is_in(phase, stage, model, len(sent)), f"{len(sent)} requests: {PHASES[phase]}")
            flying, pid = stage.in_flight()[beside:], stage.daemon.model(model)["pid"]
            assert len(flying) == len(sent)
            end(way, stage, model, [one["id"] for one in flying])
            if way != "leaves":
                for one in sent:
                    assert one.told() in one.may_be_told(phase, way), str(one.case)
        if way == "stopped":
            assert stage.daemon.process.wait(PATIENCE) == 0
            assert not psutil.pid_exists(pid)
            return
        if phase == "loading":
            stage.gate.open()
        if way == "unloaded":
            assert not psutil.pid_exists(pid)
            wait_until(lambda: stage.settled(model, 0), "nothing is left")
            return
        wait_until(lambda: stage.settled(model, beside), "only the bystander is left")
        if phase in {"prefill", "decode"}:
            check_unfinished(stage, phase, model)
    wait_until(lambda: stage.settled(model, 0), "nothing is left")


def check_unfinished(stage: Stage, phase: Phase, model: str) -> None:
    """In tokens, not in seconds: what nobody noticed to be left went on to its end."""
    for slot in stage.daemon.slots(model):
        if "next_token" in slot and not slot["is_processing"]:
            decoded = slot["next_token"][0]["n_decoded"]
            assert decoded < LIMIT_TOKENS // 4 if phase == "decode" else decoded == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("phase", sorted(WAITING))
def test_a_request_that_waits_can_be_left(new_stage: NewStage, phase: Phase, way: Way) -> None:
    leave(new_stage(way), phase, way, CASES)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("cases", TOGETHER.values(), ids=TOGETHER)
def test_a_request_that_is_answered_can_be_left(new_stage: NewStage, cases: list[Case], phase: Phase, way: Way) -> None:
    leave(new_stage(way), phase, way, cases)


_TRIES, _ANSWERED = 5, (200, "")  # an engine may be done before it is told to end


@pytest.mark.parametrize("way", ["leaves", "cancelled", "unloaded"])
@pytest.mark.parametrize("case", COMPUTING, ids=str)
def test_what_only_computes_gives_its_lease_back_at_once(stage: Stage, case: Case, way: Way) -> None:
    model = "ranker" if case.path == "/v1/rerank" else "talker"
    stage.gate.open()
    for _ in range(_TRIES):
        stage.daemon.load(model)
        with posted(stage, case, model, "prefill", stream=False) as asked:
            wait_until(lambda: asked.has_come or stage.daemon.busy_slots(model) > 0, "the texts are read")
            end(way, stage, model, [one["id"] for one in stage.in_flight()])
            told = None if way == "leaves" and not asked.has_come else asked.told()
        if told != _ANSWERED:
            break
    assert told is None or told in asked.may_be_told("prefill", way)
    wait_until(lambda: not stage.in_flight(), "the request is over")
    assert stage.daemon.model(model)["leases"] == 0
    wait_until(lambda: stage.settled(model, 0), "nothing is left")


@pytest.mark.parametrize("tools", [[], [{"type": "function", "name": "ping", "parameters": {"type": "object"}}]])
def test_a_streamed_response_is_cancelled_by_its_id(stage: Stage, tools: list[Any]) -> None:
    stage.gate.open()
    with openai.OpenAI(base_url=f"{stage.daemon.url}/v1", api_key="unused", max_retries=0) as client:
        stream = client.responses.create(model="talker", input=ENDLESS, tools=tools, stream=True)
        first = next(stream)
        assert first.type == "response.created"
        cancelled = client.responses.cancel(first.response.id)
        assert (cancelled.id, cancelled.status) == (first.response.id, "cancelled")
        *_, last = stream
        assert (last.type, last.code if last.type == "error" else None) == ("error", "request_cancelled")
        wait_until(lambda: stage.settled("talker", 0), "nothing is left")
        with pytest.raises(openai.NotFoundError) as gone:
            client.responses.cancel(first.response.id)
    assert gone.value.code == "request_not_found"


def test_the_cases_are_all_relayed_paths() -> None:
    """A form needs a model that hears: tests/api/test_transcriptions.py."""
    asked = [row for row in ROUTES if row.path in OF_LLAMA and not row.is_form]
    assert list(dict.fromkeys(case.path for case in CASES)) == [row.path for row in (*asked, *DOORS)]
    for case in CASES:
        row = next(row for row in (*ROUTES, *DOORS) if row.path == case.path)
        assert case.has("decode") == row.generates, case
